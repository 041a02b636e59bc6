"""Consumers join the groups of a queue, and leave them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuelake.engine import commands as c

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue
    from queuelake.broker.queues.subscriber import Subscriber


def join(host: HostedQueue, subscriber: Subscriber, now_ms: int) -> None:
    subscriber.joined = True
    host.subscribers[subscriber.tag] = subscriber
    prefetch = subscriber.prefetch or host.machine.policy.prefetch
    host.apply(
        c.Join(
            subscriber.group,
            subscriber.consumer,
            min(prefetch, subscriber.session.window),
            subscriber.derived,
            subscriber.starts,
            subscriber.pattern,
            subscriber.tag,
            subscriber.replays,
        ),
        now_ms,
    )
    if subscriber.starts is not None:
        host.queues.runner.after_durable(subscriber.has_started)
    host.record_dirty = True


def leave(host: HostedQueue, subscriber: Subscriber, gone: bool, now_ms: int) -> None:
    """`gone`: it cannot settle any more."""
    subscriber.joined = False
    host.subscribers.pop(subscriber.tag, None)
    deliveries = subscriber.session.deliveries
    unsent = deliveries.forget(subscriber) if deliveries is not None else []
    host.apply(c.Leave(subscriber.group, subscriber.consumer, gone), now_ms)
    if not gone:
        for delivery in unsent:
            subscriber.settle(delivery, c.NACK)


def withdraw(host: HostedQueue) -> None:
    """Deliveries which timed out before they left are not kept for a client which may never take
    them."""
    for subscriber in host.subscribers.values():
        deliveries = subscriber.session.deliveries
        if deliveries is not None and deliveries.has_waiting():
            for delivery in deliveries.forget(subscriber):
                if subscriber.is_out(delivery):
                    deliveries.add(delivery)
