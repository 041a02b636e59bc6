"""A client of three shards whose brokers do as a test says: its login, and its keep-alive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import pytest

from queuelake.broker.front import forwarded, pair
from queuelake.broker.front.front import Front, nudge_every_s
from queuelake.broker.front.fronts import Fronts
from queuelake.config_types import parse_duration
from queuelake.control import ClientInfo
from queuelake.placing import Placing
from queuelake.protocol import encoder, packets, reasons
from queuelake.protocol.packets import V5, V311, Connect, Publish
from queuelake.queue_settings import Performance
from queuelake.settings import Mqtt
from tests.harness.packets import Packet
from tests.harness.reading import parse

SHARDS = 3
PEER = ["10.0.0.7", 4711]

T = TypeVar("T")


class Shard(asyncio.Protocol):
    """A broker's side of one leg; it says nothing by itself."""

    def __init__(self, info: dict[str, object]) -> None:
        self.info = info
        self.heard = b""
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def accept(self, version: int) -> None:
        self.transport.write(encoder.connack(version, False, reasons.SUCCESS))


class Node:
    """The legs of one client, by shard; `client` is what the home shard says of it."""

    def __init__(self) -> None:
        self.placing = Placing(SHARDS)
        self.shards: dict[int, Shard] = {}
        self.has_owners = True
        self.client = ClientInfo("c", True, "alice", "10.0.0.7:4711")

    def owner(self, shard: int) -> str:
        return "a" if self.has_owners else ""

    def open(
        self, shard: int, info: dict[str, object], protocol: asyncio.Protocol
    ) -> asyncio.Transport:
        self.shards[shard] = Shard(info)
        return pair.connect(protocol, self.shards[shard], info)

    async def ask(self, shard: int, name: str, args: dict[str, object], kind: type[T]) -> T:
        assert name == "client"
        return cast(T, self.client)


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.heard = b""
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True

    def packets(self, version: int) -> list[Packet]:
        found, data = [], self.heard
        while data:
            length = 2 + data[1]
            found.append(parse(data[:length], version))
            data = data[length:]
        return found


class World:
    """A client which has sent CONNECT to a front."""

    keepalive_s = 1
    packet_size_max = 20

    def __init__(self, version: int, mqtt: Mqtt, hold_s: float, has_owners: bool) -> None:
        self.node = Node()
        self.node.has_owners = has_owners
        self.fronts = Fronts(self.node, mqtt, hold_s)
        self.home = self.node.placing.of(b"c")
        self.client = Client()
        front = Front(self.fronts, "mqtt")
        pair.connect(self.client, front, {"peername": PEER})
        connect = Connect(version, "c", True, self.keepalive_s)
        connect.username, connect.password = "alice", b"secret"
        connect.packet_size_max = self.packet_size_max
        self.client.transport.write(forwarded.connect(connect, None, True))

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while True:
                if is_so():
                    return
                await asyncio.sleep(0)

    async def begun(self, shards: int) -> None:
        """So many shards have been asked."""
        shards_asked = self.node.shards
        await self.until(lambda: len([1 for one in shards_asked.values() if one.heard]) == shards)

    async def logged_in(self) -> None:
        await self.begun(1)
        self.node.shards[self.home].accept(V5)
        await self.begun(3)
        for shard in self.others:
            shard.accept(V5)
        await self.until(lambda: bool(self.client.heard))

    @property
    def others(self) -> list[Shard]:
        return [one for shard, one in self.node.shards.items() if shard != self.home]


def run(
    test: Callable[[World], Awaitable[None]],
    version: int = V5,
    mqtt: Mqtt | None = None,
    hold_s: float = 5.0,
    has_owners: bool = True,
) -> None:
    async def main() -> None:
        await test(World(version, mqtt or Mqtt(), hold_s, has_owners))

    asyncio.run(main())


def test_other_shards_are_told_whom_the_home_shard_has_proven_the_client_to_be() -> None:
    async def test(world: World) -> None:
        await world.logged_in()
        assert {one.info["proven_user"] for one in world.others} == {"alice"}
        assert len({one.info["login_ns"] for one in world.node.shards.values()}) == 1
        assert [one.type for one in world.client.packets(V5)] == [packets.CONNACK]

    run(test)


