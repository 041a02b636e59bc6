"""`queuelake cluster recover`: a cluster begins again with the stores of this node."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
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
    from queuelake.storage.shards import directory_of

    settings = read_settings(config, data_dir, assignments)
    if not settings.cluster.enabled:
        raise RefusedError("cluster.enabled is false: this node is part of no cluster")
    root = Path(settings.data_dir)
    directories = [directory_of(root, shard) for shard in range(settings.cluster.shards)]
    for directory in directories:
        if not (directory / STORE_NAME / "data.mdb").is_file():
            raise RefusedError(f"{directory}: holds no store to begin with")
    asyncio.run(_recover(settings, directories, discard_log, yes))
    print(f"done: start node {settings.cluster.node_name} now, and the others when it is ready")


async def _recover(
    settings: Settings, directories: Sequence[Path], discard_log: bool, yes: bool
) -> None:
    from queuelake.cluster.recovering import Recovery
    from queuelake.storage.lmdb_store import LmdbStore

    with contextlib.ExitStack() as stack:
        stores = []
        for directory in directories:
            stores.append(LmdbStore(directory, settings.storage))  # refused while the node runs
            stack.callback(stores[-1].close)
        async with Recovery(settings.cluster, stores) as recovery:
            situations = await recovery.look()
            for shard, situation in enumerate(situations):
                if situation.log_last > 0 and not situation.is_lost and not discard_log:
                    where = f" of shard {shard}" if len(stores) > 1 else ""
                    raise ConflictError(
                        f"the log{where} is there, up to position {situation.log_last}, and this "
                        f"store is at {situation.position}; --discard-log gives the log up for it"
                    )
            print(_told(situations, settings.cluster.name), flush=True)
            confirm("Begin again with this store?", yes)
            await recovery.begin_again()


def _told(situations: Sequence[Situation], name: str) -> str:
    if len(situations) == 1:
        lines = _line("The store of this node", situations[0], f"of cluster {name}")
        logs, stores, position = "The log", "this store", "position is"
    else:
        lines = "\n".join(
            _line(f"Shard {shard}: the store of this node", one, f"in cluster {name}")
            for shard, one in enumerate(situations)
        )
        logs, stores, position = "The logs", "these stores", "positions are"
    return (
        f"{lines}\n"
        f"{logs} will be deleted, and the cluster begins again with {stores}. What only other\n"
        f"stores or {logs.lower()} have is lost: choose the node whose {position} highest. "
        "The other\n"
        "nodes have to start with empty data directories; keep the old ones until all is well."
    )


def _line(subject: str, situation: Situation, where: str) -> str:
    log = f"ends at position {situation.log_last}" if situation.log_last >= 0 else "does not exist"
    there = f"is at position {situation.position}" if situation.position else "has no position"
    return f"{subject} {there}; the log {where} {log}."
