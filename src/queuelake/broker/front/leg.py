"""The connection of one client to the broker of one shard, as the front has it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from queuelake.broker.front.server_packets import ServerPackets
from queuelake.protocol.packets import CONNACK

if TYPE_CHECKING:
    from queuelake.broker.front.front import Front


class Leg(asyncio.Protocol):
    """`connack` is done when the broker has answered CONNECT; until all have, the front wants
    nothing else."""

    def __init__(self, front: Front, shard: int) -> None:
        self.shard = shard
        self.connack: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.early: list[bytes] = []  # packets behind CONNACK
        self.is_lost = False
        self._front = front
        self._packets = ServerPackets()
        self._transport: asyncio.Transport | None = None

    # For the front

    def send(self, packets: list[bytes]) -> None:
        if self._transport is not None and packets:
            self._transport.write(packets[0] if len(packets) == 1 else b"".join(packets))

    def set_reading(self, wanted: bool) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def close(self) -> None:
        """What was sent is taken first."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # For the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        found = self._packets.feed(data)
        if not self.connack.done() and found and found[0][0] >> 4 == CONNACK:
            self.connack.set_result(found.pop(0))
        if found:
            self._front.from_shard(self, found)

    def pause_writing(self) -> None:
        self._front.shard_is_full(self.shard, True)

    def resume_writing(self) -> None:
        self._front.shard_is_full(self.shard, False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.is_lost = True
        if not self.connack.done():
            self.connack.set_exception(exc or ConnectionResetError("closed before CONNACK"))
            self.connack.exception()  # nobody may be waiting for it any more
        self._front.shard_lost(self, exc)
