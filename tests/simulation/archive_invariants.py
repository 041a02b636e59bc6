"""What must hold in the store of a broker whose queues are archived, at any moment."""

from __future__ import annotations

from queuelake.broker.core import Broker
from queuelake.storage import api
from queuelake.storage import archive_tables as a
from queuelake.storage import queue_tables as t
from queuelake.storage.chunk import chunk_range
from queuelake.storage.memory import MemoryStore
from queuelake.storage.stage_tables import stored_bytes


def last_stored(store: MemoryStore, queue_id: int, number: int) -> int:
    """The last sequence of a partition which is durable."""
    with store.view() as view:
        value = view.get(api.PARTITIONS, t.partition_key(queue_id, number))
        last = t.read_partition_state(value)[1] if value is not None else 0
        return max(last, t.last_sequence(view, queue_id, number))


def check_nothing_is_missing(store: MemoryStore, queue_id: int, partitions: int) -> None:
    """Above the mark of the lake, and what was given up, every message is there."""
    for number in range(partitions):
        with store.view() as view:
            row = a.read_archived(view, "messages", queue_id, number)
        floor = max(row.upto, row.lost[-1][1]) if row.lost else row.upto
        there = {
            seq
            for first, last, _ in chunks(store, queue_id, number)
            for seq in range(first, last + 1)
        }
        wanted = range(floor + 1, last_stored(store, queue_id, number) + 1)
        missing = [seq for seq in wanted if seq not in there]
        assert not missing, f"queue {queue_id}:{number} lacks {missing}, the lake has {floor}"


def check_what_is_held(broker: Broker, store: MemoryStore) -> None:
    """When nothing is under way and every queue is awake, bytes are those of the store."""
    held = 0
    for host in broker.queues.hosts.values():
        if host.hold is None or not host.hold.promises:
            continue
        for partition in host.machine.partitions:
            floor = host.hold.floor(partition.number)
            for _, last, size in chunks(store, host.id, partition.number):
                held += size if floor < last <= partition.gone.upto else 0
    assert broker.queues.archive.held_bytes == held


def chunks(store: MemoryStore, queue_id: int, number: int) -> list[tuple[int, int, int]]:
    """First and last sequence, and bytes."""
    prefix = t.partition_key(queue_id, number)
    return [
        (*chunk_range(value), stored_bytes(key, value))
        for key, value in store.tables[api.CHUNKS].items()
        if key.startswith(prefix)
    ]
