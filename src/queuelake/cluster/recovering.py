"""A cluster begins again with the stores of one node: after logs were lost, or from a backup.

The node is stopped meanwhile. The store of each shard is made one which is part of no cluster, and
its log is deleted; so when the node starts first, it begins the logs with what it has, as the first
node of any cluster does, and the others copy its stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from queuelake.cluster import nats_streams
from queuelake.cluster.engine import EngineError
from queuelake.cluster.founding import leave_cluster
from queuelake.cluster.nats_link import ApiError, Link
from queuelake.cluster.nats_log import NatsLeases
from queuelake.cluster.nats_messenger import NatsMessenger
from queuelake.cluster.replica import Position
from queuelake.cluster_settings import ClusterConfig
from queuelake.errors import BrokerDownError, ConflictError
from queuelake.storage.api import Store

PATIENCE_S: Final = 10.0


class Situation(NamedTuple):
    """What recovery of a shard would begin with, and what it would give up."""

    position: int  # how far the store is; 0: it is part of no cluster
    log_last: int  # -1: there is no log

    @property
    def is_lost(self) -> bool:
        """Whether the log has less than the store."""
        return self.log_last < self.position


class Recovery:
    """`async with Recovery(config, stores)`: look, then begin again. The stores are by shard."""

    def __init__(self, config: ClusterConfig, stores: Sequence[Store]) -> None:
        self._config = config
        self._stores = stores

    async def __aenter__(self) -> Recovery:
        try:
            async with asyncio.timeout(PATIENCE_S):
                self._link = await Link.connect(self._config)
        except TimeoutError:
            urls = ", ".join(self._config.urls)
            raise BrokerDownError(
                f"no NATS server answers within {PATIENCE_S:g} s: {urls}"
            ) from None
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._link.close()

    async def look(self) -> list[Situation]:
        """That of each shard.

        Raises:
            ConflictError: the cluster is served: nothing needs to be recovered.
            EngineError: NATS cannot say.
        """
        return [await self._look(shard, store) for shard, store in enumerate(self._stores)]

    async def _look(self, shard: int, store: Store) -> Situation:
        await self._refuse_owner(shard)
        with store.view() as view:
            position = Position.read(view).position
        try:
            info = await self._link.call(f"STREAM.INFO.{self._stream(shard)}", {})
        except ApiError as error:
            if error.number != nats_streams.STREAM_NOT_FOUND:
                raise
            return Situation(position, -1)
        return Situation(position, int(info["state"]["last_seq"]))

    async def begin_again(self) -> None:
        """The log first: a store without a position never follows one which is there."""
        for shard, store in enumerate(self._stores):
            call = f"STREAM.DELETE.{self._stream(shard)}"
            try:
                await self._link.call(call, {}, nats_streams.CREATE_TIMEOUT_S)
            except ApiError as error:
                if error.number != nats_streams.STREAM_NOT_FOUND:
                    raise
            leave_cluster(store)

    def _stream(self, shard: int) -> str:
        name: str = nats_streams.log_stream(self._config, shard)["name"]
        return name

    async def _refuse_owner(self, shard: int) -> None:
        """The record of the lease stays, so that epochs go on rising."""
        try:
            leases = NatsLeases(self._link, nats_streams.bucket(self._config), shard)
            lease, _ = await leases.read()
        except EngineError:
            return  # there is no record, or nobody leads it: then nobody owns anything
        if lease is None or not lease.node:
            return
        messenger = NatsMessenger(self._link, self._config.name, self._config.node_name)
        if await messenger.is_there(lease.node):
            raise ConflictError(f"node {lease.node!r} is running; stop all nodes first")
