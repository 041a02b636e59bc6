"""The store on LMDB: one directory, one writer, readers in any process.

A batch is applied in one write transaction by the thread which calls `commit`. When the map is
full the transaction is aborted, the map grows, and the batch is applied again. The map moves only
while no view is open, so views are short; a new view never waits for one which is open.

Deleting needs free pages too. When the map has its full size the last part of it is kept for that:
messages are refused first, and what clients settle makes room again.

The data directory belongs to one broker: a lock file held for the whole life of the process says
so.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb

from queuelake.errors import StorageError, StoreFormatError
from queuelake.settings import Storage
from queuelake.storage.api import (
    FORMAT_VERSION,
    MESSAGE_TABLES,
    META,
    TABLE_NAMES,
    Batch,
    ReadTransaction,
)
from queuelake.storage.directory_lock import DirectoryLock
from queuelake.storage.ecq_tables import replace_entries
from queuelake.storage.lmdb_transaction import LmdbTransaction
from queuelake.storage.queue_rows import trim_rows
from queuelake.storage.queue_space import delete_chunks, free_space
from queuelake.storage.resident import MappedFile, Sparing

STORE_ID = b"store_id"  # in META: 8 random bytes, as hex; no other store has them
FORMAT_KEY = b"format"
TURN_KEY = b"turn"  # written by a store which was full, and not by others
_RESERVE_BYTES_MAX = 64 * 1024 * 1024
_MAPPED_BYTES_MAX = 48 * 1024 * 1024
_PAGES_PER_CHANGE_MAX = 16  # which a commit may need, far more than it does
_PAGES_PER_COMMIT_MAX = 1024  # for what is deleted by the way, and the list of free pages


class LmdbStore:
    """Opens `<data-dir>/store` for writing."""

    def __init__(
        self, data_dir: Path, settings: Storage | None = None, replicated: bool = False
    ) -> None:
        """`replicated`: a log has what is committed here. A crash of the machine may then undo the
        last commit, and nothing is refused by `commit` for lack of room: ask `refusal` before."""
        self._settings = settings or Storage()
        self._replicated = replicated
        # Called before each view is opened: somebody has what is not committed yet.
        self.before_read: Callable[[], None] | None = None
        self._lock = DirectoryLock(data_dir)
        path = data_dir / "store"
        path.mkdir(mode=0o700, exist_ok=True)
        # Growing the map needs a moment without any transaction of this process.
        self._resize = threading.Condition()
        self._readers = 0
        self._still = threading.Lock()  # held while the map moves, or must not
        self._wanted_bytes = 0  # the size the map is to grow to; 0: it need not
        self._path = path
        try:
            self._open()
            self._env.reader_check()
            self._check_format()
        except lmdb.Error as error:
            self._lock.close()
            raise StorageError(f"store {path} cannot be opened: {error}") from error
        except StoreFormatError:
            self._env.close()
            self._lock.close()
            raise
        self._sparing = Sparing(MappedFile(path / "data.mdb"), _MAPPED_BYTES_MAX, self._still)

    def _open(self) -> None:
        self._env = lmdb.open(
            str(self._path),
            map_size=max(self._settings.map_size_bytes_initial, _used_bytes(self._path)),
            max_dbs=64,
            max_readers=512,
            sync=self._settings.durability == "fsync",
            metasync=not self._replicated,
            mode=0o600,
        )
        # In one transaction: a new store would be synced once for each table.
        with self._env.begin(write=True) as transaction:
            self._tables = [self._env.open_db(name.encode(), transaction) for name in TABLE_NAMES]

    def _reopen(self) -> None:
        """LMDB refuses everything after it could not write its own head: begin anew.

        A view which is open meanwhile fails when it is next used; views are short.
        """
        with self._resize, self._still:
            self._env.close()
            self._open()

    def commit(self, batch: Batch) -> None:
        self.commit_all([batch])

    def commit_all(self, batches: list[Batch]) -> None:
        turned = False
        while True:
            try:
                with self._env.begin(write=True) as transaction:
                    self._apply_all(transaction, batches)
                return
            except lmdb.MapFullError:
                if not self._grow():
                    if turned:
                        raise _full(self._limit()) from None
                    turned = True
                    self._turn()
            except lmdb.PanicError as error:
                self._reopen()
                raise StorageError(f"commit failed, store opened again: {error}") from error
            except (lmdb.Error, OSError) as error:
                raise StorageError(f"commit failed: {error}") from error

    def _apply_all(self, transaction: lmdb.Transaction, batches: list[Batch]) -> None:
        for batch in batches:
            self._apply(LmdbTransaction(transaction, self._tables), batch)
            if not self._replicated and _adds_messages(batch) and self._is_full(transaction, 0):
                raise _full(self._limit())

    def _apply(self, transaction: LmdbTransaction, batch: Batch) -> None:
        delete_chunks(transaction, batch.chunk_deletes)
        if batch.replaces:
            replace_entries(transaction, batch)
        for table, changes in enumerate(batch.tables):
            if not changes:
                continue
            puts = [(key, value) for key, value in changes.items() if value is not None]
            if puts:
                transaction.put_many(table, puts)
            if len(puts) < len(changes):
                for key, value in changes.items():
                    if value is None:
                        transaction.delete(table, key)
        for session_id, upto in batch.trims.items():
            trim_rows(transaction, session_id, upto)
        free_space(transaction, batch)

    def has_room(self, batch: Batch) -> bool:
        """Whether the map surely need not grow for this."""
        pages, size = _PAGES_PER_COMMIT_MAX, 0
        for changes in batch.tables:
            pages += len(changes) * _PAGES_PER_CHANGE_MAX
            size += sum([len(value) for value in changes.values() if value is not None])
        used_bytes, map_bytes = self.size_bytes()
        return used_bytes + pages * mmap.PAGESIZE + 2 * size < map_bytes

    def refusal(self, batch: Batch) -> str:
        if self._may_grow() or not _adds_messages(batch):
            return ""
        with self.view() as view:
            full = self._is_full(view._transaction, _message_bytes(batch))
        return str(_full(self._limit())) if full else ""

    def _limit(self) -> int:
        return self._settings.map_size_bytes_max

    def _is_full(self, transaction: lmdb.Transaction, more_bytes: int) -> bool:
        """Whether with so much more what is left is needed for deleting."""
        if self._may_grow():
            return False
        limit = self._limit()
        reserve = min(_RESERVE_BYTES_MAX, limit // 8)
        return self._filled_bytes(transaction) + more_bytes > limit - reserve

    def _may_grow(self) -> bool:
        with self._resize:  # as in `size_bytes`
            size: int = self._env.info()["map_size"]
        return size < self._limit()

    def _filled_bytes(self, transaction: lmdb.Transaction) -> int:
        """Of all pages which hold something."""
        size = 0
        for one in [transaction.stat(table) for table in self._tables]:
            size += one["psize"] * (one["branch_pages"] + one["leaf_pages"] + one["overflow_pages"])
        return size

    def _turn(self) -> None:
        """Pages freed by the last transaction are used again from the next but one on: make it
        that, so that a store which was full and is not any more can be written."""
        with contextlib.suppress(lmdb.MapFullError), self._env.begin(write=True) as transaction:
            transaction.put(TURN_KEY, str(transaction.id()).encode(), db=self._tables[META])

    def _grow(self) -> bool:
        """Double the map; False: it is as large as it may be."""
        size = self._env.info()["map_size"]
        limit = self._limit()
        if size >= limit:
            return False
        with self._resize:
            self._wanted_bytes = min(limit, size * 2)
            self._resize_if_unread()
            self._resize.wait_for(lambda: self._wanted_bytes == 0)
            if self._env.info()["map_size"] <= size:
                raise StorageError(f"the map of {size} bytes cannot grow")
        return True

    def _resize_if_unread(self) -> None:
        """Grow the map if that is wanted and nobody reads; the caller has the lock."""
        if self._wanted_bytes == 0 or self._readers > 0:
            return
        with self._still, contextlib.suppress(lmdb.Error):  # who waits sees that it has not grown
            self._env.set_mapsize(self._wanted_bytes)
        self._wanted_bytes = 0
        self._resize.notify_all()

    def view(self) -> _LmdbView:
        return _LmdbView(self)

    def begin_read(self) -> lmdb.Transaction:
        if self.before_read is not None:
            self.before_read()
        with self._resize:
            self._readers += 1
        try:
            return self._env.begin(buffers=False)
        except lmdb.Error as error:
            self._reader_left()
            raise StorageError(f"store cannot be read: {error}") from error

    def end_read(self, transaction: lmdb.Transaction) -> None:
        transaction.abort()
        self._reader_left()

    def _reader_left(self) -> None:
        with self._resize:
            self._readers -= 1
            # Here, not in the thread which waits: a busy reader might never leave it a gap.
            self._resize_if_unread()

    def size_bytes(self) -> tuple[int, int]:
        with self._resize:  # these look into the map, which must not move meanwhile
            info = self._env.info()
            page = self._env.stat()["psize"]
        return (info["last_pgno"] + 1) * page, info["map_size"]

    def free_bytes(self) -> int:
        with self.view() as view:
            filled = self._filled_bytes(view._transaction)
        return max(0, self.size_bytes()[0] - filled)

    def free_dead_readers(self) -> None:
        """A process which read this store has died: what it pinned is free again."""
        self._env.reader_check()

    def sync(self) -> None:
        """Force buffered commits to disk; `durability = "buffered"` calls this now and then."""
        self._env.sync(True)

    def close(self) -> None:
        self._sparing.end()
        self._env.sync(True)
        self._env.close()
        self._lock.close()

    def _check_format(self) -> None:
        with self._env.begin(write=True) as transaction:
            table = self._tables[META]
            found = transaction.get(FORMAT_KEY, db=table)
            if found is None:
                transaction.put(FORMAT_KEY, str(FORMAT_VERSION).encode(), db=table)
                transaction.put(STORE_ID, new_store_id(), db=table)
            else:
                check_format(found)


@contextlib.contextmanager
def read_only(data_dir: Path) -> Iterator[ReadTransaction]:
    """A view of a store from another process, or of one nobody has open. Keep it short.

    Raises:
        lmdb.Error: it does not open.
        StoreFormatError: another version wrote it.
    """
    with lmdb.open(
        str(data_dir / "store"), readonly=True, create=False, max_dbs=64, max_readers=512
    ) as environment:
        with environment.begin(db=environment.open_db(b"meta", create=False)) as transaction:
            check_format(transaction.get(FORMAT_KEY))
        tables = [environment.open_db(name.encode(), create=False) for name in TABLE_NAMES]
        with environment.begin() as transaction:
            yield LmdbTransaction(transaction, tables)


class _LmdbView:
    def __init__(self, store: LmdbStore) -> None:
        self._store = store
        self._transaction: lmdb.Transaction | None = None

    def __enter__(self) -> LmdbTransaction:
        self._transaction = self._store.begin_read()
        return LmdbTransaction(self._transaction, self._store._tables)

    def __exit__(self, *exc: object) -> None:
        assert self._transaction is not None
        self._store.end_read(self._transaction)
        self._transaction = None


def _adds_messages(batch: Batch) -> bool:
    """Whether a full store must refuse this; what only settles or deletes makes room."""
    for table in MESSAGE_TABLES:
        for value in batch.tables[table].values():
            if value is not None:
                return True
    return False


def _message_bytes(batch: Batch) -> int:
    size = 0
    for table in MESSAGE_TABLES:
        for value in batch.tables[table].values():
            size += len(value or b"")
    return size


def _full(limit: int) -> StorageError:
    return StorageError(f"store has reached storage.map_size_bytes_max = {limit} bytes")


def new_store_id() -> bytes:
    return os.urandom(8).hex().encode()


def check_format(found: bytes | memoryview | None) -> None:
    version = bytes(found or b"none").decode(errors="replace")
    if version != str(FORMAT_VERSION):
        raise StoreFormatError(f"store has format {version}, this version reads {FORMAT_VERSION}")


def _used_bytes(path: Path) -> int:
    data = path / "data.mdb"
    return data.stat().st_size if data.exists() else 0
