"""Messages in the store which expire before others in front of them.

The machine sees the oldest message of each partition, and remembers those with a short life which
came since it was loaded. The rest is found by looking through the store: once after a load, and
again when the first of what was seen there expires.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from queuelake.broker.queues.reading import AHEAD_BYTES
from queuelake.engine import commands as c
from queuelake.storage import queue_tables as t
from queuelake.storage.chunk import Record

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue
    from queuelake.engine.message import Entry
    from queuelake.engine.partition import Partition

NEVER: Final = 1 << 62
EXPIRED_PER_SLICE: Final = 100
RECORDS_PER_EXPIRED: Final = 8  # as long as it takes to look at so many
SWEEP_EVERY_MS: Final = 10_000  # at most so often


@final
class Sweep:
    """Looks through a queue which is awake."""

    __slots__ = ("_host", "_machine", "_ttl_ms", "is_running", "next_ms")

    def __init__(self, host: HostedQueue) -> None:
        self._host = host
        self._machine = host.machine
        self._ttl_ms: int = host.machine.policy.ttl_ms
        self.is_running: bool = False
        self.next_ms: int = 0  # when there will be something to find; 0: nobody has looked
        if sum([partition.last for partition in self._machine.partitions]) == (
            self._machine.counters.enqueued
        ):
            self.next_ms = NEVER  # the machine has seen every message

    def due_ms(self) -> int:
        return min(self.next_ms, self._machine.expiry.missed_ms or NEVER)

    def is_due(self, now_ms: int) -> bool:
        return now_ms >= self.due_ms() or self._ttl_ms != self._machine.policy.ttl_ms

    def run(self, now_ms: int) -> Iterator[int]:
        """Once through the queue, a chunk at a time; yields how many records were looked at."""
        self.is_running = True
        machine = self._machine
        machine.expiry.missed_ms = 0
        self._ttl_ms = machine.policy.ttl_ms
        self.next_ms = NEVER
        try:
            for partition in machine.partitions:
                yield from self._look_through(partition)
        finally:
            self.is_running = False
            if self.next_ms < NEVER:
                self.next_ms = max(self.next_ms, now_ms + SWEEP_EVERY_MS)

    def _look_through(self, partition: Partition) -> Iterator[int]:
        highest_ms = 0  # the longest life so far
        seq = partition.gone.upto + 1
        while records := self._read(partition.number, seq):
            now_ms = self._host.queues.clock.now_ms()
            over: list[Entry] = []
            for record in records:
                expires_ms = record.expires_ms or NEVER
                if record.seq < seq or self._machine.is_deleted(partition, record.seq):
                    continue
                if expires_ms <= now_ms:
                    over.append(self._host.entry_of(record, partition.number))
                elif expires_ms < highest_ms:
                    self.next_ms = min(self.next_ms, expires_ms)
                highest_ms = max(highest_ms, expires_ms)
            seq = records[-1].seq + 1
            yield len(records)
            for at in range(0, len(over), EXPIRED_PER_SLICE):
                yield self._expire(partition, over[at : at + EXPIRED_PER_SLICE])
        due_ms = self._host.queues.clock.now_ms() + self._ttl_ms
        if self._ttl_ms and highest_ms > due_ms:
            self.next_ms = min(self.next_ms, due_ms)  # of what comes from now on

    def _expire(self, partition: Partition, entries: list[Entry]) -> int:
        if self._is_current():
            now_ms = self._host.queues.clock.now_ms()
            self._host.apply(c.Expire(entries), now_ms)
            if not all([self._machine.is_deleted(partition, one.seq) for one in entries]):
                self.next_ms = now_ms  # somebody holds one
        return RECORDS_PER_EXPIRED * len(entries)

    def _is_current(self) -> bool:
        return not self._host.is_deleted and self._host.machine is self._machine

    def _read(self, number: int, seq: int) -> list[Record]:
        if not self._is_current():
            return []
        host = self._host
        with host.queues.store.view() as view:
            return t.read_ahead(view, host.id, number, seq, AHEAD_BYTES)
