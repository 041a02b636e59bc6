"""How much of a stream is kept: by age, by bytes, by number of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from queuelake.engine import commands as c
from queuelake.storage import api
from queuelake.storage import queue_tables as t
from queuelake.storage.chunk import chunk_range, chunk_times

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue


@final
class _Chunk:
    __slots__ = ("first", "last", "last_ms", "partition", "size")

    def __init__(self, partition: int, value: bytes) -> None:
        self.partition: int = partition
        self.first, self.last = chunk_range(value)
        self.last_ms: int = chunk_times(value)[1]
        self.size: int = len(value)


def retain(host: HostedQueue, now_ms: int) -> None:
    """Forget the oldest messages of a stream until it is within its limits."""
    policy = host.machine.policy
    if not (policy.retention_age_ms or policy.retention_bytes or policy.retention_messages):
        return
    chunks = sorted(_chunks(host), key=lambda chunk: chunk.last_ms)
    size = sum(chunk.size for chunk in chunks)
    count = sum(partition.stored() for partition in host.machine.partitions)
    for chunk in chunks:
        gone = host.machine.partitions[chunk.partition].gone.upto
        there = chunk.last - max(chunk.first - 1, gone)
        excess = count - policy.retention_messages if policy.retention_messages else 0
        too_old = policy.retention_age_ms and now_ms - chunk.last_ms >= policy.retention_age_ms
        too_much = policy.retention_bytes and size > policy.retention_bytes
        if not (too_old or too_much or excess > 0):
            return
        upto = chunk.last
        if not too_old and not too_much and excess < there:
            upto = max(chunk.first - 1, gone) + excess
        host.apply(c.Truncate(chunk.partition, upto), now_ms)
        size -= chunk.size
        count -= there


def _chunks(host: HostedQueue) -> list[_Chunk]:
    """Every chunk of the queue, by its first piece."""
    found: list[_Chunk] = []
    with host.queues.store.view() as view:
        for key, value in t.scan_prefix(view, api.CHUNKS, t.queue_key(host.id)):
            if key.endswith(b"\0\0"):
                found.append(_Chunk(int.from_bytes(key[8:10], "big"), value))
    return found
