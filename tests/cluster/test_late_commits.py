"""The own store of an owner comes after the log: who reads it waits, and never for nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from queuelake.broker.node.late_commits import LateCommits
from queuelake.errors import StorageError
from queuelake.settings import Storage
from queuelake.storage.api import RETAINED, Batch
from queuelake.storage.lmdb_store import LmdbStore

KEY = b"k"


class SlowStore:
    """Commits when it is let; a compiled store cannot be inherited from."""

    def __init__(self, data_dir: Path, settings: Storage | None = None) -> None:
        self.inner = LmdbStore(data_dir, settings, replicated=True)
        self.has_room = self.inner.has_room
        self.reached = threading.Event()
        self.let = threading.Event()
        self.fails = False

    def late_commits(self) -> LateCommits:
        return LateCommits(cast(LmdbStore, self), asyncio.get_running_loop())

    @property
    def before_read(self) -> Callable[[], None] | None:
        return self.inner.before_read

    @before_read.setter
    def before_read(self, callback: Callable[[], None] | None) -> None:
        self.inner.before_read = callback

    def commit(self, batch: Batch) -> None:
        self.reached.set()
        assert self.let.wait(10)
        if self.fails:
            raise StorageError("the disk is gone")
        self.inner.commit(batch)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SlowStore]:
    store = SlowStore(tmp_path)
    yield store
    store.inner.close()


def value(store: SlowStore) -> bytes | None:
    with store.inner.view() as view:
        return view.get(RETAINED, KEY)


def batch_of(text: bytes) -> Batch:
    batch = Batch()
    batch.put(RETAINED, KEY, text)
    return batch


async def test_who_reads_waits_for_what_others_were_told_of(store: SlowStore) -> None:
    commits = store.late_commits()
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    assert commits.submit(batch_of(b"1"), ended.set_result)
    assert await asyncio.to_thread(store.reached.wait, 10)
    reading = asyncio.create_task(asyncio.to_thread(value, store))
    assert not ended.done()
    store.let.set()
    assert await reading == b"1"
    assert await ended == ""
    commits.close()


async def test_who_reads_does_not_wait_for_what_nobody_was_told_of(store: SlowStore) -> None:
    """What it replaces is known afterwards only, so others are told afterwards."""
    commits = store.late_commits()
    batch = batch_of(b"1")
    batch.replaces.add(b"an owner and a key")
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    assert not commits.submit(batch, ended.set_result)
    assert await asyncio.to_thread(store.reached.wait, 10)
    assert value(store) is None
    store.let.set()
    assert await ended == ""
    assert value(store) == b"1"
    commits.close()


async def test_nobody_is_told_early_when_the_map_may_have_to_grow(tmp_path: Path) -> None:
    """It grows when nobody reads, and who reads would wait for it."""
    settings = Storage(map_size_bytes_initial=1024 * 1024)
    small = SlowStore(tmp_path, settings)
    small.let.set()
    commits = small.late_commits()
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    assert not commits.submit(batch_of(b"x" * 2_000_000), ended.set_result)
    assert await ended == ""
    assert len(value(small) or b"") == 2_000_000
    commits.close()
    small.inner.close()


async def test_a_store_which_failed_behind_what_was_told_is_not_read(store: SlowStore) -> None:
    commits = store.late_commits()
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    store.fails = True
    store.let.set()
    assert commits.submit(batch_of(b"1"), ended.set_result)
    with pytest.raises(StorageError, match="behind the log: the disk is gone"):
        value(store)  # waits for it
    assert await ended == "the disk is gone"
    assert value(store) is None, "the owner is none any more, and whoever follows reads on here"
    commits.close()
