"""`queuelake` whose broker is several ones behind a front, in one process and without NATS.

    QUEUELAKE_TEST_SHARDS=3 pytest tests/conformance

lets every test which starts a broker have such a one: what a client sees must be the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from queuelake.broker.connection import Connection
from queuelake.broker.front import pair
from queuelake.broker.front.fronts import Fronts
from queuelake.broker.listener import ClientProtocol
from queuelake.broker.node.spreading import Spread
from queuelake.broker.operation import Operation
from queuelake.broker.server import Server
from queuelake.broker.serving import Place, Serving, _refuse
from queuelake.control_cluster import OPERATIONS as OF_CLUSTERS
from queuelake.placing import Placing
from queuelake.storage.lmdb_store import LmdbStore
from tests.harness.broker import SHARDS_VARIABLE

T = TypeVar("T")


class LocalShards:
    """A node which owns every shard of a cluster of one."""

    def __init__(self, place: Place, shards: int) -> None:
        cluster = msgspec.structs.replace(place.settings.cluster, enabled=True, shards=shards)
        place = place._replace(settings=msgspec.structs.replace(place.settings, cluster=cluster))
        settings = place.settings
        self.shards = shards
        self.placing = Placing(shards, settings.sdv.heartbeat_topics)
        self.stores = [LmdbStore(_directory(place, k), settings.storage) for k in range(shards)]
        self.servings = [Serving(place, store, shard=k) for k, store in enumerate(self.stores)]
        self.fronts = Fronts(self, settings.mqtt)

    async def start(self) -> None:
        for serving in self.servings:
            await serving.start()

    async def stop(self) -> None:
        for serving in self.servings:
            await serving.stop()
        self.fronts.close()

    def close(self) -> None:
        for store in self.stores:
            store.close()

    def owner(self, shard: int) -> str:
        return "here"

    def open(
        self, shard: int, info: dict[str, object], protocol: asyncio.Protocol
    ) -> asyncio.Transport:
        connection = Connection(self.servings[shard].broker, str(info["listener"]))
        return pair.connect(protocol, cast(asyncio.Protocol, connection), info)

    async def ask(self, shard: int, name: str, args: dict[str, object], kind: type[T]) -> T:
        found = self.servings[shard].operations[name](args)
        if asyncio.iscoroutine(found):
            found = await found
        return cast(T, found)

    def protocol(self, listener: str) -> ClientProtocol:
        return self.fronts.front(listener)

    def table(self, own: Mapping[str, Operation]) -> Mapping[str, Operation]:
        return Spread({**dict.fromkeys(OF_CLUSTERS, _refuse), **own}, self)

    def reload(self) -> None:
        for serving in self.servings:
            serving.reload()

    def sync(self) -> None:
        for store in self.stores:
            store.sync()

    def free_dead_readers(self) -> None:
        for store in self.stores:
            store.free_dead_readers()


def _directory(place: Place, shard: int) -> Path:
    return place.data_dir / "shards" / str(shard) if shard else place.data_dir


async def _open_node(self: Server, place: Place, stack: contextlib.AsyncExitStack) -> LocalShards:
    node = LocalShards(place, int(os.environ[SHARDS_VARIABLE]))
    stack.callback(node.close)
    return node


def main() -> None:
    from queuelake.cli.main import main as queuelake

    Server._open_node = _open_node  # type: ignore[method-assign]
    queuelake()


if __name__ == "__main__":
    main()
