"""CHECK entries: each replica tells the hash of its store at the same place of the log.

The view is taken at once, between two commits; a thread reads the rows meanwhile. A view keeps the
map from growing, so a store which has to grow waits for the end of a check.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Callable
from typing import Protocol, TypeVar

from queuelake.cluster.hashing import hash_of
from queuelake.errors import QueuelakeError
from queuelake.storage.api import Store

log = logging.getLogger("queuelake.cluster.checking")

T = TypeVar("T")
OnCheck = Callable[[bytes, int, bytes], None]  # the id, the position of the entry, the digest


class InThread(Protocol):
    """Runs work off the loop, several at a time; it has begun when the call returns."""

    def __call__(self, work: Callable[[], T], /) -> Future[T]: ...


class Checks:
    def __init__(self, store: Store, in_thread: InThread, on_check: OnCheck) -> None:
        self._store = store
        self._in_thread = in_thread
        self._on_check = on_check
        self._running: set[Future[bytes]] = set()
        self._closed = False

    def begin(self, check_id: bytes, position: int) -> None:
        """Called when everything up to this position is committed, and nothing behind it."""
        view = self._store.view()
        rows = view.__enter__()

        def work() -> bytes:
            try:
                return hash_of(rows, lambda: not self._closed)
            finally:
                view.__exit__(None, None, None)

        def done(result: Future[bytes]) -> None:
            self._running.discard(result)
            if result.cancelled() or self._closed:
                return
            error = result.exception()
            if error is None:
                self._on_check(check_id, position, result.result())
            elif isinstance(error, QueuelakeError):
                log.error("check at position %d: %s", position, error)
            else:
                log.error("check at position %d", position, exc_info=error)

        result = self._in_thread(work)
        self._running.add(result)
        result.add_done_callback(done)

    async def close(self) -> None:
        """Abandon what runs; afterwards the store may be closed."""
        self._closed = True
        await asyncio.gather(*self._running, return_exceptions=True)
