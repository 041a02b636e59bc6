"""What consumers of a quorum queue see, when the commands behind it are durable."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from queuelake import names
from queuelake.broker.quorum import tracing
from queuelake.broker.quorum.rows import seq_of
from queuelake.engine.quorum.commands import Cancel
from queuelake.engine.quorum.effects import ConsumerTimedOut, Deliver
from queuelake.protocol import reasons

if TYPE_CHECKING:
    from queuelake.broker.quorum.host import QuorumHost

log = logging.getLogger("queuelake.queues")


def deliver(host: QuorumHost, effect: Deliver, now_ms: int) -> None:
    subscriber = host.subscribers.get(effect.key)
    if subscriber is None or not subscriber.joined:
        return  # it left meanwhile, and the machine knows
    counters, tracer = host.counters, host.queues.tracer
    for delivery in effect.deliveries:
        if delivery.msg_id < subscriber.expected:
            continue  # it has it: the machine says so again when terms change
        subscriber.expected = delivery.msg_id + 1
        record = host.record(seq_of(delivery.index))
        if record is None:
            if subscriber.holds(delivery.msg_id):
                log.error("%s: message %d is missing", host.name, seq_of(delivery.index))
            continue
        counters.delivered += 1
        if delivery.acquired > 1:
            counters.redelivered += 1
        else:
            counters.latency.observe(now_ms - record.ts_ms)
        if tracer is not None:
            record = tracing.delivering(tracer, subscriber, delivery.msg_id, record, now_ms)
        subscriber.deliver(delivery.msg_id, record)
    host.queues.runner.touch(subscriber.session)


def time_out(host: QuorumHost, effect: ConsumerTimedOut, now_ms: int) -> None:
    """A subscription cannot be ended without a word, and this is the only one MQTT has."""
    host.counters.timed_out += len(effect.ids)
    subscriber = host.subscribers.get(effect.key)
    connection = subscriber.session.connection if subscriber is not None else None
    if connection is not None:
        # What else it holds comes back with it: it did not fail with that.
        host.apply(Cancel(effect.pid, effect.tag, remove=True), now_ms)
        problem = f"{names.address(host.name)}: {len(effect.ids)} messages were held too long"
        connection.close(reasons.ADMINISTRATIVE_ACTION, problem)
