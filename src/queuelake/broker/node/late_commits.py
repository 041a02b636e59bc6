"""Commits of an owner to its own store: the log has them already, so they may come late.

Clients hear that a message is safe when it is in the log. The own store gets it meanwhile, and
whoever reads the store waits for that, which takes a sync of the disk and is rare: what was just
published is in memory. Nobody is told early where the wait could be long, or never end: the map of
a store grows only when nobody reads, and some commits say what they found.
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop

from queuelake.broker.committer import CommitThread, Done
from queuelake.errors import StorageError
from queuelake.storage.api import Batch
from queuelake.storage.lmdb_store import LmdbStore


class LateCommits:
    """`LocalCommitter` of the cluster's committer, which submits one batch at a time."""

    def __init__(self, store: LmdbStore, loop: AbstractEventLoop) -> None:
        self._store = store
        self._has_all = threading.Event()  # what others were told of
        self._has_all.set()
        self._failure = ""
        self._thread = CommitThread(self, loop)
        store.before_read = self._wait

    def submit(self, batch: Batch, done: Done) -> bool:
        is_early = not batch.replaces and self._store.has_room(batch)
        if is_early:
            self._has_all.clear()

        def heard(failure: str) -> None:
            self._failure = ""  # whoever relied on it is told, and the store may be read as it is
            done(failure)

        self._thread.submit(batch, heard)
        return is_early

    def close(self) -> None:
        self._thread.close()
        self._store.before_read = None

    def commit(self, batch: Batch) -> None:
        """In the thread."""
        try:
            self._store.commit(batch)
        except BaseException as error:
            self._failure = str(error) or repr(error)
            raise
        finally:
            self._has_all.set()

    def _wait(self) -> None:
        """Until the store has what others were told of; in any thread."""
        self._has_all.wait()
        if self._failure:
            raise StorageError(f"the store is behind the log: {self._failure}")
