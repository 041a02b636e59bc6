"""The store as other processes read it, while the broker writes.

A view is short: it pins every page which the broker frees meanwhile. When the broker has grown the
map, the next view finds out, and waits until no view of this process is open before it follows.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

import lmdb

from queuelake.errors import StorageError
from queuelake.storage.api import META, TABLE_NAMES, ReadTransaction
from queuelake.storage.lmdb_store import FORMAT_KEY, STORE_ID, check_format
from queuelake.storage.lmdb_transaction import LmdbTransaction

READERS_MAX: Final = 512


@final
class StoreReader:
    """`<data-dir>/store`, read only; its methods may be called by any thread."""

    def __init__(self, data_dir: Path) -> None:
        path = data_dir / "store"
        self._turn = threading.Condition()
        self._readers = 0
        self._resizing = False
        try:
            self._env = lmdb.open(
                str(path), readonly=True, create=False, max_dbs=64, max_readers=READERS_MAX
            )
            self._tables = [self._env.open_db(name.encode(), create=False) for name in TABLE_NAMES]
        except lmdb.Error as error:
            raise StorageError(f"store {path} cannot be opened: {error}") from error
        with self.view() as view:
            check_format(view.get(META, FORMAT_KEY))

    @property
    def id(self) -> str:
        """As it is now: a store which becomes a replica takes over that of its cluster."""
        with self.view() as view:
            return (view.get(META, STORE_ID) or b"").decode()

    @contextlib.contextmanager
    def view(self) -> Iterator[ReadTransaction]:
        """What is committed now. Keep it short.

        Raises:
            StorageError: it cannot be read.
        """
        transaction = self._begin()
        try:
            yield LmdbTransaction(transaction, self._tables)
        finally:
            transaction.abort()
            with self._turn:
                self._readers -= 1
                self._turn.notify_all()

    def close(self) -> None:
        self._env.close()

    def _begin(self) -> lmdb.Transaction:
        with self._turn:
            while True:
                self._turn.wait_for(lambda: not self._resizing)
                try:
                    transaction = self._env.begin()
                except lmdb.MapResizedError:
                    self._follow()
                except lmdb.Error as error:
                    raise StorageError(f"store cannot be read: {error}") from error
                else:
                    self._readers += 1
                    return transaction

    def _follow(self) -> None:
        """Map the store as large as it is now; the caller has the lock."""
        self._resizing = True  # whoever comes now waits, else there might always be a reader
        try:
            self._turn.wait_for(lambda: self._readers == 0)
            self._env.set_mapsize(0)
        finally:
            self._resizing = False
            self._turn.notify_all()
