"""Queues which are asleep, for the metrics: what the store says of those which hold something.

That does not change while a queue sleeps, so it is remembered. Each look is at some of them again,
in turn, because one may have been awake since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from queuelake.broker.queue_views import read_sleeper
from queuelake.broker.queues.hosts import Hosts
from queuelake.broker.slices import in_slices
from queuelake.storage import queue_tables as t
from queuelake.storage.api import ReadTransaction, Store

LOOKS: Final = 200
LOOKS_AT_FIRST: Final = 2_000  # until each was looked at once


class Asleep(NamedTuple):
    depth: int
    oldest_ms: int  # when its oldest message came; 0: not known
    heads: list[tuple[int, int]]


class Sleepers:
    """`names` are those of the queues to look at, awake or not."""

    def __init__(self, queues: Hosts, names: Callable[[], list[str]]) -> None:
        self._queues = queues
        self._names = names
        self._turn: list[str] = []
        self._rounds = 0
        self.known: dict[str, Asleep] = {}  # those which hold something

    async def look(self) -> None:
        await in_slices(list(self.known), self._forget_if_awake)
        if not self._turn:
            self._turn = self._names().copy()
            self._rounds += 1
        await in_slices(self._next(LOOKS if self._rounds > 1 else LOOKS_AT_FIRST), self.look_at)

    def _next(self, sleepers: int) -> Iterator[str]:
        """The next names in turn, with so many of queues which sleep."""
        while self._turn and sleepers:
            name = self._turn.pop()
            if self._queues.sleeping_id(name):
                sleepers -= 1
            yield name

    def _forget_if_awake(self, name: str) -> None:
        if not self._queues.sleeping_id(name):
            self.known.pop(name, None)

    def look_at(self, name: str) -> None:
        """At one which may have fallen asleep just now."""
        queue_id = self._queues.sleeping_id(name)
        if not queue_id:
            return
        found = read_asleep(self._queues.store, queue_id, self.known.pop(name, None))
        if found is not None:
            self.known[name] = found


def read_asleep(store: Store, queue_id: int, former: Asleep | None = None) -> Asleep | None:
    """What the store says of it, if it holds something; `former` is what it said before."""
    with store.view() as view:
        found = read_sleeper(view, queue_id)
        if found is None or not found.depth:
            return None
        if former is not None and former.heads == found.heads:
            oldest_ms = former.oldest_ms
        else:
            oldest_ms = oldest(view, queue_id, found.heads)
    return Asleep(found.depth, oldest_ms, found.heads)


def oldest(view: ReadTransaction, queue_id: int, heads: list[tuple[int, int]]) -> int:
    """When the oldest of these messages came; 0: none of them is in the store."""
    times = [head_ms(view, queue_id, number, seq) for number, seq in heads]
    return min([time_ms for time_ms in times if time_ms], default=0)


def head_ms(view: ReadTransaction, queue_id: int, number: int, seq: int) -> int:
    """When the first message from `seq` on came; 0: there is none."""
    for record in t.read_chunk_at(view, queue_id, number, seq):
        if record.seq >= seq:
            return record.ts_ms
    return 0
