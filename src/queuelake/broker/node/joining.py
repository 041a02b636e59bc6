"""A node joins its cluster: a store for it, the engine, then the member."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from queuelake.broker.node.member import SHARD, Member
from queuelake.broker.serving import Place
from queuelake.cluster.engine import EngineError, Log
from queuelake.cluster.nats_engine import NatsEngine
from queuelake.storage.lmdb_store import LmdbStore

log = logging.getLogger("queuelake.node")

AGAIN_S: Final = 1.0


async def join(place: Place, stack: contextlib.AsyncExitStack) -> Member:
    """For as long as it takes: a cluster which starts has no majority at first."""
    config = place.settings.cluster

    def open_store() -> LmdbStore:
        return LmdbStore(place.data_dir, place.settings.storage, replicated=True)

    engine = await NatsEngine.connect(config)
    stack.push_async_callback(engine.close)
    shard_log = await _log_when_there(engine)
    member = Member(place, open_store, engine, shard_log)
    stack.callback(member.close_store)
    return member


async def _log_when_there(engine: NatsEngine) -> Log:
    told = ""
    while True:
        try:
            log_of_shard = await engine.log(SHARD)
            await engine.leases(SHARD)
            return log_of_shard
        except EngineError as error:
            if str(error) != told:
                told = str(error)
                log.warning("waiting for JetStream: %s", error)
            await asyncio.sleep(AGAIN_S)
