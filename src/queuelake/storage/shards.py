"""Where the stores of a node are: that of the first shard, or of a node alone, and the others."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = "shards"


def directory_of(data_dir: Path, shard: int) -> Path:
    """The directory which has the `store` of a shard."""
    return data_dir / FOLDER / str(shard) if shard else data_dir


def count(data_dir: Path) -> int:
    """How many shards there are directories for."""
    return 1 + sum(1 for _ in (data_dir / FOLDER).glob("[1-9]*"))
