"""Spans on their way to a collector, over OTLP (HTTP): everything here happens in one thread.

The loop only puts records into a bounded line. What does not fit, because the collector is slow or
away, is counted and forgotten: no message waits for its trace. Headers and certificates are taken
from the environment as OpenTelemetry names them (`OTEL_EXPORTER_OTLP_HEADERS`, ...).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from queuelake import __version__
from queuelake.broker.tracing import Context, Span
from queuelake.settings import Otel

WAITING_MAX: Final = 20_000
BATCH_SPANS: Final = 512
EVERY_S: Final = 1.0
TIMEOUT_S: Final = 5
CLOSE_TIMEOUT_S: Final = 3.0

log = logging.getLogger("queuelake.tracing")


class TraceExport:
    """Where spans are put; `close` sends what is left."""

    def __init__(self, settings: Otel) -> None:
        self._endpoint = settings.endpoint
        self._resource = Resource.create(
            {"service.name": settings.service_name, "service.version": __version__}
        )
        self._scope = InstrumentationScope("queuelake", __version__)
        # It says each failure in many lines; here is one for many failures.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._exporter = OTLPSpanExporter(endpoint=settings.endpoint, timeout=TIMEOUT_S)
        self._waiting: deque[Span] = deque()
        self._counts = {"exported": 0, "failed": 0, "dropped": 0}
        self._fails = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def put(self, span: Span) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._counts["dropped"] += 1
        else:
            self._waiting.append(span)

    def counts(self) -> dict[str, int]:
        return dict(self._counts)

    def close(self) -> None:
        self._closing.set()
        self._thread.join(CLOSE_TIMEOUT_S)  # a collector which is away must not hold up the end

    # In the thread

    def _run(self) -> None:
        while not self._closing.wait(EVERY_S):
            self._send_all()
        self._send_all()
        self._exporter.shutdown()

    def _send_all(self) -> None:
        while self._waiting:
            count = min(BATCH_SPANS, len(self._waiting))
            spans = [self._span(self._waiting.popleft()) for _ in range(count)]
            try:
                sent = self._exporter.export(spans) == SpanExportResult.SUCCESS
            except Exception as error:  # whatever is wrong with a collector is not wrong with us
                log.debug("exporting spans: %r", error)
                sent = False
            self._counts["exported" if sent else "failed"] += count
            self._tell(sent)

    def _tell(self, sent: bool) -> None:
        """In the log, when it begins and when it is over."""
        if not sent and not self._fails:
            log.warning("spans cannot be sent to %s", self._endpoint)
        elif sent and self._fails:
            log.info("spans are sent to %s again", self._endpoint)
        self._fails = not sent

    def _span(self, span: Span) -> ReadableSpan:
        context = span.context
        events = []
        if span.event is not None:
            reason = {"queuelake.reason": span.event.reason} if span.event.reason else {}
            events.append(Event(span.event.name, reason, span.event.time_ms * 1_000_000))
        failure = span.event.name if span.event is not None and span.is_failure() else None
        return ReadableSpan(
            span.name,
            _otel_context(context, context.span_id, is_remote=False),
            _otel_context(context, span.parent_id, is_remote=True),
            self._resource,
            span.attributes,
            events,
            kind=SpanKind.PRODUCER if span.name.startswith("publish") else SpanKind.CONSUMER,
            status=Status(StatusCode.ERROR, failure) if failure else Status(),
            start_time=span.start_ms * 1_000_000,
            end_time=span.end_ms * 1_000_000,
            instrumentation_scope=self._scope,
        )


def _otel_context(context: Context, span_id: int, is_remote: bool) -> SpanContext:
    state = TraceState.from_header([context.state]) if context.state else None
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(context.trace_id, span_id, is_remote, flags, state)
