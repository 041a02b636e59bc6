"""Traces: what queues did with messages which carry a `traceparent`, as spans.

- A message which comes is a span `publish`, child of the publisher's, from its PUBLISH until it is
  durable. The message is stored with the traceparent of this span, so what happens to it later
  belongs there too, after a restart as well.
- Each delivery is a span `deliver`, a child of that one, until the consumer does not hold the
  message any more. The consumer gets the message with the traceparent of this delivery. What became
  of it is an event of the span: ack, nack, reject, timeout, dead_letter, expired, or returned.
- A dead letter is a message which comes to another queue: a span `publish` there, in the same
  trace.

A queue tells once in each commit, so nothing is paid for each message while tracing is off. While
it is on, only messages with a sampled traceparent cost something. A span is a small record until
the thread of `trace_export` makes of it what OpenTelemetry wants. `tracestate` travels on as it is.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from queuelake.engine import events as e
from queuelake.storage.chunk import Record

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue
    from queuelake.broker.queues.tail import Tail
    from queuelake.engine.effects import Deliver

OPEN_MAX: Final = 10_000  # deliveries which are not settled yet; above it the oldest end
# A user property with its lengths: a value of the only version there is has 55 characters.
PARENT: Final = b"\x26\x00\x0btraceparent\x00\x37"
STATE: Final = b"\x26\x00\x0atracestate"
PARENT_BYTES: Final = 55
STATE_BYTES_MAX: Final = 512

_PARENT_VALUE = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_OUTCOMES: Final = {
    e.ACKED: "ack",
    e.NACKED: "nack",
    e.REJECTED: "reject",
    e.TIMED_OUT: "timeout",
    e.DEAD_LETTERED: "dead_letter",
    e.EXPIRED: "expired",
    e.DROPPED: "dropped",
}
_FAILURES: Final = frozenset({"reject", "timeout", "dead_letter"})


class Context(NamedTuple):
    """Where in a trace a message is."""

    trace_id: int
    span_id: int
    state: str


class Event(NamedTuple):
    name: str
    time_ms: int
    reason: str


class Span(NamedTuple):
    name: str
    context: Context
    parent_id: int
    start_ms: int
    end_ms: int
    attributes: dict[str, str | int]
    event: Event | None = None

    def is_failure(self) -> bool:
        return self.event is not None and self.event.name in _FAILURES


class SpanSink(Protocol):
    def put(self, span: Span) -> None:
        """Take it, or count that it was too much."""

    def counts(self) -> dict[str, int]:
        """Spans by what became of them."""


class Line(NamedTuple):
    """Where messages come to: one partition of a queue, or a queue which has none."""

    queue: str
    topic: str
    number: int
    id_prefix: bytes
    tail: Tail

    def is_pending(self, seq: int) -> bool:
        """Whether a message is not even on its way to the store."""
        pending = self.tail.pending
        return bool(pending) and seq >= pending[0].seq


class OpenDelivery(NamedTuple):
    """By queue, group, partition, sequence and attempt; or the consumer of a quorum queue in the
    place of the partition, and its own number of the delivery in that of the attempt."""

    queue: str
    group: str
    partition: int
    seq: int
    attempt: int


class Tracer:
    """Watches the queues of one broker."""

    def __init__(
        self,
        sink: SpanSink,
        sample_ratio: float,
        new_id: Callable[[], int] = lambda: random.getrandbits(64) or 1,
    ) -> None:
        self.sink = sink
        self._bound = int(sample_ratio * (1 << 64))
        self._new_id = new_id
        self._coming: dict[str, dict[tuple[int, int], Span]] = {}  # not durable yet, by queue
        self._open: dict[str, dict[OpenDelivery, Span]] = {}
        self._open_count = 0

    # What a queue tells

    def committing(self, host: HostedQueue) -> None:
        """It is about to write what has changed."""
        for number in range(len(host.tails)):
            self.coming(_line(host, number))
        if host.name in self._open:
            self._settle(host)

    def coming(self, line: Line) -> None:
        """Its new messages are about to be written."""
        for record in line.tail.pending:
            if PARENT in record.properties:
                self._came(line, record)

    def stored(self, host: HostedQueue, now_ms: int) -> None:
        """What it wrote is durable."""
        if host.name in self._coming:
            self.stored_of([_line(host, number) for number in range(len(host.tails))], now_ms)

    def stored_of(self, lines: list[Line], now_ms: int) -> None:
        """What a queue of these lines wrote is durable."""
        queue = lines[0].queue
        coming = self._coming.pop(queue, {})
        later: dict[tuple[int, int], Span] = {}
        for (number, seq), span in coming.items():
            if lines[number].is_pending(seq):
                later[number, seq] = span
            else:
                self.sink.put(span._replace(end_ms=max(now_ms, span.start_ms)))
        if later:
            self._coming[queue] = later

    def rolled_back(self, queue: str) -> None:
        """What it wrote is not in the store, and will not be."""
        self._coming.pop(queue, None)

    def delivering(self, host: HostedQueue, effect: Deliver, record: Record) -> Record:
        """The message as this delivery carries it."""
        if PARENT not in record.properties:
            return record
        number = effect.entry.partition
        line = _line(host, number)
        if line.is_pending(record.seq):
            self._came(line, record)  # handed out before it is stored
        group = effect.group.name
        key = OpenDelivery(host.name, group, number, record.seq, effect.attempt)
        now_ms = host.queues.clock.now_ms()
        return self.deliver(line, key, record, effect.consumer.name, effect.attempt, now_ms)

    def deliver(
        self,
        line: Line,
        key: OpenDelivery,
        record: Record,
        client_id: str,
        attempt: int,
        now_ms: int,
    ) -> Record:
        """The message as this delivery carries it, which is open from now on."""
        parent = self._sampled(record.properties) if PARENT in record.properties else None
        if parent is None:
            return record
        context = Context(parent.trace_id, self._new_id(), parent.state)
        attributes = _attributes(line, record)
        attributes["messaging.operation.type"] = "receive"
        if key.group:
            attributes["messaging.consumer.group.name"] = key.group
        attributes["messaging.client.id"] = client_id
        attributes["queuelake.attempt"] = attempt
        span = Span(f"deliver {line.topic}", context, parent.span_id, now_ms, now_ms, attributes)
        self._add(key, span)
        return _with_parent(record, context)

    def open_of(self, queue: str) -> list[OpenDelivery]:
        return list(self._open.get(queue, ()))

    def ended(self, key: OpenDelivery, event: Event) -> None:
        """What became of a delivery, if it is one which is traced."""
        if key in self._open.get(key.queue, ()):
            self._end(key.queue, key, event)

    def close(self) -> None:
        """The broker stops: nobody will tell of these any more."""
        for spans in self._open.values():
            for span in spans.values():
                self.sink.put(span)
        self._open.clear()

    # Publishes

    def _came(self, line: Line, record: Record) -> None:
        coming = self._coming.setdefault(line.queue, {})
        if (line.number, record.seq) in coming:
            return
        parent = self._sampled(record.properties)
        if parent is None:
            return
        context = Context(parent.trace_id, self._new_id(), parent.state)
        record.properties = _rewritten(record.properties, context)
        attributes = _attributes(line, record)
        attributes["messaging.operation.type"] = "send"
        attributes["messaging.client.id"] = record.publisher.decode()
        name = f"publish {line.topic}"
        coming[line.number, record.seq] = Span(
            name, context, parent.span_id, record.ts_ms, record.ts_ms, attributes
        )

    def _sampled(self, properties: bytes) -> Context | None:
        """Where in its trace a message is, if that is to be recorded."""
        at = properties.find(PARENT) + len(PARENT)
        found = _PARENT_VALUE.fullmatch(properties, at, at + PARENT_BYTES)
        if found is None or not int(found[3], 16) & 1:
            return None
        trace_id, span_id = int(found[1], 16), int(found[2], 16)
        # All brokers and services which know the ratio choose the same traces.
        if not trace_id or not span_id or trace_id & (1 << 64) - 1 >= self._bound:
            return None
        return Context(trace_id, span_id, _state(properties))

    # Deliveries

    def _add(self, key: OpenDelivery, span: Span) -> None:
        if self._open_count >= OPEN_MAX:
            queue = next(iter(self._open))
            self._end(queue, next(iter(self._open[queue])), None)
        self._open.setdefault(key.queue, {})[key] = span
        self._open_count += 1

    def _end(self, queue: str, key: OpenDelivery, event: Event | None) -> None:
        spans = self._open[queue]
        span = spans.pop(key)
        self._open_count -= 1
        if not spans:
            del self._open[queue]
        end_ms = span.start_ms if event is None else max(event.time_ms, span.start_ms)
        self.sink.put(span._replace(end_ms=end_ms, event=event))

    def _settle(self, host: HostedQueue) -> None:
        """End those which their consumers do not hold any more."""
        machine = host.machine
        gone: list[tuple[OpenDelivery, bool]] = []
        for key in self._open[host.name]:
            group = machine.groups.get(key.group)
            if group is None or key.partition >= len(group.lanes):
                gone.append((key, False))
            elif not group.is_out(key.partition, key.seq, key.attempt):
                gone.append((key, key.seq in group.lanes[key.partition].settled))
        if not gone:
            return
        told = _told(machine.events)
        for key, is_settled in gone:
            silent = Event("ack" if is_settled else "returned", machine.now_ms, "")
            event = told.get((key.group, key.partition, key.seq, key.attempt), silent)
            self._end(host.name, key, event)


def _line(host: HostedQueue, number: int) -> Line:
    return Line(
        host.name, host.topic.decode(), number, host.id_prefixes[number], host.tails[number]
    )


def _told(events: e.Events) -> dict[tuple[str, int, int, int], Event]:
    """The first thing which happened to each delivery since the last commit."""
    found: dict[tuple[str, int, int, int], Event] = {}
    for n, step in enumerate(events.steps):
        if step in _OUTCOMES:
            key = (events.groups[n], events.partitions[n], events.seqs[n], events.attempts[n])
            found.setdefault(key, Event(_OUTCOMES[step], events.times_ms[n], events.reasons[n]))
    return found


def _attributes(line: Line, record: Record) -> dict[str, str | int]:
    message_id = record.message_id or line.id_prefix + b"%d" % record.seq
    return {
        "messaging.system": "queuelake",
        "messaging.destination.name": line.topic,
        "messaging.destination.partition.id": str(line.number),
        "messaging.message.id": message_id.decode(),
        "messaging.message.body.size": len(record.payload),
    }


def _rewritten(properties: bytes, context: Context) -> bytes:
    at = properties.find(PARENT) + len(PARENT)
    value = b"00-%032x-%016x-01" % (context.trace_id, context.span_id)
    return properties[:at] + value + properties[at + PARENT_BYTES :]


def _with_parent(record: Record, context: Context) -> Record:
    return Record(
        record.topic,
        record.key,
        record.message_id,
        record.publisher,
        _rewritten(record.properties, context),
        record.payload,
        record.qos,
        record.priority,
        record.ts_ms,
        record.expires_ms,
        record.seq,
    )


def _state(properties: bytes) -> str:
    at = properties.find(STATE)
    if at < 0:
        return ""
    at += len(STATE)
    size = int.from_bytes(properties[at : at + 2], "big")
    if size > STATE_BYTES_MAX:
        return ""
    return properties[at + 2 : at + 2 + size].decode("utf-8", "replace")
