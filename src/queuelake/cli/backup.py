"""`queuelake backup`: a consistent, compacted copy of the store, of a running or stopped broker.

The copy is one LMDB read transaction: what was committed when it began, all of it and nothing
later. It is written under another name and renamed when it is complete and synced, so that an
interrupted backup is never taken for one. The target is a data directory: `serve` it to restore.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from queuelake.cli.options import Assignments, Config, DataDir, read_settings
from queuelake.errors import RefusedError, StorageError

STORE_NAME = "store"
PARTIAL_NAME = "store.partial"
READERS_MAX = 512
ATTEMPTS_MAX = 10
ROOM_BYTES = 1024 * 1024

EPILOG = """
Examples:

  queuelake backup /backup/2026-01-31
  queuelake backup /backup/now --data-dir ./data
  queuelake serve --data-dir /backup/2026-01-31    restore: serve a copy of the backup

The broker may run meanwhile. The backup holds sessions, subscriptions, queued and retained
messages; not the configuration, the users and the API key.
"""


def backup(
    target: Annotated[str, typer.Argument(metavar="DIR", help="A new or empty directory.")],
    config: Config = None,
    data_dir: DataDir = None,
    assignments: Assignments = None,
) -> None:
    """Copy the store, compacted, to a new directory; the broker may run."""
    settings = read_settings(config, data_dir, assignments)
    source = Path(settings.data_dir) / STORE_NAME
    if not (source / "data.mdb").is_file():
        raise RefusedError(f"{settings.data_dir}: holds no store, so there is nothing to back up")
    directory = Path(target)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = sorted(entry.name for entry in directory.iterdir())
    if found:
        raise RefusedError(f"{directory}: holds {found[0]!r}; name a new or empty directory")
    size_bytes = copy_store(source, directory)
    print(f"backup of {source} is in {directory}: {size_bytes} bytes")


def copy_store(source: Path, directory: Path) -> int:
    """Copy the LMDB environment `source` to `directory/store`; return the size of the copy."""
    partial = directory / PARTIAL_NAME
    partial.mkdir(mode=0o700)
    try:
        _copy(source, partial)
        _give_new_id(partial)
        data = partial / "data.mdb"
        data.chmod(0o600)
        for path in (data, partial):
            _sync(path)
        partial.rename(directory / STORE_NAME)
        _sync(directory)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return (directory / STORE_NAME / "data.mdb").stat().st_size


def _copy(source: Path, partial: Path) -> None:
    import lmdb

    for attempt in range(ATTEMPTS_MAX):
        try:
            with lmdb.open(
                str(source), readonly=True, create=False, max_readers=READERS_MAX
            ) as environment:
                environment.copy(str(partial), compact=True)
            return
        except lmdb.MapResizedError:
            # The broker grew the map between our opening and our reading: open it again.
            if attempt == ATTEMPTS_MAX - 1:
                raise StorageError(f"store {source} grows faster than it can be opened") from None
            (partial / "data.mdb").unlink(missing_ok=True)
        except lmdb.Error as error:
            raise StorageError(f"backup of {source} failed: {error}") from error


def _give_new_id(partial: Path) -> None:
    """The copy and the original will give the same sequences to different messages: to the lake
    their queues must not be the same."""
    import lmdb

    from queuelake.storage.lmdb_store import STORE_ID, new_store_id

    size = (partial / "data.mdb").stat().st_size + ROOM_BYTES
    with lmdb.open(str(partial), map_size=size, max_dbs=1, lock=False) as environment:
        try:
            table = environment.open_db(b"meta", create=False)
        except lmdb.NotFoundError:
            return  # no store of ours; `serve` and `doctor` say so
        with environment.begin(write=True, db=table) as transaction:
            transaction.put(STORE_ID, new_store_id())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
