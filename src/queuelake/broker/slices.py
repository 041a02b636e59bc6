"""Work which takes long, in small parts with pauses in which others are served."""

from __future__ import annotations

import asyncio
import logging
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from queuelake.broker.pace import Pace

PAUSE_S: Final = 0.01
SLICE_S: Final = 0.00025
REST_S: Final = 0.001  # the thread which commits needs the interpreter, too, without asking for it

T = TypeVar("T")

log = logging.getLogger("queuelake.broker")


async def in_slices(items: Iterable[T], work: Callable[[T], None]) -> None:
    """Do the work for each item; after each SLICE_S of it the others have as long."""
    until = time.perf_counter() + SLICE_S
    for item in items:
        work(item)
        if time.perf_counter() >= until:
            await asyncio.sleep(REST_S)
            until = time.perf_counter() + SLICE_S


class Neighbours:
    """Clients beside long work, whose commits get longer by what it adds to them."""

    __slots__ = ("_pace", "_seen")

    def __init__(self, pace: Pace) -> None:
        self._pace: Pace = pace
        self._seen: int = 0

    def are_active(self) -> bool:
        """Whether any has sent something since this was asked last."""
        seen, self._seen = self._seen, self._pace.inputs
        return seen != self._seen


class Slices:
    """One run at a time of the work called `what`: each step of its iterator is a part.

    A run which fails is over: the next one may fare better. One which comes to its end is over when
    whoever began it says so with `end`.
    """

    __slots__ = ("_finished", "_loop", "_pause_s", "_run", "_what")

    def __init__(self, loop: AbstractEventLoop, what: str, pause_s: float = PAUSE_S) -> None:
        self._loop = loop
        self._what = what
        self._pause_s = pause_s
        self._run: Iterator[None] | None = None
        self._finished: Callable[[], None] = self.end

    def is_running(self) -> bool:
        return self._run is not None

    def begin(self, run: Iterator[None], finished: Callable[[], None] | None = None) -> None:
        """Do the first part now; `finished` is called when the last one is done."""
        self._run = run
        self._finished = finished or self.end
        self._step()

    def end(self) -> None:
        self._run = None

    def _step(self) -> None:
        assert self._run is not None
        try:
            next(self._run)
        except StopIteration:
            self._finished()
        except Exception:
            log.exception("%s", self._what)
            self.end()
        else:
            self._loop.call_later(self._pause_s, self._step)
