"""One partition: how far it reaches, what is gone, and the entries which are in memory.

The window holds entries near its end and near where lanes read. It is bounded: a lane which finds
its next entry missing asks for it, and older entries make room.
"""

from __future__ import annotations

from typing import final

from queuelake.engine.message import Entry
from queuelake.engine.settled import Settled


@final
class Partition:
    """Sequences up to `last` were given; those in `gone` nobody needs any more."""

    __slots__ = (
        "gone",
        "head_expires_ms",
        "head_seq",
        "last",
        "loading",
        "number",
        "window",
        "window_max",
    )

    def __init__(self, number: int, window_max: int) -> None:
        self.number: int = number
        self.last: int = 0
        self.gone: Settled = Settled()
        self.loading: int = 0  # the sequence which was asked for and is not yet here
        self.head_seq: int = 0  # the oldest message, as far as its expiry was looked at
        self.head_expires_ms: int = 0
        self.window: dict[int, Entry] = {}
        self.window_max: int = window_max

    def append(self, entry: Entry) -> None:
        self.last += 1
        entry.seq = self.last
        self.window[self.last] = entry
        if len(self.window) > 2 * self.window_max:
            self._shrink(self.last - self.window_max, self.last)

    def loaded(self, first: int, entries: list[Entry]) -> None:
        if self.loading == first:
            self.loading = 0
        for entry in entries:
            self.window.setdefault(entry.seq, entry)
        if len(self.window) > 2 * self.window_max and entries:
            self._shrink(first, entries[-1].seq)

    def _shrink(self, first: int, last: int) -> None:
        """Keep these, and as many of the newest: a lane which needs others is far behind and reads
        from the store anyway. Seldom, so that it costs little for each message."""
        newest = self.last - self.window_max // 2
        kept: dict[int, Entry] = {}
        for seq, entry in self.window.items():
            if first <= seq <= last or seq > newest:
                kept[seq] = entry
        self.window = kept

    def stored(self) -> int:
        """How many messages are not gone."""
        return self.last - self.gone.upto - self.gone.count_above
