"""A consistent, compacted copy of the store, of a running or stopped broker.

The copy is one LMDB read transaction: what was committed when it began, all of it and nothing
later. It is written under another name and renamed when it is complete and synced, so that an
interrupted backup is never taken for one. The target is a data directory: `serve` it to restore.

LMDB may not be opened twice by one process: a broker starts `python -m queuelake.storage.backup`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from queuelake.errors import StorageError

STORE_NAME = "store"
PARTIAL_NAME = "store.partial"
READERS_MAX = 512
ATTEMPTS_MAX = 10
ROOM_BYTES = 1024 * 1024
KEEP_ID = "--keep-id"


def copy_store(source: Path, directory: Path, *, keep_id: bool = False) -> int:
    """Copy the LMDB environment `source` to `directory/store`; return the size of the copy.

    `keep_id`: the copy will be a replica, which gives no sequence to anything else.
    """
    partial = directory / PARTIAL_NAME
    partial.mkdir(mode=0o700)
    try:
        _copy(source, partial)
        if not keep_id:
            _give_new_id(partial)
        data = partial / "data.mdb"
        data.chmod(0o600)
        for path in (data, partial):
            sync_path(path)
        partial.rename(directory / STORE_NAME)
        sync_path(directory)
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


def sync_path(path: Path) -> None:
    """Sync a file or a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def main(source: str, directory: str, *options: str) -> int:
    try:
        copy_store(Path(source), Path(directory), keep_id=KEEP_ID in options)
    except (StorageError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
