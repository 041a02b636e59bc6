"""A log in memory which does what a test tells it: answer, be late, or say nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from queuelake.cluster.engine import (
    ConflictingWriteError,
    TruncatedError,
    UnavailableError,
    UnknownOutcomeError,
)

T = TypeVar("T")


class ScriptedLog:
    """`script` is used up by appends, one word each; without one an append is answered.

    - `lost`: nothing is written, and nobody answers
    - `silent`: it is written, and nobody answers
    - `part`: the first part is written, and nobody answers
    - `late`: written by the next `let_late_arrive`, if it still fits; nobody answers
    - `hangs`: never returns
    """

    def __init__(self, part_bytes_max: int = 64 * 1024) -> None:
        self.part_bytes_max = part_bytes_max
        self.values: list[bytes] = []
        self.first = 1
        self.script: list[str] = []
        self.appends = 0
        self.unavailable_reads = 0  # how many of the next reads are not answered
        self.lagging_reads = 0  # how many of the next reads see nothing yet
        self.read_limit = 1000  # values in one answer
        self.on_append: Callable[[], None] = lambda: None  # just before an append arrives
        self.unanswered = asyncio.Event()  # an append was not
        self.unread = asyncio.Event()  # a read was not answered
        self._late: list[tuple[list[bytes], int]] = []

    async def append(self, parts: list[bytes], after: int) -> int:
        self.appends += 1
        what = self.script.pop(0) if self.script else "answer"
        await asyncio.sleep(0)
        self.on_append()
        if what == "hangs":
            await asyncio.Event().wait()
        if what == "late":
            self._late.append((parts, after))
        elif what != "lost":
            self.write(parts[:1] if what == "part" else parts, after)
        if what != "answer":
            self.unanswered.set()
            raise UnknownOutcomeError("no answer")
        return self.last

    def write(self, parts: list[bytes], after: int) -> None:
        if after != self.last:
            raise ConflictingWriteError(f"the log ends at {self.last}, not at {after}")
        self.values.extend(parts)

    def let_late_arrive(self) -> None:
        for parts, after in self._late:
            for number, part in enumerate(parts):
                if after + number == self.last:
                    self.values.append(part)
        self._late = []

    @property
    def last(self) -> int:
        return self.first - 1 + len(self.values)

    async def read(self, position: int, count: int) -> list[bytes]:
        await asyncio.sleep(0)
        if self.unavailable_reads > 0:
            self.unavailable_reads -= 1
            self.unread.set()
            raise UnavailableError("no leader")
        if self.lagging_reads > 0:
            self.lagging_reads -= 1
            return []
        if position < self.first:
            raise TruncatedError(f"the log begins at {self.first}")
        start = position - self.first
        return self.values[start : start + min(count, self.read_limit)]

    async def ends(self) -> tuple[int, int]:
        return self.first, self.last

    async def size_bytes(self) -> int:
        return sum(map(len, self.values))

    async def truncate(self, upto: int) -> None:
        gone = max(0, upto - self.first + 1)
        self.values = self.values[gone:]
        self.first += gone


def inline(work: Callable[[], T]) -> asyncio.Future[T]:
    """Runs work at once, in place of a thread."""
    result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    try:
        result.set_result(work())
    except Exception as error:
        result.set_exception(error)
    return result
