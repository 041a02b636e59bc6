"""What people operate a cluster with: REST, commands, metrics and the console, on three nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queuelake.apikey import add_key
from queuelake.cli import main as cli
from queuelake.control_audit import AUDIT, AuditPage
from tests.api.live import basic, fetch
from tests.api.queue_rest import Rest
from tests.api.test_metrics import DOCUMENTED
from tests.cluster.conftest import ConnectTo
from tests.console.browser import Browsing, Console, launched
from tests.harness.cluster import Cluster
from tests.queues.client import SUCCESS

CLUSTER = "/api/v1/cluster"

Run = Callable[..., str]
ConsoleOf = Callable[[int], Console]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"http.enabled": True, "grpc.enabled": False, "flight.enabled": False}
    with Cluster(tmp_path_factory.mktemp("operated"), settings) as running:
        yield running


@pytest.fixture
def run(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """What a command about a node prints; it ends with `code`."""

    def run_command(node: int, *arguments: str, code: int = 0) -> str:
        monkeypatch.setenv("QUEUELAKE__DATA_DIR", str(cluster.nodes[node].data_dir))
        done = cli.run(["cluster", *arguments])
        captured = capsys.readouterr()
        assert done == code, captured
        return captured.out if code == 0 else captured.err + captured.out

    return run_command


@pytest.fixture(scope="module")
def browsing() -> Iterator[Browsing]:
    with launched() as browsing:
        yield browsing


@pytest.fixture
def console_of(browsing: Browsing, cluster: Cluster) -> Iterator[ConsoleOf]:
    opened: list[Console] = []

    def open_console(node: int) -> Console:
        opened.append(Console(browsing, cluster.nodes[node]))
        return opened[-1]

    yield open_console
    for console in opened:
        console.close()


def rest_of(cluster: Cluster, node: int) -> Rest:
    return Rest(cluster.nodes[node])


def post(rest: Rest, path: str, body: dict[str, Any] | None = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    return rest.fetch(f"{CLUSTER}{path}", method="POST", body=content)


@pytest.mark.rule("section 12")
def test_every_node_tells_who_is_there_and_who_owns_what(cluster: Cluster) -> None:
    owner = f"q{cluster.wait_for_owner()}"
    for node in range(3):
        rest = rest_of(cluster, node)
        found = rest.fetch(CLUSTER).json
        assert found["node"] == f"q{node}"
        assert found["connected"]
        roles = {one["node"]: one["role"] for one in found["members"]}
        expected = {f"q{index}": "replica" for index in range(3)} | {owner: "owner"}
        assert roles == expected
        shards = rest.fetch(f"{CLUSTER}/shards").json["shards"]
        assert [one["owner"] for one in shards] == [owner]
        members = rest.fetch(f"{CLUSTER}/members").json["members"]
        assert [one["alive"] for one in members] == [True] * 3


def test_every_node_tells_its_own_addresses_with_what_the_owner_counts(
    cluster: Cluster, connect_to: ConnectTo
) -> None:
    owner = cluster.wait_for_owner()
    connect_to(owner)
    for node in range(3):
        status = rest_of(cluster, node).fetch("/api/v1/status").json
        assert status["addresses"]["mqtt"].endswith(f":{cluster.nodes[node].mqtt_port}")
        assert status["connections"] >= 1


def test_commands_show_the_cluster_from_any_node(cluster: Cluster, run: Run) -> None:
    owner = f"q{cluster.wait_for_owner()}"
    for node in range(3):
        shown = run(node, "status")
        assert shown.startswith(f"cluster queuelake, asked at q{node}; owner: {owner}\n")
        assert shown.count("replica") == 2
    assert [one["node"] for one in json.loads(run(0, "members", "--json"))] == ["q0", "q1", "q2"]
    assert "q2" in run(0, "members")
    assert json.loads(run(1, "shards", "--json"))[0]["owner"] == owner
    assert owner in run(1, "shards")
    assert json.loads(run(2, "status", "--json"))["node"] == "q2"


def test_stores_are_compared(cluster: Cluster, run: Run) -> None:
    replica = (cluster.wait_for_owner() + 1) % 3
    cluster.wait_until_equal()
    assert run(replica, "check").rstrip().endswith(": equal")
    checked = json.loads(run(replica, "check", "--json"))
    assert sorted(checked["hashes"]) == ["q0", "q1", "q2"]
    assert post(rest_of(cluster, replica), "/check").json["equal"]


@pytest.mark.rule("section 12")
def test_one_shard_needs_no_balance(cluster: Cluster, run: Run) -> None:
    assert run(0, "rebalance") == "nothing to move\n"
    assert post(rest_of(cluster, 1), "/rebalance").json == {"moved": []}


@pytest.mark.rule("section 12")
def test_a_node_is_made_the_owner_from_any_node_and_the_audit_says_by_whom(
    cluster: Cluster, run: Run
) -> None:
    owner = cluster.wait_for_owner()
    heir, third = (owner + 1) % 3, (owner + 2) % 3
    assert run(third, "transfer", f"q{heir}", "--yes") == f"the owner is q{heir}\n"
    assert cluster.wait_for_owner() == heir
    assert "there is no node 'q7'" in run(third, "transfer", "q7", "--yes", code=1)
    moved = post(rest_of(cluster, third), "/transfer")
    assert moved.json["owner"] in {f"q{owner}", f"q{third}"}
    cluster.wait_for_owner(other_than=heir)
    entries = cluster.ask(third, AUDIT, AuditPage, operation="cluster_transfer").entries
    assert [(one.target, one.refused[:13]) for one in reversed(entries)] == [
        (f"q{heir}", ""),
        ("q7", "there is no n"),
        ("", ""),
    ]


def test_a_node_which_is_the_owner_again_answers_as_it_is_now(
    cluster: Cluster, connect_to: ConnectTo
) -> None:
    owner = cluster.wait_for_owner()
    heir, third = (owner + 1) % 3, (owner + 2) % 3
    rest = rest_of(cluster, third)
    assert rest.fetch("/api/v1/queues").status == 200  # through a tunnel which stays open
    for node in (heir, owner):
        assert post(rest, "/transfer", {"node": f"q{node}"}).json["owner"] == f"q{node}"
        cluster.wait_for_owner(other_than=heir + owner - node)
    assert connect_to(third).publish("made-later", "x") == SUCCESS
    assert rest.queue("made-later").status == 200


def test_a_drained_node_is_no_owner_until_that_ends(cluster: Cluster, run: Run) -> None:
    owner = cluster.wait_for_owner()
    assert run(owner, "drain", "--yes") == f"q{owner} is drained; it may be stopped\n"
    other = cluster.wait_for_owner(other_than=owner)
    ready = rest_of(cluster, owner).fetch("/readyz")
    assert ready.status == 503
    assert "cluster: this node is being drained" in ready.json["reasons"]
    refused = run(other, "transfer", f"q{owner}", "--yes", code=1)
    assert f"node 'q{owner}' is draining" in refused
    assert run(owner, "drain", "--end") == f"q{owner} may be the owner again\n"
    cluster.eventually(
        lambda: rest_of(cluster, owner).fetch("/readyz").status == 200, "it is not ready again"
    )


def test_the_last_node_which_can_be_the_owner_is_not_drained(cluster: Cluster) -> None:
    """Also right after the others were: they tell it at once, not with their next beat."""
    owner = cluster.wait_for_owner()
    others = [rest_of(cluster, (owner + step) % 3) for step in (1, 2)]
    for other in others:
        assert post(other, "/drain", {"draining": True}).status == 200
    refused = post(rest_of(cluster, owner), "/drain", {"draining": True})
    assert (refused.status, refused.json["code"]) == (409, "CONFLICT")
    assert cluster.wait_for_owner() == owner
    for other in others:
        assert post(other, "/drain", {"draining": False}).status == 200
    assert post(rest_of(cluster, owner), "/transfer", {}).status == 200


def test_only_an_admin_changes_and_everybody_reads(cluster: Cluster) -> None:
    port = cluster.nodes[0].http_port
    key = basic(add_key(cluster.nodes[0].data_dir, "operator-of-nodes", "operator"))
    assert fetch(port, CLUSTER, authorization=key).status == 200
    for method, path in (
        ("POST", "/transfer"),
        ("POST", "/rebalance"),
        ("POST", "/drain"),
        ("POST", "/check"),
        ("DELETE", "/members/q1"),
    ):
        answer = fetch(port, CLUSTER + path, method=method, authorization=key)
        assert (answer.status, answer.json["code"]) == (403, "FORBIDDEN")


def test_wrong_bodies_are_refused(cluster: Cluster) -> None:
    rest = rest_of(cluster, 0)
    for path, body in (("/drain", {"draining": 1}), ("/transfer", {"nod": "q1"})):
        answer = post(rest, path, body)
        assert (answer.status, answer.json["code"]) == (400, "BAD_REQUEST")


def test_metrics_tell_who_owns_and_who_is_behind(cluster: Cluster) -> None:
    owner = cluster.wait_for_owner()
    owners = []
    for node in range(3):
        samples = rest_of(cluster, node).samples()
        told = {name[0] for name in samples if name[0].startswith("queuelake_cluster_")}
        assert told == {one for one in DOCUMENTED if one.startswith("queuelake_cluster_")}
        owners.append(samples[("queuelake_cluster_owner",)])
        assert {("queuelake_cluster_lag", f"q{index}") for index in range(3)} <= samples.keys()
        assert samples[("queuelake_cluster_epoch",)] >= 1
        assert samples[("queuelake_cluster_position",)] >= 1
    assert owners == [float(node == owner) for node in range(3)]
    failovers = rest_of(cluster, owner).samples()[("queuelake_cluster_failovers_total",)]
    assert failovers >= 1


@pytest.mark.rule("section 9")
def test_all_queues_are_replicated_and_none_can_be_left_out(
    cluster: Cluster, connect_to: ConnectTo
) -> None:
    rest = rest_of(cluster, 1)
    assert connect_to(1).publish("kept-by-all", "x") == SUCCESS
    queue = rest.queue("kept-by-all")
    assert queue.status == 200, queue
    assert queue.json["settings"]["replication"] == "quorum"
    assert rest.put("said-so", replication="quorum").status == 201
    refused = rest.put("left-out", replication="none")
    assert refused.status == 400
    assert "a cluster replicates everything" in refused.json["message"]


@pytest.mark.rule("section 12")
def test_a_node_which_will_not_come_back_is_removed(cluster: Cluster, run: Run) -> None:
    owner = cluster.wait_for_owner()
    gone, third = (owner + 1) % 3, (owner + 2) % 3
    assert "stop it first" in run(owner, "remove", f"q{gone}", "--yes", code=1)
    assert "there is no node 'q9'" in run(owner, "remove", "q9", "--yes", code=1)
    cluster.kill_node(gone)

    def is_dead() -> bool:
        known = [one for node in (owner, third) for one in cluster.info(node).members]
        return not any(one.alive for one in known if one.node == f"q{gone}")

    cluster.eventually(is_dead, "it is alive")
    assert run(third, "remove", f"q{gone}", "--yes") == f"removed q{gone}\n"
    names = {f"q{owner}", f"q{third}"}  # the owner, who keeps the log, has heard of it
    cluster.eventually(
        lambda: {one.node for one in cluster.info(owner).members} == names, "it is not forgotten"
    )
    cluster.nodes[gone].start()
    cluster.wait_until_equal()


def test_the_console_shows_the_nodes_and_a_viewer_changes_nothing(
    cluster: Cluster, console_of: ConsoleOf
) -> None:
    owner = cluster.wait_for_owner()
    page = console_of((owner + 1) % 3)("viewer")
    page.locator('.ql-nav[data-path="/cluster"]').click()
    page.get_by_role("heading", name="Cluster", exact=True).wait_for()
    page.get_by_role("row", name=f"q{owner} owner").wait_for()
    for node in ((owner + 1) % 3, (owner + 2) % 3):
        page.get_by_role("row", name=f"q{node} replica").wait_for()
    for name in ("Make owner", "Drain this node", "Compare stores"):
        assert page.get_by_role("button", name=name).count() == 0


def test_an_admin_compares_drains_and_hands_on_in_the_console(
    cluster: Cluster, console_of: ConsoleOf
) -> None:
    owner = cluster.wait_for_owner()
    here, third = (owner + 1) % 3, (owner + 2) % 3
    page = console_of(here)("admin", "/cluster")
    page.get_by_role("button", name="Compare stores").click()
    page.get_by_role("dialog").get_by_role("button", name="Compare").click()
    page.get_by_role("heading", name="All stores are equal").wait_for()
    page.get_by_role("button", name="Close").click()

    page.get_by_role("button", name="Drain this node").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    row = page.get_by_role("row", name=f"q{here} replica, draining")
    row.wait_for()
    assert row.get_by_role("button", name="Make owner").count() == 0
    page.get_by_role("button", name="End draining").click()
    row.wait_for(state="detached")

    row = page.get_by_role("row", name=f"q{third}")
    row.get_by_role("button", name="Make owner").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("All clients lose their connections").wait_for()
    dialog.get_by_role("button", name="Make it the owner").click()
    page.get_by_role("row", name=f"q{third} owner").wait_for()
    assert cluster.wait_for_owner() == third