@pytest.mark.parametrize("version", [V311, V5])
def test_a_client_whose_home_shard_is_lost_while_others_are_asked_is_let_go(version: int) -> None:
    """Another one with its id has taken its place there; MQTT 3.1.1 has no word for that."""

    async def test(world: World) -> None:
        home = world.home
        await world.begun(1)
        world.node.shards[home].accept(version)
        await world.begun(3)
        world.node.shards[home].transport.close()
        await world.until(lambda: world.node.shards[home].is_lost)
        for shard in world.others:
            shard.accept(version)
        await world.until(lambda: world.client.is_closed)
        await world.until(lambda: all(one.is_lost for one in world.others))

    run(test, version)


@pytest.mark.parametrize(
    "client",
    [
        ClientInfo("c", True, "mallory", "10.0.0.8:4711"),
        ClientInfo("c", False, "mallory"),
    ],
)
def test_what_another_client_with_the_same_id_has_proven_does_not_count(client: ClientInfo) -> None:
    async def test(world: World) -> None:
        world.node.client = client
        await world.begun(1)
        world.node.shards[world.home].accept(V5)
        await world.until(lambda: world.client.is_closed)
        assert world.others == []
        assert world.client.packets(V5)[0].reason_code == reasons.SERVER_UNAVAILABLE

    run(test)


def test_a_client_without_an_owner_hears_so_though_the_time_for_connect_is_as_long() -> None:
    async def test(world: World) -> None:
        await world.until(lambda: world.client.is_closed)
        assert world.client.packets(V5)[0].reason_code == reasons.SERVER_UNAVAILABLE
        assert len(world.client.heard) <= World.packet_size_max

    run(test, mqtt=Mqtt(connect_timeout_s=0.05), hold_s=0.1, has_owners=False)


def test_while_a_shard_takes_nothing_the_silence_of_the_client_is_not_its_own() -> None:
    """Nobody reads its PINGREQ then, and the other shards must not cut it."""

    async def test(world: World) -> None:
        await world.logged_in()
        topic = b"some/topic"
        full = world.node.shards[world.node.placing.of_topic(topic)]
        full.transport.pause_reading()
        publish = Publish(topic, 0, False, False, 0, b"\0" + bytes(2 * pair.HIGH_BYTES), 1, 0, 0)
        world.client.transport.write(forwarded.publish(publish, topic, publish.body))
        others = [one for one in world.node.shards.values() if one is not full]
        begun_s = asyncio.get_running_loop().time()
        for shard in others:
            shard.heard = b""
        for _ in range(3):
            await world.until(lambda: all(one.heard == forwarded.PINGREQ for one in others))
            for shard in others:
                shard.heard = b""
        assert asyncio.get_running_loop().time() - begun_s < 3 * 1.5 * World.keepalive_s
        full.heard = b""
        full.transport.resume_reading()
        await world.until(lambda: bool(full.heard))
        assert full.heard.count(topic) == 1

    run(test)


@pytest.mark.parametrize("keepalive_s", [0, 1, 10, 60, 600, 65535])
def test_all_shards_hear_of_a_client_which_is_there_before_one_gives_it_up(
    keepalive_s: int,
) -> None:
    allowed_s = parse_duration(Performance().heartbeat_timeout) / 1000
    if keepalive_s:
        allowed_s = min(allowed_s, 0.5 * keepalive_s)
    assert 0 < nudge_every_s(keepalive_s) <= allowed_s / 2


def test_a_client_which_takes_short_packets_only_hears_no_words_about_its_mistake() -> None:
    async def test(world: World) -> None:
        await world.logged_in()
        unknown = Publish(b"", 0, False, False, 0, b"\x03\x23\0\x05", 4, 0, 5)
        world.client.transport.write(forwarded.publish(unknown, b"", unknown.body))
        await world.until(lambda: world.client.is_closed)
        goodbye = world.client.packets(V5)[-1]
        assert (goodbye.type, goodbye.reason_code) == (packets.DISCONNECT, reasons.PROTOCOL_ERROR)
        assert len(goodbye.raw) <= World.packet_size_max

    run(test)
