"""Who calls `Store.commit`: a thread in production, the caller itself in a simulation."""

from __future__ import annotations

import logging
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol, final

from queuelake.errors import StorageError
from queuelake.storage.api import Batch, Store

log = logging.getLogger("queuelake.committer")

Done = Callable[[str], None]


class Committer(Protocol):
    """Commits one batch after the other.

    `submit` is called again only when the last batch is done; `done` is called on the loop, never
    within `submit`, with the failure or an empty string.
    """

    def submit(self, batch: Batch, done: Done) -> None: ...

    def close(self) -> None: ...


class Target(Protocol):
    """What is committed to: a `Store`, or who stands before one."""

    def commit(self, batch: Batch) -> None: ...


@final
class CommitThread:
    """Commits off the loop, so that a slow disk delays answers but not the reading of packets."""

    def __init__(self, store: Target, loop: AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._tasks: SimpleQueue[tuple[Batch, Done] | None] = SimpleQueue()
        self._worker = threading.Thread(target=self._work, name="commit", daemon=True)
        self._worker.start()

    def submit(self, batch: Batch, done: Done) -> None:
        self._tasks.put((batch, done))

    def close(self) -> None:
        self._tasks.put(None)
        self._worker.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            batch, done = task
            failure = commit(self._store, batch)
            try:
                self._loop.call_soon_threadsafe(done, failure)
            except RuntimeError:
                return  # the loop is closed: nobody is left to be told


@final
class InlineCommitter:
    """Commits at once: a simulation has no threads, and its loop decides what comes next."""

    def __init__(self, store: Store, loop: AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop

    def submit(self, batch: Batch, done: Done) -> None:
        self._loop.call_soon(done, commit(self._store, batch))

    def close(self) -> None:
        """Nothing runs."""


def commit(store: Target, batch: Batch) -> str:
    """Commit, and say in words what went wrong."""
    try:
        store.commit(batch)
    except StorageError as error:
        return str(error)
    except Exception as error:  # a bug in the store must not end the thread silently
        log.exception("commit")
        return f"internal error: {error!r}"
    return ""
