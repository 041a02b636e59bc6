"""A cluster begins again with the store of one node: after its log was lost, or from a backup.

The node is stopped meanwhile. Its store is made one which is part of no cluster, and the log is
deleted; so when it starts first, it begins the log with what it has, as the first node of any
cluster does, and the others copy its store.
"""

from __future__ import annotations

import asyncio
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
SHARD: Final = 0


class Situation(NamedTuple):
    """What recovery would begin with, and what it would give up."""

    position: int  # how far the store is; 0: it is part of no cluster
    log_last: int  # -1: there is no log

    @property
    def is_lost(self) -> bool:
        """Whether the log has less than the store."""
        return self.log_last < self.position


class Recovery:
    """`async with Recovery(config, store)`: look, then begin again."""

    def __init__(self, config: ClusterConfig, store: Store) -> None:
        self._config = config
        self._store = store
        self._stream = nats_streams.log_stream(config, SHARD)["name"]

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

    async def look(self) -> Situation:
        """
        Raises:
            ConflictError: the cluster is served: nothing needs to be recovered.
            EngineError: NATS cannot say.
        """
        await self._refuse_owner()
        with self._store.view() as view:
            position = Position.read(view).position
        try:
            info = await self._link.call(f"STREAM.INFO.{self._stream}", {})
        except ApiError as error:
            if error.number != nats_streams.STREAM_NOT_FOUND:
                raise
            return Situation(position, -1)
        return Situation(position, int(info["state"]["last_seq"]))

    async def begin_again(self) -> None:
        """The log first: a store without a position never follows one which is there."""
        try:
            await self._link.call(
                f"STREAM.DELETE.{self._stream}", {}, nats_streams.CREATE_TIMEOUT_S
            )
        except ApiError as error:
            if error.number != nats_streams.STREAM_NOT_FOUND:
                raise
        leave_cluster(self._store)

    async def _refuse_owner(self) -> None:
        """The record of the lease stays, so that epochs go on rising."""
        try:
            leases = NatsLeases(self._link, nats_streams.bucket(self._config), SHARD)
            lease, _ = await leases.read()
        except EngineError:
            return  # there is no record, or nobody leads it: then nobody owns anything
        if lease is None or not lease.node:
            return
        messenger = NatsMessenger(self._link, self._config.name, self._config.node_name)
        if await messenger.is_there(lease.node):
            raise ConflictError(f"node {lease.node!r} is running; stop all nodes first")
