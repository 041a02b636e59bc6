"""Operations of a cluster with three shards: every node answers for all of them, over REST."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from queuelake import control_cluster
from queuelake.control import MetricsSnapshot
from queuelake.control_cluster import Rebalanced
from queuelake.placing import Placing
from tests.api.queue_rest import Rest
from tests.cluster.conftest import ConnectTo
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess
from tests.harness.cluster import Cluster
from tests.harness.packets import WireError
from tests.harness.wire import Wire
from tests.queues.client import SUCCESS

SHARDS = 3
PLACING = Placing(SHARDS)
FOLDERS = [(), ("shards", "1"), ("shards", "2")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {
        "cluster.shards": SHARDS,
        "http.enabled": True,
        "grpc.enabled": False,
        "flight.enabled": False,
    }
    with Cluster(tmp_path_factory.mktemp("sharded"), settings) as running:
        running.eventually(lambda: all(_owners(running)), "some shard has no owner")
        running.ask(0, control_cluster.CLUSTER_REBALANCE, Rebalanced)
        running.eventually(lambda: len({*_owners(running)} - {""}) == 3, "one owns nothing")
        yield running


def _owners(cluster: Cluster) -> list[str]:
    """Of each shard, as all nodes say."""
    said = {tuple(one.owner for one in cluster.info(index).shards) for index in range(3)}
    return list(said.pop()) if len(said) == 1 else [""]


@pytest.fixture(params=range(3))
def rest(request: pytest.FixtureRequest, cluster: Cluster) -> Rest:
    """Of each node: what it says must not depend on what it owns."""
    return Rest(cluster.nodes[request.param])


def names_everywhere(prefix: str, each: int) -> list[str]:
    """So many names of queues in each shard."""
    found: list[list[str]] = [[] for _ in range(SHARDS)]
    number = 0
    while any(len(one) < each for one in found):
        name = f"{prefix}{number}"
        number += 1
        place = found[PLACING.of_queue(name)]
        if len(place) < each:
            place.append(name)
    return sorted([name for one in found for name in one])


def pages(rest: Rest, path: str, items: str, following: str = "next", limit: int = 2) -> list[Any]:
    found: list[Any] = []
    cursor = ""
    while True:
        mark = "&" if "?" in path else "?"
        page = rest.fetch(f"{path}{mark}limit={limit}&cursor={cursor}").json
        assert len(page[items]) <= limit
        found += page[items]
        if page[following] is None:
            return found
        cursor = page[following]


def test_queues_of_all_shards_are_one_list_and_each_can_be_changed_anywhere(
    rest: Rest, connect_to: ConnectTo, request: pytest.FixtureRequest
) -> None:
    prefix = f"list-{request.node.callspec.params['rest']}-"
    names = names_everywhere(prefix, 2)
    client = connect_to(0)
    for name in names:
        assert client.publish(name, "x") == SUCCESS
    listed = pages(rest, f"/api/v1/queues?prefix={prefix}", "queues")
    assert [one["name"] for one in listed] == [f"$queue/{name}" for name in names]
    assert {one["depth"] for one in listed} == {1}
    for name in names:
        assert rest.put(name, retry_policy={"max_retries": 3}).status == 200
        assert rest.queue(name).json["settings"]["retry_policy"]["max_retries"] == 3
        assert rest.queue(name, "/messages").json["messages"][0]["topic"] == f"$queue/{name}"
        assert rest.queue(name, method="DELETE").status == 204
        assert rest.queue(name).status == 404


def test_a_message_queue_is_made_everywhere_and_tells_of_all_its_parts(
    rest: Rest, connect_to: ConnectTo, request: pytest.FixtureRequest
) -> None:
    name = f"jobs{request.node.callspec.params['rest']}"
    topics = [f"{name}/{number}" for number in range(12)]
    assert {PLACING.of_topic(topic.encode()) for topic in topics} == set(range(SHARDS))
    queues = "/api/v5/message_queues/queues"
    body = {"name": name, "topic_filter": f"{name}/+", "is_lastvalue": False}
    made = rest.fetch(queues, method="POST", body=json.dumps(body).encode())
    assert made.status == 200
    client = connect_to(1)
    for topic in topics:
        assert client.publish_topic(topic, "hello") == SUCCESS
    assert rest.fetch(f"{queues}/{name}/stats").json["messages"] == len(topics)
    listed = pages(rest, f"{queues}/{name}/messages", "messages", limit=5)
    assert sorted([one["topic"] for one in listed]) == sorted(topics)
    again = rest.fetch(queues, method="POST", body=json.dumps(body).encode())
    assert (again.status, again.json["code"]) == (400, "ALREADY_EXISTS")
    assert [one["name"] for one in rest.fetch(f"{queues}?limit=100").json["data"]].count(name) == 1
    assert rest.fetch(f"{queues}/{name}", method="DELETE").status == 204
    assert rest.fetch(f"{queues}/{name}").status == 404


def test_dead_letters_of_a_message_queue_are_one_queue(cluster: Cluster) -> None:
    rest = Rest(cluster.nodes[0])
    body = {"name": "mortal", "topic_filter": "mortal/+", "is_lastvalue": False}
    queues = "/api/v5/message_queues/queues"
    assert rest.fetch(queues, method="POST", body=json.dumps(body).encode()).status == 200
    assert rest.put("dlq/mortal", limits={"max_queue_depth": 7}).status == 201
    for node in cluster.nodes:
        found = Rest(node).fetch("/api/v1/queues?prefix=dlq/mortal").json["queues"]
        assert [one["name"] for one in found] == ["$queue/dlq/mortal"]
        assert Rest(node).queue("dlq/mortal", "/stats").json["depth"] == 0
    assert rest.queue("dlq/mortal", method="DELETE").status == 204
    assert rest.queue("dlq/mortal").status == 404


def test_a_dead_letter_queue_in_another_shard_is_refused(rest: Rest) -> None:
    one, other = next(
        (a, b)
        for a in names_everywhere("one", 1)
        for b in names_everywhere("other", 1)
        if PLACING.of_queue(a) != PLACING.of_queue(b)
    )
    refused = rest.put(one, dlq_config={"topic": f"$queue/{other}"})
    assert refused.status == 400
    assert f'in another shard than "$queue/{one}"' in refused.json["message"]
    assert rest.queue(one).status == 404


def test_clients_and_their_subscriptions_are_listed_once(
    rest: Rest, connect_to: ConnectTo, request: pytest.FixtureRequest
) -> None:
    prefix = f"c{request.node.callspec.params['rest']}-"
    clients = {
        name: connect_to(n % 3, name) for n, name in enumerate(f"{prefix}{n}" for n in range(5))
    }
    for client in clients.values():
        client.wire.subscribe("some/#", qos=1)
        client.wire.subscribe(f"$queue/{prefix}", qos=1)
    listed = pages(rest, f"/api/v1/clients?search={prefix}", "items", "next_cursor")
    assert [one["client_id"] for one in listed] == list(clients)
    assert all(one["connected"] for one in listed)
    found = rest.fetch(f"/api/v1/subscriptions?client_id={prefix}3").json["subscriptions"]
    assert [one["topic_filter"] for one in found] == [f"$queue/{prefix}", "some/#"]
    assert rest.fetch(f"/api/v1/clients/{prefix}3", method="DELETE").status in (200, 204)
    clients[f"{prefix}3"].wire.expect_disconnect(0x98)
    assert rest.fetch("/api/v1/clients/nobody").status == 404


def test_metrics_of_all_nodes_add_up_to_the_clients_there_are(
    cluster: Cluster, connect_to: ConnectTo
) -> None:
    clients = [connect_to(index) for index in (0, 1, 1)]
    found = [cluster.ask(index, "metrics", MetricsSnapshot) for index in range(3)]
    assert [one.connections for one in found] == [1, 2, 0]
    assert sum(one.sessions for one in found) == len(clients)


def test_retained_messages_of_all_shards_are_sorted_by_topic(
    rest: Rest, connect_to: ConnectTo
) -> None:
    topics = [f"kept/{number}" for number in range(9)]
    client = connect_to(2)
    for topic in topics:
        client.wire.publish(topic, b"v", qos=1, retain=True)
    listed = pages(rest, "/api/v1/retained?filter=kept/%2B", "messages")
    assert [one["topic"] for one in listed] == topics
    for topic in topics:
        path = f"/api/v1/retained/{topic.replace('/', '%2F')}"
        assert rest.fetch(path).json["info"]["topic"] == topic
        assert rest.fetch(path, method="DELETE").status == 204


def test_bans_and_settings_are_the_same_everywhere(cluster: Cluster, connect_to: ConnectTo) -> None:
    first, last = Rest(cluster.nodes[0]), Rest(cluster.nodes[2])
    client = connect_to(1, "banned")
    assert first.fetch("/api/v1/bans/clientid/banned?seconds=60", method="PUT").status == 200
    client.wire.expect_disconnect(0x8A)
    assert [one["value"] for one in last.fetch("/api/v1/bans").json["bans"]] == ["banned"]
    assert last.fetch("/api/v1/bans/clientid/banned", method="DELETE").status == 204
    assert first.fetch("/api/v1/bans").json["bans"] == []
    changes = json.dumps({"max_keys_per_queue": 11}).encode()
    path = "/api/v1/ecq/config"
    assert first.fetch(path, method="PUT", body=changes).status in (200, 204)
    assert last.fetch(path).json["inuse"]["max_keys_per_queue"] == 11
    topics = json.dumps({"heartbeat_topics": ["other/{VIN}"]}).encode()
    refused = last.fetch("/api/v1/sdv/config", method="PUT", body=topics)
    assert refused.status == 400, refused.body
    assert "heartbeat_topics cannot be changed" in refused.json["message"]


def test_a_backup_has_the_stores_of_all_shards(cluster: Cluster) -> None:
    rest = Rest(cluster.nodes[1])
    begun = rest.fetch("/api/v1/backup", method="POST", body=b'{"name":"all"}').json
    cluster.eventually(
        lambda: rest.fetch("/api/v1/backup/all").json["state"] != "running", "it does not end"
    )
    done = rest.fetch("/api/v1/backup/all").json
    assert done["state"] == "done", done
    stores = [Path(begun["path"], *folder, "store", "data.mdb") for folder in FOLDERS]
    assert sum([one.stat().st_size for one in stores]) == done["bytes"]


@pytest.mark.parametrize("version", [4, 5])
def test_of_clients_with_one_id_which_connect_at_once_one_stays(
    cluster: Cluster, version: int
) -> None:
    """Each shard may see another one first."""

    def connected(client_id: str, node: BrokerProcess) -> Wire:
        client = node.client(version)
        client.send(p.connect(client_id, version=version))
        client.receive()
        return client

    def is_served(client: Wire) -> bool:
        try:
            for number in range(6):
                client.publish(f"race/{number}", b"x", qos=1)
        except (WireError, OSError):
            return False
        return True

    with ThreadPoolExecutor(SHARDS) as threads:
        for number in range(10):
            name = f"twin-{version}-{number}"
            clients = list(threads.map(partial(connected, name), cluster.nodes))
            assert [is_served(client) for client in clients].count(True) == 1
            for client in clients:
                client.close()
