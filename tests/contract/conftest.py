"""Every implementation of `Store` passes the tests which ask for `store`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from queuelake.storage.api import Store
from queuelake.storage.lmdb_store import LmdbStore
from queuelake.storage.memory import MemoryStore


@pytest.fixture(params=["memory", "lmdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened: Store = MemoryStore() if request.param == "memory" else LmdbStore(tmp_path)
    yield opened
    opened.close()
