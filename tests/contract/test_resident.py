"""What was read from the store does not stay in the memory of the process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from queuelake.settings import Storage
from queuelake.storage.api import META, Batch
from queuelake.storage.lmdb_store import LmdbStore
from queuelake.storage.resident import MappedFile

MIB = 1024 * 1024


def file_backed_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[2]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_pages_which_were_read_are_given_back_and_can_be_read_again(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, Storage(map_size_bytes_initial=256 * MIB))
    for number in range(64):
        batch = Batch()
        batch.put(META, b"x%d" % number, bytes([number]) * MIB)
        store.commit(batch)

    def read_all() -> None:
        with store.view() as view:
            values = [view.get(META, b"x%d" % number) for number in range(64)]
        assert values == [bytes([number]) * MIB for number in range(64)]

    read_all()
    before = file_backed_bytes()
    MappedFile(tmp_path / "store" / "data.mdb").drop_pages_above(0)
    assert before - file_backed_bytes() > 50 * MIB
    read_all()
    store.close()
