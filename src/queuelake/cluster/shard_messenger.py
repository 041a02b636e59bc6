"""Messages between nodes about one shard: what is said of one is not heard by those of another."""

from __future__ import annotations

from typing import final

from queuelake.cluster.engine import Messenger, Receiver


def messenger_of(messenger: Messenger, shard: int) -> Messenger:
    """The first shard has the subjects which a cluster of one shard always had."""
    return ShardMessenger(messenger, shard) if shard else messenger


@final
class ShardMessenger:
    def __init__(self, messenger: Messenger, shard: int) -> None:
        self.node = messenger.node
        self.payload_bytes_max = messenger.payload_bytes_max
        self._messenger = messenger
        self._prefix = f"shard.{shard}."

    def send(self, subject: str, data: bytes) -> None:
        self._messenger.send(self._prefix + subject, data)

    async def receive(self, subject: str, receiver: Receiver) -> None:
        await self._messenger.receive(self._prefix + subject, receiver)

    async def is_there(self, node: str) -> bool:
        return await self._messenger.is_there(node)
