"""A queue is read back from the store: when it wakes, and after a commit which failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuelake.broker.queues import rows
from queuelake.broker.queues.membership import join
from queuelake.engine.policy.settings import Policy
from queuelake.engine.state import QueueState
from queuelake.storage import api, queue_records
from queuelake.storage import queue_tables as t

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue


def read_machine(
    host: HostedQueue, policy: Policy, record: queue_records.QueueRecord
) -> QueueState:
    machine = host.new_machine(policy)
    with host.queues.store.view() as view:
        loader = rows.Loader(view, host)
        loader.load(machine, record.next_group_id, host.queues.clock.now_ms())
    machine.uses_priorities = record.uses_priorities
    return machine


def reload(host: HostedQueue) -> None:
    """A commit failed: what the store has is what there is; consumers join again."""
    queues = host.queues
    now_ms = queues.clock.now_ms()
    if queues.tracer is not None:
        queues.tracer.rolled_back(host.name)
    with queues.store.view() as view:
        value = view.get(api.QUEUES, t.queue_key(host.id))
    if value is None:
        host.restore(host.new_machine(host.machine.policy))
        host.record_dirty = True
    else:
        record = queue_records.decode_queue(value)
        host.restore(read_machine(host, host.read_settings(record), record))
        host.record_dirty = False
    if host.hold is not None:
        host.hold.recount()
    for subscriber in list(host.subscribers.values()):
        deliveries = subscriber.session.deliveries
        if deliveries is not None:
            deliveries.forget(subscriber)
        if not subscriber.lost:
            join(host, subscriber, now_ms)
    host.changed()
