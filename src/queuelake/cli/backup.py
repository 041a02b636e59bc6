"""`queuelake backup`: a consistent, compacted copy of the store, of a running or stopped broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from queuelake.cli.options import Assignments, Config, DataDir
from queuelake.cli.progress import growing
from queuelake.cli.reading import read_settings
from queuelake.errors import RefusedError

EPILOG = """
Examples:

  queuelake backup /backup/2026-01-31
  queuelake backup /backup/now --data-dir ./data
  queuelake serve --data-dir /backup/2026-01-31    restore: serve a copy of the backup

The broker may run meanwhile. The backup holds sessions, subscriptions, queued and retained
messages; not the configuration, the users and the API key. Of a node of a cluster with several
shards all stores are copied, one after the other.
"""


def backup(
    target: Annotated[str, typer.Argument(metavar="DIR", help="A new or empty directory.")],
    config: Config = None,
    data_dir: DataDir = None,
    assignments: Assignments = None,
) -> None:
    """Copy the store, compacted, to a new directory; the broker may run."""
    from queuelake.storage import shards
    from queuelake.storage.backup import PARTIAL_NAME, STORE_NAME, copy_store

    settings = read_settings(config, data_dir, assignments)
    source = Path(settings.data_dir) / STORE_NAME
    if not (source / "data.mdb").is_file():
        raise RefusedError(f"{settings.data_dir}: holds no store, so there is nothing to back up")
    directory = Path(target)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = sorted(entry.name for entry in directory.iterdir())
    if found:
        raise RefusedError(f"{directory}: holds {found[0]!r}; name a new or empty directory")
    # The first one last: with it the copy is a data directory.
    for shard in reversed(range(shards.count(Path(settings.data_dir)))):
        source = shards.directory_of(Path(settings.data_dir), shard) / STORE_NAME
        place = shards.directory_of(directory, shard)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The map is sparse: what it takes of the disk is what there is to copy, at most.
        expected = (source / "data.mdb").stat().st_blocks * 512
        with growing("backup", place / PARTIAL_NAME / "data.mdb", expected):
            size_bytes = copy_store(source, place)
        print(f"backup of {source} is in {place}: {size_bytes} bytes")
