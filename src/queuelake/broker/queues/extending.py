"""A queue gets staged chunks: one commit with a pointer to each of them makes them its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from queuelake.engine import commands as c
from queuelake.engine.message import PRIORITY_DEFAULT, Entry
from queuelake.engine.policy.settings import NONE
from queuelake.storage import api
from queuelake.storage import queue_tables as t
from queuelake.storage.stage_tables import Pointer, pointed_records

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue


@final
class StagedChunk:
    """One chunk of a stage, and where it belongs."""

    __slots__ = ("count", "has_priorities", "number", "partition", "size")

    def __init__(
        self, number: int, partition: int, count: int, size: int, has_priorities: bool
    ) -> None:
        self.number: int = number
        self.partition: int = partition
        self.count: int = count
        self.size: int = size
        self.has_priorities: bool = has_priorities


def extend(
    host: HostedQueue, command: c.Extend, stage: int, chunks: list[StagedChunk], now_ms: int
) -> int:
    """Put pointers into the group being collected; the machine's reply. The chunks are durable."""
    firsts = [partition.last + 1 for partition in host.machine.partitions]
    reply = host.apply(command, now_ms)
    if reply:
        return reply
    runner = host.queues.runner
    rows = runner.group.batch.tables[api.CHUNKS]
    ranked: dict[int, list[Pointer]] = {}
    for chunk in chunks:
        number = chunk.partition
        pointer = Pointer(firsts[number], chunk.count, stage, chunk.number, now_ms, chunk.size)
        firsts[number] += chunk.count
        rows[t.chunk_key(host.id, number, pointer.first)] = pointer.encode()
        host.tails[number].point(pointer)
        if chunk.has_priorities:
            ranked.setdefault(number, []).append(pointer)
    host.extended = runner.number
    host.active_ms = now_ms
    if ranked:
        host.record_dirty = True
        if host.machine.policy.ordering == NONE:
            _rank(host, ranked, now_ms)
    return 0


def _rank(host: HostedQueue, ranked: dict[int, list[Pointer]], now_ms: int) -> None:
    """Groups learn which of the new messages go before others."""
    if not host.machine.groups:
        return  # a group which comes later looks for itself
    for number, pointers in ranked.items():
        entries: list[Entry] = []
        with host.queues.store.view() as view:
            for pointer in pointers:
                for record in pointed_records(view, pointer):
                    if record.priority != PRIORITY_DEFAULT:
                        entries.append(host.entry_of(record, number))
        for group in list(host.machine.groups):
            host.machine.apply(host.meta(now_ms), c.Ranked(group, number, entries))
