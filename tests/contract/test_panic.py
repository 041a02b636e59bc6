"""LMDB gives up for good when it cannot write its head page; the store does not."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

from queuelake.errors import StorageError
from queuelake.storage.api import META, Batch
from queuelake.storage.lmdb_store import LmdbStore


class Panicking:
    """An environment after a failed write of its head: every transaction is refused."""

    def __init__(self, real: lmdb.Environment) -> None:
        self._real = real

    def begin(self, **_options: object) -> object:
        raise lmdb.PanicError("injected")

    def close(self) -> None:
        self._real.close()


def put(store: LmdbStore, key: bytes) -> None:
    batch = Batch()
    batch.put(META, key, b"here")
    store.commit(batch)


def test_after_a_panic_the_commit_fails_and_the_next_one_works(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    put(store, b"before")
    store._env = Panicking(store._env)  # type: ignore[assignment]
    with pytest.raises(StorageError, match="opened again"):
        put(store, b"refused")
    put(store, b"after")
    with store.view() as view:
        assert [view.get(META, key) for key in (b"before", b"refused", b"after")] == [
            b"here",
            None,
            b"here",
        ]
    store.close()
