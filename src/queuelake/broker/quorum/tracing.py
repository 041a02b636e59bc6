"""Spans of a quorum queue: as those of every queue, told by commands instead of events.

Nothing here is called while tracing is off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuelake.broker.quorum.rows import PARTITION
from queuelake.broker.tracing import Event, Line, OpenDelivery, Tracer
from queuelake.engine.machine import Command
from queuelake.engine.quorum import commands as c

if TYPE_CHECKING:
    from queuelake.broker.quorum.host import QuorumHost
    from queuelake.broker.quorum.subscriber import QuorumSubscriber
    from queuelake.storage.chunk import Record


def committing(tracer: Tracer, host: QuorumHost) -> None:
    """It is about to write what has changed."""
    tracer.coming(_line(host))
    machine = host.machine
    for key in tracer.open_of(host.name):
        consumer = machine.consumers.get(key.partition)
        if consumer is None or key.attempt not in consumer.held:
            outcome = "dead_letter" if key.seq in host.gone else "returned"
            tracer.ended(key, Event(outcome, machine.now_ms, ""))


def stored(tracer: Tracer, host: QuorumHost, now_ms: int) -> None:
    tracer.stored_of([_line(host)], now_ms)


def delivering(
    tracer: Tracer, subscriber: QuorumSubscriber, msg_id: int, record: Record, now_ms: int
) -> Record:
    """The message as this delivery carries it."""
    host = subscriber.host
    message = host.machine.consumers[subscriber.key].held.get(msg_id)
    if message is None:
        return record
    key = OpenDelivery(host.name, "", subscriber.key, record.seq, msg_id)
    client_id = subscriber.session.client_id
    return tracer.deliver(_line(host), key, record, client_id, message.acquired, now_ms)


def settling(
    tracer: Tracer,
    subscriber: QuorumSubscriber,
    command: Command,
    msg_id: int,
    seq: int,
    now_ms: int,
) -> None:
    """Its consumer says what is to become of a delivery."""
    key = OpenDelivery(subscriber.host.name, "", subscriber.key, seq, msg_id)
    outcome, reason = "nack", ""
    if isinstance(command, c.Settle):
        outcome = "ack"
    elif isinstance(command, c.Discard):
        outcome = "reject"
    elif isinstance(command, c.Modify):
        outcome = "reject" if command.undeliverable_here else "nack"
        reason = (command.annotations or {}).get("reason", "")
    tracer.ended(key, Event(outcome, now_ms, reason))


def timed_out(
    tracer: Tracer, host: QuorumHost, consumer_key: int, ids: list[int], now_ms: int
) -> None:
    """It held these for too long."""
    for key in tracer.open_of(host.name):
        if key.partition == consumer_key and key.attempt in ids:
            tracer.ended(key, Event("timeout", now_ms, ""))


def _line(host: QuorumHost) -> Line:
    return Line(host.name, host.topic.decode(), PARTITION, host.id_prefix, host.tail)
