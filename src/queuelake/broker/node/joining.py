"""A node joins its cluster: the engine, a log for each shard, then the node with its stores."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Final

from queuelake.broker.node.node import Node
from queuelake.broker.serving import Place
from queuelake.cluster.engine import EngineError, Log
from queuelake.cluster.nats_engine import NatsEngine
from queuelake.errors import ConfigError
from queuelake.storage import shards as stores
from queuelake.storage.backup import STORE_NAME

log = logging.getLogger("queuelake.node")

AGAIN_S: Final = 1.0


async def join(place: Place, stack: contextlib.AsyncExitStack) -> Node:
    """For as long as it takes: a cluster which starts has no majority at first."""
    config = place.settings.cluster
    engine = await NatsEngine.connect(config)
    stack.push_async_callback(engine.close)
    logs = [await _log_when_there(engine, shard) for shard in range(config.shards)]
    prepare_directories(place.data_dir, config.shards)
    node = Node(place, engine, logs)
    stack.callback(node.close_stores)
    return node


def prepare_directories(data_dir: Path, shards: int) -> None:
    """What is in a store was placed for so many shards; with more or fewer it is not found.

    Those of the others are made before there is any store, so one without them was a node alone.
    """
    found = stores.count(data_dir)
    if found > shards or (found == 1 < shards and (data_dir / STORE_NAME).exists()):
        words = f"cluster.shards = {shards}: the data directory {data_dir} has stores for {found}"
        raise ConfigError([words])
    for shard in range(1, shards):
        stores.directory_of(data_dir, shard).mkdir(mode=0o700, parents=True, exist_ok=True)


async def _log_when_there(engine: NatsEngine, shard: int) -> Log:
    told = ""
    while True:
        try:
            log_of_shard = await engine.log(shard)
            await engine.leases(shard)
            return log_of_shard
        except EngineError as error:
            if str(error) != told:
                told = str(error)
                log.warning("waiting for JetStream: %s", error)
            await asyncio.sleep(AGAIN_S)
