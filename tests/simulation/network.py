"""A world without threads and sockets: loop, commit and wire move when they are told to."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from queuelake.broker.committer import Done, commit
from queuelake.broker.connection import Connection
from queuelake.broker.core import Broker
from queuelake.storage.api import Batch, Store


class Handle:
    """A callback which may be cancelled."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None

    def run(self) -> None:
        if self.action is not None:
            self.action()


class FakeLoop:
    """The three methods of an event loop which the broker uses; `turn` and `advance` move it."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self._ready: deque[Handle] = deque()
        self._later: list[tuple[int, int, Handle]] = []
        self._order = itertools.count()

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        handle = Handle(lambda: callback(*args))
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> Any:
        handle = Handle(lambda: callback(*args))
        due_ns = self.now_ns + int(delay * 1e9)
        heapq.heappush(self._later, (due_ns, next(self._order), handle))
        return handle

    def as_loop(self) -> asyncio.AbstractEventLoop:
        return cast("asyncio.AbstractEventLoop", self)

    def is_closed(self) -> bool:
        return False

    def monotonic_ns(self) -> int:
        return self.now_ns

    def turn(self) -> None:
        """One turn: what is ready now runs, what it makes ready waits for the next turn."""
        for _ in range(len(self._ready)):
            self._ready.popleft().run()

    def is_idle(self) -> bool:
        return not self._ready

    def run_until_idle(self) -> None:
        for _ in range(10_000):
            if self.is_idle():
                return
            self.turn()
        raise AssertionError("the loop never comes to rest")

    def advance(self, milliseconds: int) -> None:
        """Let time pass; every timer fires at its own time."""
        end_ns = self.now_ns + milliseconds * 1_000_000
        while self._later and self._later[0][0] <= end_ns:
            due_ns, _, handle = heapq.heappop(self._later)
            self.now_ns = max(self.now_ns, due_ns)
            handle.run()
            self.turn()
        self.now_ns = end_ns


class SlowCommitter:
    """Commits when it is told to, so that anything can happen before and after."""

    def __init__(self, store: Store, loop: FakeLoop) -> None:
        self._store = store
        self._loop = loop
        self._task: tuple[Batch, Done] | None = None

    def submit(self, batch: Batch, done: Done) -> None:
        assert self._task is None, "one commit at a time"
        self._task = (batch, done)

    def is_busy(self) -> bool:
        return self._task is not None

    def commit(self) -> None:
        """Commit what waits, if anything does; the loop hears of it in its next turn."""
        if self._task is not None:
            batch, done = self._task
            self._task = None
            self._loop.call_soon(done, commit(self._store, batch))

    def close(self) -> None:
        """Nothing runs."""


class FakeTransport(asyncio.Transport):
    """Both directions of one connection. `received` is what has reached the client."""

    def __init__(self, broker: Broker, loop: FakeLoop) -> None:
        super().__init__()
        self._loop = loop
        self._waiting: list[bytes] = []  # sent by the client, not read by the broker
        self._reading = True
        self._closing = False
        self.lost = False  # the broker knows that it is over
        self.on_write: Callable[[bytes], None] = lambda data: None
        self.received = bytearray()
        self.connection = Connection(broker, "mqtt")
        self.connection.connection_made(self)

    # What the client does

    def send(self, data: bytes) -> None:
        self._waiting.append(data)
        self._feed()

    def hang_up(self) -> None:
        """The broker notices that the client is gone."""
        self._closing = True
        self._lose()

    def closed_by_broker(self) -> bool:
        return self._closing

    def is_read(self) -> bool:
        """Whether what is sent now reaches the broker at once."""
        return self._reading and not self._waiting and not self._closing

    def _feed(self) -> None:
        while self._waiting and self._reading and not self._closing:
            self.connection.data_received(self._waiting.pop(0))

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            self.connection.connection_lost(None)

    # What the broker calls

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self.on_write(bytes(data))
            self.received += data

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._lose)

    abort = close

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        assert self._reading
        self._reading = False

    def resume_reading(self) -> None:
        assert not self._reading
        self._reading = True
        self._loop.call_soon(self._feed)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is always room."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 50000) if name == "peername" else default
