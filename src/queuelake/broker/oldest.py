"""How old the oldest message of each queue is, for the metrics.

The first message of a partition is mostly in memory. Where it is not, the store is asked in a
thread, once for each message: the first message of a queue which is stuck stays the same.
"""

from __future__ import annotations

import asyncio
from typing import Final

from queuelake.broker.queues.host import HostedQueue
from queuelake.broker.quorum.host import QuorumHost
from queuelake.broker.sleepers import head_ms
from queuelake.broker.slices import in_slices
from queuelake.engine.leaving import known
from queuelake.engine.state import QueueState
from queuelake.storage.api import Store

READS_MAX: Final = 1_000  # for one scrape; the next one reads the next ones

Head = tuple[int, int, int]  # id of the queue, partition, sequence


class Oldest:
    """Remembers what was read from the store, as long as it is asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[Head, int] = {}

    async def ages_s(self, hosts: list[HostedQueue | QuorumHost], now_ms: int) -> dict[str, float]:
        """By name; 0 when a queue is empty. One which cannot be told yet is not in it."""
        in_memory: dict[str, list[int]] = {}
        in_store: dict[str, list[Head]] = {}

        def look(host: HostedQueue | QuorumHost) -> None:
            if isinstance(host, QuorumHost):
                heads = first_message(host)
            else:
                heads = first_messages(host.machine) if host.machine.depth() else []
            in_memory[host.name] = [time_ms for _, _, time_ms in heads if time_ms]
            in_store[host.name] = [(host.id, at, seq) for at, seq, time_ms in heads if not time_ms]

        await in_slices(hosts, look)
        await self._ask([head for heads in in_store.values() for head in heads])
        ages: dict[str, float] = {}
        for name, times in in_memory.items():
            read = [self._read.get(head, 0) for head in in_store[name]]
            times += [time_ms for time_ms in read if time_ms]
            if times or not read:
                ages[name] = max(0, now_ms - min(times, default=now_ms)) / 1000
        return ages

    async def _ask(self, heads: list[Head]) -> None:
        self._read = {head: self._read[head] for head in heads if head in self._read}
        unknown = [head for head in heads if head not in self._read][:READS_MAX]
        if unknown:
            self._read |= await asyncio.to_thread(self._read_all, unknown)

    def _read_all(self, heads: list[Head]) -> dict[Head, int]:
        found: dict[Head, int] = {}
        for head in heads:
            with self._store.view() as view:  # each short: the store may want to grow
                found[head] = head_ms(view, *head)
        return found


def first_message(host: QuorumHost) -> list[tuple[int, int, int]]:
    """As `first_messages`, of a quorum queue."""
    seq = host.gone.upto + 1
    if seq > host.last:
        return []
    record = host.tail.records.get(seq)
    return [(0, seq, record.ts_ms if record is not None else 0)]


def first_messages(machine: QueueState) -> list[tuple[int, int, int]]:
    """Of each partition which holds something: its number, the first message which some group has
    not settled, and when that came; 0: it is in the store only."""
    found: list[tuple[int, int, int]] = []
    groups = machine.groups.values()
    for partition in machine.partitions:
        lanes = [group.lanes[partition.number] for group in groups]
        seq = min([lane.settled.upto for lane in lanes], default=partition.gone.upto) + 1
        if seq > partition.last:
            continue
        entry = partition.window.get(seq)
        for lane in lanes:
            entry = entry or known(machine, lane, seq)
        found.append((partition.number, seq, entry.ts_ms if entry is not None else 0))
    return found
