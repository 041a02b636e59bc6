"""Several processes in one: each node has an asyncio loop with a clock of its own.

Real modules run on it as they are. Nothing moves but through `Time.run`, which lets one node after
the other take a turn, in an order of the dice, and goes to the next event when all are at rest. A
node can be paused, as by SIGSTOP: its clock goes on, its callbacks wait.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.simulation.network import FakeLoop, Handle

T = TypeVar("T")

EPOCH_NS = 1_700_000_000_000_000_000
CLOSING_ROUNDS = 3  # a task may wait again while it is cancelled
FOR_EVER_NS = 1 << 62
TURNS_MAX = 200_000  # in one moment; more is a loop that never waits


class NodeLoop(FakeLoop):
    """What asyncio needs of a loop for tasks, timers, locks and events."""

    def __init__(self, time: Time, rate: float = 1.0) -> None:
        super().__init__(time.now_ns)
        self._time = time
        self._rate = rate
        self._born_ns = self._caught_up_ns = time.now_ns
        self.paused = False
        self.errors: list[str] = []
        self._tasks: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        return self.now_ns / 1e9

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> Any:
        return self.call_later(when - self.time(), callback, *args)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self.as_loop())

    def create_task(
        self, work: Coroutine[Any, Any, T], *, name: str | None = None, context: Any = None
    ) -> asyncio.Task[T]:
        task = asyncio.Task(work, loop=self.as_loop(), name=name)
        self._tasks = [one for one in self._tasks if not one.done()]
        self._tasks.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def turn(self) -> None:
        asyncio._set_running_loop(self.as_loop())
        try:
            super().turn()
        finally:
            asyncio._set_running_loop(None)

    def close(self) -> None:
        """End every task, so that none complains when it is thrown away."""
        for _ in range(CLOSING_ROUNDS):
            for task in self._tasks:
                task.cancel()
            self.run_until_idle()
        self._later.clear()

    def catch_up(self) -> None:
        """The clock shows the time it is; what is due becomes ready."""
        if self._caught_up_ns != self._time.now_ns:
            self._caught_up_ns = self._time.now_ns
            self.now_ns = self._born_ns + int((self._caught_up_ns - self._born_ns) * self._rate)
        while self._later and self._later[0][0] <= self.now_ns:
            self._ready.append(heapq.heappop(self._later)[2])

    def next_ns(self) -> int:
        """When the next timer is due, by the clock of the world."""
        while self._later and self._later[0][2].action is None:
            heapq.heappop(self._later)
        if not self._later:
            return FOR_EVER_NS
        wait_ns = self._later[0][0] - self._born_ns
        return self._born_ns + int(wait_ns / self._rate) + 1


class Time:
    """The one clock of the world, and what happens when."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.now_ns = EPOCH_NS
        self.loops: list[NodeLoop] = []
        self._events: list[tuple[int, int, Handle]] = []
        self._order = itertools.count()

    def now_s(self) -> float:
        return (self.now_ns - EPOCH_NS) / 1e9

    def new_loop(self, rate: float = 1.0) -> NodeLoop:
        loop = NodeLoop(self, rate)
        self.loops.append(loop)
        return loop

    def end(self, loop: NodeLoop) -> None:
        """The process is gone: nothing it does from here on may be seen by anybody."""
        self.loops.remove(loop)
        loop.close()

    def close(self) -> None:
        for loop in list(self.loops):
            self.end(loop)

    def after(self, seconds: float, action: Callable[[], None]) -> Handle:
        handle = Handle(action)
        at_ns = self.now_ns + int(seconds * 1e9)
        heapq.heappush(self._events, (at_ns, next(self._order), handle))
        return handle

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end_ns = self.now_ns + int(seconds * 1e9)
        while True:
            self._settle()
            at_ns = self._next_ns()
            if at_ns > end_ns:
                break
            self.now_ns = max(self.now_ns, at_ns)
            while self._events and self._events[0][0] <= self.now_ns:
                heapq.heappop(self._events)[2].run()
        self.now_ns = end_ns

    def _settle(self) -> None:
        """Everybody works until nobody has anything to do in this moment."""
        for _ in range(TURNS_MAX):
            for loop in self.loops:
                loop.catch_up()
            ready = [loop for loop in self.loops if not loop.paused and not loop.is_idle()]
            if not ready:
                return
            while ready:
                loop = ready.pop(self.dice.randrange(len(ready))) if len(ready) > 1 else ready.pop()
                loop.turn()
        raise AssertionError("somebody works for ever without waiting")

    def _next_ns(self) -> int:
        events = self._events
        while events and events[0][2].action is None:
            heapq.heappop(events)
        next_ns = events[0][0] if events else FOR_EVER_NS
        for loop in self.loops:
            if not loop.paused:
                next_ns = min(next_ns, loop.next_ns())
        return next_ns
