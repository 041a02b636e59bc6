"""All clients of a node whose cluster has several shards."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, TypeVar

from queuelake.broker.front.front import Front
from queuelake.placing import Placing
from queuelake.settings import Mqtt

HOLD_S: Final = 10.0  # while a shard has no owner, a client which connects waits this long

T = TypeVar("T")


class Shards(Protocol):
    """What a front needs of its node."""

    placing: Placing

    def owner(self, shard: int) -> str: ...

    def open(
        self, shard: int, info: dict[str, object], protocol: asyncio.Protocol
    ) -> asyncio.Transport:
        """A client's connection to the broker of a shard.

        Raises:
            BrokerDownError: nobody owns it.
        """
        ...

    async def ask(self, shard: int, name: str, args: dict[str, object], kind: type[T]) -> T: ...


class Fronts:
    """Whoever learns that the owner of a shard has changed calls `owner_changed`."""

    def __init__(self, node: Shards, mqtt: Mqtt, hold_s: float = HOLD_S) -> None:
        self.node = node
        self.placing = node.placing
        self.mqtt = mqtt
        self.hold_s = hold_s
        self.all: set[Front] = set()
        self._news = asyncio.Event()  # another one each time

    def front(self, listener: str) -> Front:
        return Front(self, listener)

    def owner_changed(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def all_owned(self) -> None:
        """Wait until every shard has an owner."""
        while not all(self.node.owner(shard) for shard in range(self.placing.shards)):
            await self._news.wait()

    def keepalive_s(self, asked_s: int) -> int:
        """What brokers make of the keep-alive a client asks for."""
        limit = self.mqtt.keepalive_s_max
        return limit if limit and (asked_s == 0 or asked_s > limit) else asked_s

    def close(self) -> None:
        """Part with all clients."""
        for front in list(self.all):
            front.part()
