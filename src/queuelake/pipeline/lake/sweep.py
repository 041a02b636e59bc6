"""Taking away files which nobody needs: what failed batches left, what was replaced long ago."""

from __future__ import annotations

from pyarrow import fs

from queuelake.pipeline.lake.lease import HeldLease
from queuelake.pipeline.lake.table import LakeTable


def sweep(table: LakeTable, lease: HeldLease) -> int:
    """Remove what jobs which are no more have written and not committed.

    The fence comes first. Whoever had the lease before and does not know that it is over cannot
    commit any of these files afterwards.
    """
    table.fence(lease)
    return remove(table, table.leftovers(lease.epoch), lease)


def vacuum(table: LakeTable, lease: HeldLease, hours: int) -> int:
    """Remove files which were replaced more than so many hours ago; earlier versions need them."""
    table.fence(lease)
    return remove(table, table.replaced(hours), lease)


def remove(table: LakeTable, paths: list[str], lease: HeldLease) -> int:
    files, root = fs.FileSystem.from_uri(table.uri)
    for path in paths:
        lease.check()
        try:
            files.delete_file(f"{root}/{path}")
        except FileNotFoundError:
            continue
    return len(paths)
