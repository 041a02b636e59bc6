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
        if len(self.window) > self.window_max:
            # A lane which still needs the oldest is far behind and reads from the store anyway.
            del self.window[next(iter(self.window))]

    def loaded(self, first: int, entries: list[Entry]) -> None:
        if self.loading == first:
            self.loading = 0
        window = self.window
        count_max = 2 * self.window_max
        for entry in entries[:count_max]:  # the first ones are those somebody waits for
            window.pop(entry.seq, None)
            window[entry.seq] = entry
        while len(window) > count_max:
            del window[next(iter(window))]

    def shrink(self, needed: int) -> None:
        """No lane will ask for entries below `needed` again."""
        window = self.window
        while window:
            oldest = next(iter(window))
            if oldest >= needed:
                return
            del window[oldest]

    def stored(self) -> int:
        """How many messages are not gone."""
        return self.last - self.gone.upto - self.gone.count_above
