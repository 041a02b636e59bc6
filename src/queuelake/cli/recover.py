"""`queuelake cluster recover`: a cluster begins again with the store of this node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from queuelake.cli.options import Assignments, Config, DataDir
from queuelake.cli.reading import read_settings
from queuelake.cli.rest import Yes, confirm
from queuelake.errors import ConflictError, RefusedError

if TYPE_CHECKING:
    from queuelake.cluster.recovering import Situation
    from queuelake.settings import Settings


def recover(
    config: Config = None,
    data_dir: DataDir = None,
    assignments: Assignments = None,
    discard_log: Annotated[
        bool,
        typer.Option("--discard-log", help="Also when the log is whole: to restore a backup."),
    ] = False,
    yes: Yes = False,
) -> None:
    """Begin the cluster again with the store of this node, which is stopped.

    For a log which was lost while stores survived, and to restore a backup. The log in NATS is
    deleted. Start this node first, then the others with empty data directories.
    """
    import asyncio

    from queuelake.storage.backup import STORE_NAME

    settings = read_settings(config, data_dir, assignments)
    if not settings.cluster.enabled:
        raise RefusedError("cluster.enabled is false: this node is part of no cluster")
    if not (Path(settings.data_dir) / STORE_NAME / "data.mdb").is_file():
        raise RefusedError(f"{settings.data_dir}: holds no store to begin with")
    asyncio.run(_recover(settings, discard_log, yes))
    print(f"done: start node {settings.cluster.node_name} now, and the others when it is ready")


async def _recover(settings: Settings, discard_log: bool, yes: bool) -> None:
    from queuelake.cluster.recovering import Recovery
    from queuelake.storage.lmdb_store import LmdbStore

    store = LmdbStore(Path(settings.data_dir), settings.storage)  # refused while the node runs
    try:
        async with Recovery(settings.cluster, store) as recovery:
            situation = await recovery.look()
            if situation.log_last > 0 and not situation.is_lost and not discard_log:
                raise ConflictError(
                    f"the log is there, up to position {situation.log_last}, and this store is at "
                    f"{situation.position}; --discard-log gives the log up for this store"
                )
            print(_told(situation, settings.cluster.name), flush=True)
            confirm("Begin again with this store?", yes)
            await recovery.begin_again()
    finally:
        store.close()


def _told(situation: Situation, name: str) -> str:
    log = f"ends at position {situation.log_last}" if situation.log_last >= 0 else "does not exist"
    there = f"is at position {situation.position}" if situation.position else "has no position"
    return (
        f"The store of this node {there}; the log of cluster {name} {log}.\n"
        "The log will be deleted, and the cluster begins again with this store. What only other\n"
        "stores or the log have is lost: choose the node whose position is highest. The other\n"
        "nodes have to start with empty data directories; keep the old ones until all is well."
    )
