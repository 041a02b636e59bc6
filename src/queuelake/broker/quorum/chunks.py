"""The chunks a quorum queue has in the store, and how many of their messages are still needed.

One message which is stuck keeps its own chunk and no other.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import final


@final
class Chunks:
    __slots__ = ("_firsts", "_lasts", "_live")

    def __init__(self) -> None:
        self._firsts: list[int] = []  # in order
        self._lasts: dict[int, int] = {}  # by the first sequence
        self._live: dict[int, int] = {}

    def add(self, first: int, last: int, live: int) -> None:
        """One which is newer than all others."""
        self._firsts.append(first)
        self._lasts[first] = last
        self._live[first] = live

    def release(self, seq: int) -> int:
        """A message is not needed any more. Returns the chunk which none is needed of now, or 0."""
        firsts = self._firsts
        at = bisect_right(firsts, seq) - 1
        if at < 0:
            return 0
        first = firsts[at]
        if seq > self._lasts[first]:
            return 0  # it is in no chunk yet
        left = self._live[first] - 1
        if left:
            self._live[first] = left
            return 0
        del firsts[at]
        del self._lasts[first]
        del self._live[first]
        return first

    def all(self) -> list[tuple[int, int]]:
        """First and last sequence of each."""
        return [(first, self._lasts[first]) for first in self._firsts]
