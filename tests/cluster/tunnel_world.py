"""Nodes with tunnels on one network, and protocols which record what they are told."""

from __future__ import annotations

import asyncio

from queuelake.cluster.tunnel_transport import Tunnel
from queuelake.cluster.tunnels import Tunnels
from tests.cluster.wires import WireMessenger, Wires

NEVER_S = 3600.0  # tests beat themselves


class End(asyncio.Protocol):
    """Records what a protocol is told."""

    def __init__(self, name: object = None) -> None:
        self.name = name
        self.tunnel: Tunnel | None = None
        self.data = bytearray()
        self.pieces = 0
        self.is_paused = False
        self.is_over = False
        self.error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Tunnel)
        self.tunnel = transport

    def data_received(self, data: bytes) -> None:
        assert not self.is_over
        assert self.tunnel is not None
        assert self.tunnel.is_reading(), "it was told to wait"
        self.data += data
        self.pieces += 1

    def pause_writing(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_writing(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        assert not self.is_over, "twice"
        self.is_over = True
        self.error = exc


class World:
    """Nodes with tunnels, on one network."""

    def __init__(self, payload_bytes_max: int = 1024 * 1024) -> None:
        self.wires = Wires(payload_bytes_max)
        self.nodes: dict[str, Tunnels] = {}
        self.messengers: dict[str, WireMessenger] = {}
        self.ends: dict[str, list[End]] = {}  # accepted, by node

    async def start(self, name: str) -> Tunnels:
        """Start a node; if it is there it was killed."""
        if name in self.messengers:
            self.messengers[name].is_dead = True
        self.ends[name] = ends = []

        def accept(info: dict[str, object]) -> asyncio.Protocol | None:
            if info.get("refuse"):
                return None
            if info.get("fail"):
                raise RuntimeError("as the test asked")
            ends.append(End(info.get("name")))
            return ends[-1]

        messenger = self.messengers[name] = self.wires.messenger(name)
        node = Tunnels(messenger, {"test": accept}, heartbeat_s=NEVER_S, silence_s_max=3 * NEVER_S)
        await node.start()
        self.nodes[name] = node
        return node

    async def settle(self) -> None:
        """Until nothing moves any more."""
        still = 0
        while still < 3:
            await asyncio.sleep(0)
            still = 0 if self.wires.deliver() else still + 1

    async def beat(self, times: int = 1) -> None:
        for _ in range(times):
            for node in self.nodes.values():
                node.beat()
            await self.settle()

    def open(self, source: str, target: str, **info: object) -> tuple[Tunnel, End]:
        end = End(info.get("name"))
        return self.nodes[source].open(target, "test", info, end), end


def tunnel_of(end: End) -> Tunnel:
    assert end.tunnel is not None
    return end.tunnel
