"""What was read from the store does not stay in the memory of the process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock

import pytest

from queuelake.settings import Storage
from queuelake.storage.api import META, Batch
from queuelake.storage.lmdb_store import LmdbStore
from queuelake.storage.resident import MappedFile

MIB = 1024 * 1024


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def file_backed_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[2]) * 4096


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    """With 64 values of a MiB."""
    store = LmdbStore(tmp_path, Storage(map_size_bytes_initial=256 * MIB))
    for number in range(64):
        batch = Batch()
        batch.put(META, b"x%d" % number, bytes([number]) * MIB)
        store.commit(batch)
    yield store
    store.close()


def read_all(store: LmdbStore) -> None:
    with store.view() as view:
        values = [view.get(META, b"x%d" % number) for number in range(64)]
    assert values == [bytes([number]) * MIB for number in range(64)]


def test_pages_which_were_read_are_given_back_and_can_be_read_again(
    tmp_path: Path, store: LmdbStore
) -> None:
    with store._still:  # nobody else gives them back
        read_all(store)
        before = file_backed_bytes()
        MappedFile(tmp_path / "store" / "data.mdb").drop_pages_above(0)
        assert before - file_backed_bytes() > 50 * MIB
        read_all(store)


def test_they_are_given_back_while_nobody_asks_for_it(store: LmdbStore) -> None:
    end_s = time.monotonic() + 30
    while not shrinks_after_reading(store):  # it may have been done before we looked
        assert time.monotonic() < end_s
    read_all(store)


def shrinks_after_reading(store: LmdbStore) -> bool:
    read_all(store)
    before = file_backed_bytes()
    end_s = time.monotonic() + 3
    while time.monotonic() < end_s:
        if before - file_backed_bytes() > 50 * MIB:
            return True
        time.sleep(0.05)
    return False


def test_the_map_grows_and_is_opened_anew_while_pages_are_given_back(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, Storage(map_size_bytes_initial=4 * MIB))
    data = MappedFile(tmp_path / "store" / "data.mdb")
    with ThreadPoolExecutor(1) as pool:
        done = Event()
        sparing = pool.submit(_drop_all_the_time, data, store._still, done)
        for number in range(64):
            batch = Batch()
            batch.put(META, b"x%d" % number, bytes([number]) * MIB)
            store.commit(batch)
            if number % 8 == 0:
                store._reopen()
        done.set()
        sparing.result()
    read_all(store)
    store.close()


def _drop_all_the_time(data: MappedFile, still: Lock, done: Event) -> None:
    while not done.is_set():
        with still:
            data.drop_pages_above(0)
