"""Which queues of one kind a scrape names, and what all others have counted together.

A label value for each of 100,000 queues helps nobody. Named are those which hold and move most; one
which was named before counts double, because series which come and go cost more than an exact order
is worth. The counters of the others are summed up by what each gained since the last scrape, so the
sum only rises, whoever comes and goes.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from operator import attrgetter
from typing import Generic, TypeVar


class Seen:
    """A queue as the last scrapes saw it. It stays, so that looking at it again makes nothing new:
    what is made for each of 10,000 queues keeps the garbage collector busy."""

    __slots__ = ("counts", "gained", "name", "named_in", "score", "seen_in")

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: list[int] = []
        self.gained: list[int] = []  # since the last scrape; empty: nothing
        self.score = 0
        self.seen_in = 0  # number of the scrape
        self.named_in = 0

    def count(self, counts: list[int]) -> None:
        if not self.counts:
            self.gained = counts
        else:  # one which slept meanwhile began at 0 again
            pairs = zip(counts, self.counts, strict=True)
            self.gained = [now - before if now >= before else now for now, before in pairs]
        self.counts = counts


T = TypeVar("T", bound=Seen)


class Naming(Generic[T]):
    """`rest` are the counters of those which were not named when they counted."""

    def __init__(self, limit: int, counters: int, make: Callable[[str], T]) -> None:
        self.rest = [0] * counters
        self.left_out = 0
        self._limit = limit
        self._make = make
        self._scrape = 0
        self._seen: dict[str, T] = {}

    def begin(self) -> None:
        self._scrape += 1

    def see(self, name: str) -> T:
        """A queue is there; the caller fills in what it counted, and `rate` it."""
        found = self._seen.get(name)
        if found is None:
            found = self._seen[name] = self._make(name)
        found.seen_in = self._scrape
        return found

    def rate(self, seen: T, score: int) -> None:
        seen.score = 2 * score + 1 if seen.named_in == self._scrape - 1 else score

    def missing(self) -> list[T]:
        """Those which were there at the last scrape, and were not seen in this one so far."""
        return [one for one in self._seen.values() if one.seen_in != self._scrape]

    async def choose(self) -> tuple[list[T], list[T]]:
        """Those to be named, and the others; all have been seen now."""
        for seen in self.missing():
            del self._seen[seen.name]
        found = list(self._seen.values())
        self.left_out = max(0, len(found) - self._limit)
        named = found
        if self.left_out:
            # In a thread, which gives way: this takes long when there are very many.
            score = attrgetter("score")
            named = await asyncio.to_thread(heapq.nlargest, self._limit, found, score)
        for seen in named:
            seen.named_in = self._scrape
        return named, [one for one in found if one.named_in != self._scrape]

    def leave_out(self, seen: T) -> None:
        if seen.gained:
            self.rest = [total + one for total, one in zip(self.rest, seen.gained, strict=True)]
