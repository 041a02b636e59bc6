"""A queue is read back from the store: when it wakes, and after a commit which failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from queuelake.broker.queues import rows
from queuelake.broker.queues.membership import join
from queuelake.engine.kinds.durable import DurableQueue
from queuelake.engine.policy.settings import Policy
from queuelake.storage import api, queue_records
from queuelake.storage import queue_tables as t

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue


def read_machine(
    host: HostedQueue, policy: Policy, record: queue_records.QueueRecord
) -> DurableQueue:
    with host.queues.store.view() as view:
        loader = rows.Loader(view, host.id, host.topic)
        machine = loader.load(policy, record.next_group_id, host.queues.clock.now_ms())
    machine.uses_priorities = record.uses_priorities
    return machine


def reload(host: HostedQueue) -> None:
    """A commit failed: what the store has is what there is; consumers join again."""
    queues = host.queues
    now_ms = queues.clock.now_ms()
    with queues.store.view() as view:
        value = view.get(api.QUEUES, t.queue_key(host.id))
    if value is None:
        host.restore(DurableQueue(queues.policy_for(host.name, host.settings, 0)))
        host.record_dirty = True
    else:
        record = queue_records.decode_queue(value)
        host.explicit = settings_tree(record)
        settings = queues.stored_settings(host.name, host.explicit)
        if settings != host.settings:
            host.settings = settings
            queues.note(host.name, settings)
        policy = queues.policy_for(host.name, host.settings, record.partitions)
        host.restore(read_machine(host, policy, record))
        host.record_dirty = False
    for subscriber in list(host.subscribers.values()):
        deliveries = subscriber.session.deliveries
        if deliveries is not None:
            deliveries.forget(subscriber)
        if not subscriber.lost:
            join(host, subscriber, now_ms)
    host.changed()


def settings_tree(record: queue_records.QueueRecord) -> dict[str, object]:
    """What was set for this queue at run time."""
    tree: dict[str, object] = msgspec.json.decode(record.settings)
    return tree
