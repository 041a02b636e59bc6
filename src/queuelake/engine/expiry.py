"""Which messages have lived long enough.

Most messages of a queue live equally long, so the oldest of each partition tells. Those which asked
for less than the queue gives are remembered by the time they expire. There is room for a limited
number of them, and after a load none is known: whoever has the store looks there for those whose
time is over (`commands.Expire`), and `missed_ms` says from when on that is worth it.
"""

from __future__ import annotations

import heapq
from typing import Final, final

from queuelake.engine.effects import Load
from queuelake.engine.machine import Effect
from queuelake.engine.message import Entry
from queuelake.engine.partition import Partition

SOON_MAX: Final = 10_000
EXPIRED_PER_TICK_MAX: Final = 2_000
NEAR_MS: Final = 60_000


@final
class Expiry:
    __slots__ = ("_looked_ms", "missed_ms", "soon")

    def __init__(self) -> None:
        self.soon: list[tuple[int, int, int, Entry]] = []  # heap: when, partition, sequence
        self.missed_ms: int = 0  # when the first of those expires for which there was no room
        self._looked_ms: int = 0

    def added(self, entry: Entry, ttl_ms: int) -> None:
        if ttl_ms and entry.expires_ms >= entry.ts_ms + ttl_ms:
            return
        if len(self.soon) < SOON_MAX:
            heapq.heappush(self.soon, (entry.expires_ms, entry.partition, entry.seq, entry))
        elif not self.missed_ms or entry.expires_ms < self.missed_ms:
            self.missed_ms = entry.expires_ms

    def is_waiting(self) -> bool:
        """Whether something expires within a minute; before that a queue may sleep."""
        return len(self.soon) > 0 and self.soon[0][0] <= self._looked_ms + NEAR_MS

    def due(self, partitions: list[Partition], now_ms: int, effects: list[Effect]) -> list[Entry]:
        """Entries whose time is over; asks the store for a head which is not in memory."""
        self._looked_ms = now_ms
        found: list[Entry] = []
        while self.soon and self.soon[0][0] <= now_ms:
            found.append(heapq.heappop(self.soon)[3])
        for partition in partitions:
            seq = partition.gone.upto + 1
            if seq == partition.head_seq and not 0 < partition.head_expires_ms <= now_ms:
                continue
            while seq <= partition.last and len(found) < EXPIRED_PER_TICK_MAX:
                if seq in partition.gone:
                    seq += 1
                    continue
                entry = partition.window.get(seq)
                if entry is None:
                    if not partition.loading:
                        partition.loading = seq
                        effects.append(Load(partition.number, seq))
                    break
                if not 0 < entry.expires_ms <= now_ms:
                    partition.head_seq = seq
                    partition.head_expires_ms = entry.expires_ms
                    break
                found.append(entry)
                seq += 1
        return found
