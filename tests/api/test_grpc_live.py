"""gRPC of a real broker: the same data as REST, the same keys, health and reflection."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from queuelake.admin.bodies import MESSAGE_BYTES_MAX
from queuelake.apikey import add_key, read_api_key
from tests.api.grpc_client import Curl, GrpcClient, Refused, as_rest
from tests.api.live import wait_until
from tests.api.queue_rest import Connect, Rest, consume, reject_one
from tests.conftest import BrokerFactory
from tests.harness.broker import ROOT, BrokerError, BrokerProcess, package_root
from tests.harness.processes import alive, children
from tests.interop.certificates import Authority
from tests.queues.client import SUCCESS

GRPC = {"grpc.enabled": True}
SERVICE = "queuelake.v1.QueueAdmin"
HEALTH = "grpc.health.v1.Health"
KEY_REFUSALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
READING = {
    *("ListQueues", "GetQueue", "GetQueueStats", "ListConsumers", "PeekMessages"),
    *("ListDeadLetters", "ServerReflectionInfo"),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("grpc"), GRPC).start()
    yield process
    process.stop()


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[GrpcClient]:
    with GrpcClient(broker.grpc_port, read_api_key(broker.data_dir)) as found:
        yield found


def keyed(broker: BrokerProcess, key: str | None) -> GrpcClient:
    return GrpcClient(broker.grpc_port, key)


# The same data as REST


def test_every_answer_is_that_of_rest(
    client: GrpcClient, rest: Rest, connect: Connect, name: str
) -> None:
    rest.put(name, partitions=2, retry_policy={"max_retries": 3})
    reject_one(connect, name, "bad", one="1", two="2")
    worker = consume(connect, name)
    for number in range(3):
        assert worker.publish(name, f"m{number}", user={"partition-key": f"k{number}"}) == SUCCESS
    for _ in range(3):
        worker.receive()
    for method, path in (
        ("GetQueue", ""),
        ("ListConsumers", "/consumers"),
        ("PeekMessages", "/messages"),
        ("ListDeadLetters", "/dlq"),
    ):
        shown = as_rest(client.call(method, name=name))
        assert shown == rest.queue(name, path).json, method
        assert shown.get("messages") != [], method
    stats, expected = as_rest(client.call("GetQueueStats", name=name)), rest.queue(name, "/stats")
    assert stats.pop("rates").keys() == expected.json["rates"].keys()
    assert stats == {key: value for key, value in expected.json.items() if key != "rates"}
    assert (stats["in_flight"], stats["dlq"]) == (3, 1)
    listed = as_rest(client.call("ListQueues", prefix=name))
    assert listed == rest.fetch(f"/api/v1/queues?prefix={name}").json
    assert [one["name"] for one in listed["queues"]] == [f"$queue/{name}"]


def test_a_queue_is_created_changed_and_deleted(client: GrpcClient, rest: Rest, name: str) -> None:
    made = client.call("ConfigureQueue", name=name, settings={"partitions": 2})
    assert made.created
    changed = client.call(
        "ConfigureQueue",
        name=f"$queue/{name}",
        settings={"retry_policy": {"backoff_multiplier": 1.5}, "topics": ["a/+"]},
    )
    assert not changed.created
    assert as_rest(changed.queue) == rest.queue(name).json
    assert as_rest(changed.queue)["configured"]["topics"] == ["a/+"]
    assert client.call("DeleteQueue", name=f"$queue${name.replace('/', '$')}").unarchived == 0
    assert rest.queue(name).status == 404


def test_a_message_is_published_looked_at_and_purged(client: GrpcClient, name: str) -> None:
    client.call("ConfigureQueue", name=name, settings={"partitions": 1})
    client.call(
        "PublishMessage",
        name=name,
        payload=b"\0\xff",
        key="k",
        properties={"a": "1"},
        content_type="x/y",
    )
    client.call("PublishMessage", name=name, payload=b"")
    first, second = client.call("PeekMessages", name=name, partition=0).messages
    assert (first.payload, first.key, first.content_type) == (b"\0\xff", "k", "x/y")
    assert ("a", "1") in [(pair.name, pair.value) for pair in first.properties]
    assert (second.payload, second.HasField("content_type")) == (b"", False)
    later = client.call("PeekMessages", name=name, from_offset=second.offset)
    assert [one.id for one in later.messages] == [second.id]
    assert client.call("PurgeQueue", name=name).purged == 2
    assert not client.call("PeekMessages", name=name).messages


def test_dead_letters_one_by_one_and_by_filter(
    client: GrpcClient, connect: Connect, name: str
) -> None:
    client.call("ConfigureQueue", name=name, settings={"partitions": 1})
    for number in range(6):
        reject_one(connect, name, f"m{number}", **{"partition-key": "ab"[number % 2]})

    def left() -> list[bytes]:
        return [one.payload for one in client.call("ListDeadLetters", name=name).messages]

    ids = [one.id for one in client.call("ListDeadLetters", name=name).messages]
    assert client.call("RetryDeadLetter", name=name, id=ids[0]).queue == f"$queue/{name}"
    client.call("DiscardDeadLetter", name=name, id=ids[1])
    assert left() == [b"m2", b"m3", b"m4", b"m5"]
    done = client.call("RetryDeadLetters", name=name, choice={"key": "a", "limit": 1})
    assert (done.done, done.more, left()) == (1, True, [b"m3", b"m4", b"m5"])
    done = client.call("DiscardDeadLetters", name=name, choice={"key": "b", "reason": "rejected"})
    assert (done.done, done.more, left()) == (2, False, [b"m4"])
    assert client.call("DiscardDeadLetters", name=name).done == 1
    assert client.call("GetQueueStats", name=name).depth == 2


def test_pages_follow_each_other(client: GrpcClient, name: str) -> None:
    for number in range(5):
        settings = {"type": "stream" if number == 3 else "classic"}
        client.call("ConfigureQueue", name=f"{name}/{number}", settings=settings)

    def pages(**wanted: str) -> list[list[str]]:
        found, token = [], ""
        while not found or token:
            page = client.call("ListQueues", page_size=2, page_token=token, prefix=name, **wanted)
            found.append([queue.name[-1] for queue in page.queues])
            token = page.next_page_token
        return found

    assert pages() == [["0", "1"], ["2", "3"], ["4"]]
    assert pages(type="stream") == [[], ["3"], []]


# What is refused


@pytest.mark.parametrize(
    ("method", "fields", "status", "code", "words"),
    [
        ("GetQueue", {"name": "no/such"}, "NOT_FOUND", "NOT_FOUND", "$queue/no/such"),
        ("GetQueue", {}, "INVALID_ARGUMENT", "BAD_REQUEST", "name"),
        ("ListQueues", {"page_size": 1001}, "INVALID_ARGUMENT", "BAD_REQUEST", "1001, may be 1"),
        ("ListQueues", {"page_size": -1}, "INVALID_ARGUMENT", "BAD_REQUEST", "limit is -1"),
        ("ListQueues", {"type": "lazy"}, "INVALID_ARGUMENT", "BAD_REQUEST", "classic or stream"),
        ("PeekMessages", {"from_offset": -1}, "INVALID_ARGUMENT", "BAD_REQUEST", "from is -1"),
        ("PeekMessages", {"partition": 99}, "INVALID_ARGUMENT", "BAD_REQUEST", "partition is 99"),
        ("PeekMessages", {"page_token": "x"}, "INVALID_ARGUMENT", "BAD_REQUEST", "cursor is 'x'"),
        ("RetryDeadLetter", {"id": "x"}, "NOT_FOUND", "NOT_FOUND", "no dead letter 'x'"),
        ("DiscardDeadLetter", {}, "NOT_FOUND", "NOT_FOUND", "no dead letter ''"),
        ("DeleteGroup", {}, "NOT_FOUND", "NOT_FOUND", "has no group ''"),
        (
            "RetryDeadLetters",
            {"choice": {"limit": 0}},
            *("INVALID_ARGUMENT", "BAD_REQUEST", "the body is not as it should be"),
        ),
        (
            "ConfigureQueue",
            {"settings": {"a": "x" * 70_000}},
            *("RESOURCE_EXHAUSTED", "CONTENT_TOO_LARGE", "limit of 65536 bytes"),
        ),
        (
            "ConfigureQueue",
            {"settings": {"partitions": float("nan")}},
            *("INVALID_ARGUMENT", "BAD_REQUEST", "settings: "),
        ),
        (
            "PublishMessage",
            {"payload": bytes(2_000_000)},
            *("INVALID_ARGUMENT", "BAD_REQUEST", "2000000"),
        ),
        (
            "PublishMessage",
            {"payload": bytes(MESSAGE_BYTES_MAX + 1)},
            *("RESOURCE_EXHAUSTED", None, "larger than max"),
        ),
    ],
)
def test_a_refusal_has_a_status_a_line_and_a_code(
    client: GrpcClient, method: str, fields: dict[str, Any], status: str, code: str, words: str
) -> None:
    if method not in ("GetQueue", "ListQueues"):
        client.call("ConfigureQueue", name="refusals", settings={"partitions": 1})
        fields = {"name": "refusals"} | fields
    with pytest.raises(Refused) as refusal:
        client.call(method, **fields)
    assert (refusal.value.status.name, refusal.value.code) == (status, code)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_wrong_settings_are_refused_in_the_words_of_rest(
    client: GrpcClient, rest: Rest, name: str
) -> None:
    with pytest.raises(Refused) as refusal:
        client.call("ConfigureQueue", name=name, settings={"partitions": 0, "color": "red"})
    words = rest.put(name, partitions=0, color="red").json["message"]
    assert sorted(str(refusal.value).split("; ")) == sorted(words.split("; "))  # in any order


def test_a_group_in_use_stays(client: GrpcClient, connect: Connect, name: str) -> None:
    client.call("ConfigureQueue", name=name, settings={"partitions": 1})
    worker = consume(connect, name, "workers")
    with pytest.raises(Refused, match="has 1 consumers") as refusal:
        client.call("DeleteGroup", name=name, group="workers")
    assert refusal.value.status == grpc.StatusCode.FAILED_PRECONDITION
    worker.disconnect()
    client.call("DeleteGroup", name=name, group="workers")
    assert not client.call("GetQueueStats", name=name).groups


def test_the_example_of_the_documentation_runs(
    client: GrpcClient,
    broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client.call("ConfigureQueue", name="tasks/image", settings={"partitions": 1})
    client.call("PublishMessage", name="tasks/image", payload=b"one")
    page = (ROOT / "docs" / "grpc.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "data").symlink_to(broker.data_dir)
    monkeypatch.chdir(tmp_path)
    exec(example.replace("18084", str(broker.grpc_port)), {})
    assert capsys.readouterr().out == "$queue/tasks/image 1\n1\n"


# Keys


def test_no_method_of_any_service_answers_without_the_right_key(
    client: GrpcClient, broker: BrokerProcess
) -> None:
    viewer_key = add_key(broker.data_dir, "walker", "viewer")
    walked = list(Curl(client).methods())
    assert {service for service, _ in walked} == {
        *(SERVICE, HEALTH, "grpc.reflection.v1.ServerReflection"),
        "grpc.reflection.v1alpha.ServerReflection",
    }
    paths = [path for service, path in walked if service != HEALTH]
    assert len(paths) == 17
    with (
        keyed(broker, None) as nobody,
        keyed(broker, "walker:wrong") as stranger,
        keyed(broker, viewer_key) as viewer,
        ThreadPoolExecutor(len(paths)) as threads,
    ):

        def refusals(caller: GrpcClient) -> dict[str, Refused]:
            """By path, of those which are refused for their key."""

            def refusal(path: str) -> Refused | None:
                try:
                    caller.raw(path)
                except Refused as error:
                    return error
                return None

            answers = zip(paths, threads.map(refusal, paths), strict=True)
            return {
                path: error
                for path, error in answers
                if error is not None and error.status in KEY_REFUSALS
            }

        for caller, code in ((nobody, "API_KEY_MISSING"), (stranger, "BAD_API_KEY")):
            found = refusals(caller)
            assert set(found) == set(paths)
            assert {error.status.name for error in found.values()} == {"UNAUTHENTICATED"}
            assert {error.code for error in found.values()} == {code}
        found = refusals(viewer)
        assert {path.rpartition("/")[2] for path in paths if path not in found} == READING
        assert {error.status.name for error in found.values()} == {"PERMISSION_DENIED"}
        words = {"API key 'walker' has the role viewer; this needs operator"}
        assert {str(error) for error in found.values()} == words


def test_without_a_key_nobody_learns_which_methods_exist(broker: BrokerProcess) -> None:
    with keyed(broker, None) as nobody:
        for path in (f"/{SERVICE}/NoSuch", "/no.Service/Method"):
            with pytest.raises(Refused) as refusal:
                nobody.raw(path)
            assert refusal.value.status == grpc.StatusCode.UNAUTHENTICATED


def test_basic_is_accepted_as_well(broker: BrokerProcess, rest: Rest) -> None:
    with keyed(broker, None) as caller:
        caller.metadata = (("authorization", rest._authorization),)
        assert caller.call("ListQueues", page_size=1) is not None


def test_the_audit_names_the_key(broker: BrokerProcess, rest: Rest, name: str) -> None:
    with keyed(broker, add_key(broker.data_dir, "by-grpc", "operator")) as operator:
        operator.call("ConfigureQueue", name=name, settings={"partitions": 3})
    (entry,) = rest.fetch("/api/v1/audit?caller=by-grpc").json["entries"]
    assert (entry["operation"], entry["target"]) == ("queue_configure", name)
    assert entry["arguments"] == {"changes": {"partitions": 3}}


# Health and reflection


def test_health_is_open_to_everybody(broker: BrokerProcess) -> None:
    with keyed(broker, None) as probe:
        for service in ("", SERVICE):
            asked = health_pb2.HealthCheckRequest(service=service)
            assert probe.health.Check(asked).status == health_pb2.HealthCheckResponse.SERVING
        known = probe.health.List(health_pb2.HealthListRequest()).statuses
        assert set(known) == {"", SERVICE}
        with pytest.raises(grpc.RpcError) as refusal:
            probe.health.Check(health_pb2.HealthCheckRequest(service="other"))
        assert refusal.value.code() == grpc.StatusCode.NOT_FOUND
        watch = probe.health.Watch(health_pb2.HealthCheckRequest(service="other"))
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        watch.cancel()


def test_a_program_which_knows_only_reflection_can_call_everything(
    client: GrpcClient, rest: Rest, name: str
) -> None:
    curl = Curl(client)
    assert SERVICE in curl.services()
    tree = {"name": name, "settings": {"partitions": 2}}
    assert curl.call(SERVICE, "ConfigureQueue", tree)["created"]
    curl.call(SERVICE, "PublishMessage", {"name": name, "payload": "aGk="})
    (queue,) = curl.call(SERVICE, "ListQueues", {"prefix": name})["queues"]
    assert (queue["name"], queue["depth"]) == (f"$queue/{name}", "1")
    stats = curl.call(SERVICE, "GetQueueStats", {"name": name})
    assert stats["enqueued_total"] == str(rest.queue(name, "/stats").json["enqueued_total"])


# The process


def test_the_broker_says_where_it_is(broker: BrokerProcess, rest: Rest) -> None:
    url = f"grpc://127.0.0.1:{broker.grpc_port}"
    assert url in broker.urls
    assert rest.fetch("/api/v1/status").json["addresses"]["grpc"] == url


def test_a_killed_admin_process_comes_back_on_its_port(
    broker: BrokerProcess, client: GrpcClient
) -> None:
    (pid,) = children(broker.pid, "queuelake.admin")
    client.call("ListQueues")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid))
    with keyed(broker, read_api_key(broker.data_dir)) as later:
        later.call("ListQueues")  # waits until somebody listens again
    assert children(broker.pid, "queuelake.admin") != [pid]


def test_tls(fresh_broker: BrokerFactory, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    server = authority.server()
    files = {"grpc.certificate": str(server.certificate), "grpc.key": str(server.key)}
    broker = fresh_broker(GRPC | files)
    assert f"grpcs://127.0.0.1:{broker.grpc_port}" in broker.urls
    key, roots = read_api_key(broker.data_dir), authority.certificate.read_bytes()
    with GrpcClient(broker.grpc_port, key, roots) as caller:
        assert not caller.call("ListQueues").queues
        watch = caller.health.Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        broker.stop()  # ends cleanly and in time, also while somebody watches
        told = [answer.status for answer in watch]
        assert told == [health_pb2.HealthCheckResponse.NOT_SERVING]


def test_a_port_which_is_taken_stops_the_start(
    broker: BrokerProcess, fresh_broker: BrokerFactory
) -> None:
    port = broker.grpc_port
    line = f"grpc.bind/grpc.port: cannot listen on 127.0.0.1:{port}: Address already in use"
    with pytest.raises(BrokerError, match=line):
        fresh_broker(GRPC | {"grpc.port": port})


def test_without_the_library_a_line_says_what_to_install(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'grpc_health' else real(name, *a)\n"
    )
    path = os.pathsep.join([str(tmp_path), package_root()])
    broker = fresh_broker(GRPC, environment={"PYTHONPATH": path})
    assert not [url for url in broker.urls if url.startswith("grpc")]
    assert "pip install 'queuelake[grpc]'" in broker.stderr_tail()
    assert Rest(broker).fetch("/api/v1/status").status == 200
