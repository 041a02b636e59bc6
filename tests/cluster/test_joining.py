"""Which data directories a node may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuelake.broker.node.joining import prepare_directories
from queuelake.errors import ConfigError
from queuelake.storage.lmdb_store import LmdbStore
from queuelake.storage.shards import count, directory_of


def test_there_is_a_directory_for_each_shard_and_one_shard_needs_none(tmp_path: Path) -> None:
    prepare_directories(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []
    prepare_directories(tmp_path, 12)
    assert count(tmp_path) == 12
    for _ in range(2):  # and once more when it is started again
        for shard in range(12):
            LmdbStore(directory_of(tmp_path, shard)).close()
        prepare_directories(tmp_path, 12)


@pytest.mark.parametrize(("used", "wanted"), [(3, 1), (3, 2), (1, 3)])
def test_stores_for_another_number_are_refused(tmp_path: Path, used: int, wanted: int) -> None:
    prepare_directories(tmp_path, used)
    LmdbStore(tmp_path).close()
    words = f"cluster.shards = {wanted}: the data directory .* has stores for {used}"
    with pytest.raises(ConfigError, match=words):
        prepare_directories(tmp_path, wanted)
