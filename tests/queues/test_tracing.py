"""Traces of a real broker, as a collector gets them over OTLP."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from queuelake.broker import trace_export
from queuelake.broker.server import Server
from queuelake.broker.trace_export import TraceExport
from queuelake.broker.tracing import Context, Span
from queuelake.errors import ConfigError
from queuelake.settings import Otel, Settings
from tests.conftest import BrokerFactory
from tests.queues.client import SUCCESS, QueueClient

TRACE = "0af7651916cd43dd8448eb211c80319c"
PUBLISHER = "b7ad6b7169203331"


class Collector:
    """Takes spans over HTTP; `status` is what it answers."""

    def __init__(self) -> None:
        self.status = 200
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.came = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(body)
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self.came:
            for resource in request.resource_spans:
                found = {one.key: one.value.string_value for one in resource.resource.attributes}
                self.services.add(found["service.name"])
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
            self.came.notify_all()

    def wait_for(self, count: int) -> list[Any]:
        with self.came:
            assert self.came.wait_for(lambda: len(self.spans) >= count, 20), self.spans
            return list(self.spans)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def admin_process() -> bool:
    return False


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.close()


def test_a_collector_gets_one_trace_from_publish_over_two_attempts_to_ack(
    collector: Collector, fresh_broker: BrokerFactory
) -> None:
    broker = fresh_broker(
        {
            "otel.enabled": True,
            "otel.endpoint": collector.endpoint,
            "otel.service_name": "orders",
        }
    )
    client = QueueClient(broker.client(), "worker")
    client.wire.connect("worker")
    assert client.subscribe("tasks", group="g") < 0x80
    sent = {"traceparent": f"00-{TRACE}-{PUBLISHER}-01", "tracestate": "vendor=1"}
    assert client.publish("tasks", "work", user=sent) == SUCCESS
    first = client.receive()
    assert client.nack(first) == SUCCESS
    second = client.receive()
    assert client.ack(second) == SUCCESS
    spans = collector.wait_for(3)
    client.wire.close()
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert {span.trace_state for span in spans} == {"vendor=1"}
    assert collector.services == {"orders"}
    [publish] = [span for span in spans if span.name == "publish $queue/tasks"]
    deliveries = [span for span in spans if span.name == "deliver $queue/tasks"]
    assert publish.parent_span_id.hex() == PUBLISHER
    assert [span.parent_span_id for span in deliveries] == [publish.span_id] * 2
    assert [[event.name for event in span.events] for span in deliveries] == [["nack"], ["ack"]]
    attempts = [
        {one.key: one.value.int_value for one in span.attributes}["queuelake.attempt"]
        for span in deliveries
    ]
    assert attempts == [1, 2]
    # Each attempt carries the traceparent of its own span.
    for delivery, span in zip((first, second), deliveries, strict=True):
        assert delivery.properties["traceparent"] == f"00-{TRACE}-{span.span_id.hex()}-01"


async def test_without_the_packages_the_broker_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "queuelake.broker.trace_export", None)
    settings = Settings(data_dir=str(tmp_path), otel=Otel(enabled=True))
    with pytest.raises(ConfigError, match=r"pip install 'queuelake\[otel\]'"):
        await Server(settings, {}).serve()


SPAN = Span("publish $queue/tasks", Context(1, 2, ""), 3, 1000, 2000, {})


def test_spans_which_a_collector_refuses_are_counted(collector: Collector) -> None:
    collector.status = 400
    export = TraceExport(Otel(endpoint=collector.endpoint))
    export.put(SPAN)
    export.close()
    assert export.counts() == {"exported": 0, "failed": 1, "dropped": 0}


def test_spans_above_the_limit_are_dropped_and_counted(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_export, "WAITING_MAX", 2)
    monkeypatch.setattr(trace_export, "EVERY_S", 60.0)
    export = TraceExport(Otel(endpoint=collector.endpoint))
    for _ in range(3):
        export.put(SPAN)
    export.close()
    assert export.counts() == {"exported": 2, "failed": 0, "dropped": 1}
