"""gRPC of the admin process over a fake broker: limits, failures, and what must agree."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from grpc_health.v1 import health_pb2

from queuelake import control_queues as structs
from queuelake.admin import auth
from queuelake.admin.grpc import health, queue_admin, server
from queuelake.admin.grpc.messages import ATTRIBUTES
from queuelake.admin.services import Services
from queuelake.broker.children import reserve
from queuelake.control import GrpcStart, Readiness
from queuelake.v1 import queue_admin_pb2 as pb2
from queuelake.v1 import queue_admin_pb2_grpc
from tests.api.grpc_client import GrpcClient, Refused
from tests.api.live import LiveAdmin, fetch, wait_until
from tests.harness.broker import ROOT

Health = health_pb2.HealthCheckResponse
ASKED = health_pb2.HealthCheckRequest()


class LiveGrpc:
    """The admin application over a fake broker, and a client with its key."""

    def __init__(self, data_dir: Path) -> None:
        self._reserved = reserve("grpc", "127.0.0.1", 0)
        host, self.port = self._reserved.getsockname()
        self.admin = LiveAdmin(data_dir, GrpcStart(host, self.port))
        self.client = GrpcClient(self.port, self.admin.key)

    def close(self) -> None:
        self.client.channel.close()
        self.admin.close()
        self._reserved.close()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveGrpc]:
    found = LiveGrpc(tmp_path)
    yield found
    found.close()


# The broker behind it


def test_health_follows_readiness(live: LiveGrpc) -> None:
    watch = live.client.health.Watch(ASKED)
    assert next(watch).status == Health.SERVING
    live.admin.broker.readiness = Readiness(ready=False, reasons=["no space"])
    assert next(watch).status == Health.NOT_SERVING
    assert live.client.health.Check(ASKED).status == Health.NOT_SERVING
    live.admin.broker.readiness = Readiness(ready=True)
    assert next(watch).status == Health.SERVING
    live.admin.broker_down()
    assert next(watch).status == Health.NOT_SERVING
    watch.cancel()


def test_a_broker_which_is_down_is_unavailable(live: LiveGrpc) -> None:
    live.admin.broker_down()
    with pytest.raises(Refused, match="no broker answers") as refusal:
        live.client.call("ListQueues")
    assert refusal.value.status == grpc.StatusCode.UNAVAILABLE
    assert refusal.value.code == "BROKER_DOWN"
    live.admin.broker_up()
    assert live.client.call("ListQueues").queues


def test_our_own_mistakes_are_not_shown(
    live: LiveGrpc, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(Services, "queue_stats", broken)
    with pytest.raises(Refused) as refusal:
        live.client.call("GetQueueStats", name="tasks/image")
    assert refusal.value.status == grpc.StatusCode.INTERNAL
    assert refusal.value.code == "INTERNAL_ERROR"
    assert str(refusal.value) == "the call failed; see the log of the admin process"
    assert "RuntimeError: secret" in caplog.text


# Limits


def test_wrong_keys_wait_together_with_those_of_http(
    live: LiveGrpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "SLOWED_MAX", 1)
    monkeypatch.setattr(auth, "WRONG_KEY_DELAY_S", 30.0)
    with GrpcClient(live.port, "a:b") as stranger:
        waiting = stranger.stub.ListQueues.future(
            pb2.ListQueuesRequest(), metadata=stranger.metadata
        )
        gate = live.admin.services.gate
        wait_until(lambda: gate._slowed == 1)
        with pytest.raises(Refused, match="come later") as refusal:
            stranger.call("ListQueues")
        assert refusal.value.status == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert fetch(live.admin.port, "/metrics", authorization="Bearer a:b").status == 429
        assert live.client.call("ListQueues").queues  # nobody else waits
        waiting.cancel()
        wait_until(lambda: gate._slowed == 0)


def test_without_a_key_no_call_waits_for_its_message(live: LiveGrpc) -> None:
    never = threading.Event()

    def silent() -> Iterator[bytes]:
        never.wait(30)
        yield b""

    with GrpcClient(live.port) as nobody:
        call = nobody.channel.stream_unary("/queuelake.v1.QueueAdmin/ListQueues")
        with pytest.raises(grpc.RpcError) as refusal:
            call(silent(), timeout=20)
        never.set()
    assert refusal.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_calls_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CALLS_MAX", 1)
    live = LiveGrpc(tmp_path)
    try:
        watch = live.client.health.Watch(ASKED)
        next(watch)
        with pytest.raises(Refused) as refusal:
            live.client.call("ListQueues")
        assert refusal.value.status == grpc.StatusCode.RESOURCE_EXHAUSTED
        watch.cancel()
    finally:
        live.close()


def test_watching_is_bounded(live: LiveGrpc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "WATCHES_MAX", 1)
    first = live.client.health.Watch(ASKED)
    assert next(first).status == Health.SERVING
    with pytest.raises(grpc.RpcError) as refusal:
        next(live.client.health.Watch(ASKED))
    assert refusal.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    first.cancel()


def test_without_its_port_the_rest_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        admin = LiveAdmin(tmp_path, GrpcStart(*taken.getsockname()))
        try:
            assert admin.fetch("/api/v1/status").status == 200
        finally:
            admin.close()
    assert "gRPC does not listen on 127.0.0.1:" in caplog.text


# What must agree


ANSWERS = {
    "ListQueues": structs.QueuePage,
    "GetQueue": structs.QueueInfo,
    "ConfigureQueue": structs.QueueConfigured,
    "DeleteQueue": structs.QueueDeleted,
    "GetQueueStats": structs.QueueStats,
    "ListConsumers": structs.ConsumerPage,
    "DeleteGroup": None,
    "PeekMessages": structs.MessagePage,
    "PublishMessage": None,
    "PurgeQueue": structs.Purged,
    "ListDeadLetters": structs.DeadLetterPage,
    "RetryDeadLetter": structs.Redriven,
    "DiscardDeadLetter": None,
    "RetryDeadLetters": structs.LettersDone,
    "DiscardDeadLetters": structs.LettersDone,
}
PARTS = {
    "QueueSummary": structs.QueueSummary,
    "PartitionStats": structs.PartitionStats,
    "GroupStats": structs.GroupStats,
    "Rates": structs.Rates,
    "Consumer": structs.ConsumerInfo,
    "Message": structs.QueueMessage,
    "DeadLetter": structs.DeadLetter,
    "LetterChoice": structs.LetterChoice,
}


def test_every_method_is_answered() -> None:
    methods = {method.name for method in queue_admin.SERVICE.methods}
    assert methods == set(queue_admin.CALLS) == set(ANSWERS)


def test_every_field_of_an_answer_is_in_its_message() -> None:
    messages = {
        method.output_type: ANSWERS[method.name] for method in queue_admin.SERVICE.methods
    } | {pb2.DESCRIPTOR.message_types_by_name[name]: kind for name, kind in PARTS.items()}
    for message, kind in messages.items():
        shown = {ATTRIBUTES.get(field.name, field.name) for field in message.fields}
        assert shown == field_names(kind), message.name


def field_names(kind: type[Any] | None) -> set[str]:
    return set() if kind is None else {field.name for field in msgspec.structs.fields(kind)}


@pytest.mark.skipif(util.find_spec("grpc_tools") is None, reason="needs grpcio-tools")
def test_the_generated_modules_are_those_of_the_proto(tmp_path: Path) -> None:
    tools = metadata.version("grpcio-tools")
    if tools != queue_admin_pb2_grpc.GRPC_GENERATED_VERSION:
        pytest.skip(f"made by another version than {tools}")
    command = [sys.executable, ROOT / "scripts" / "protos.py", tmp_path]
    subprocess.run(command, check=True)
    made = sorted((tmp_path / "queuelake" / "v1").iterdir())
    assert len(made) == 3
    for path in made:
        kept = ROOT / "src" / "queuelake" / "v1" / path.name
        assert kept.read_text() == path.read_text(), "run scripts/protos"
