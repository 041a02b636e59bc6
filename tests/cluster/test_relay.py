"""A client at a node which is not the owner: real sockets here, a broker at the other end."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from queuelake.broker.certificates import certificate_user
from queuelake.broker.connection import Connection
from queuelake.broker.core import Broker
from queuelake.broker.websocket import WebSocketAdapter
from queuelake.cluster import relay as relay_module
from queuelake.cluster.relay import HELD_BYTES_MAX, Relays, client_info
from queuelake.cluster.tunnels import Tunnels
from queuelake.settings import Settings, Tls
from queuelake.storage.memory import MemoryStore
from tests.cluster.wires import Wires
from tests.harness.wire import Wire

TIMEOUT_S = 20.0


class Front:
    """Two nodes: `front` takes clients, `owner` has what `accept` makes of them."""

    def __init__(self, accept: Callable[[dict[str, object]], Any]) -> None:
        self.wires = Wires()
        self.wires.run()
        self.owner = "owner"
        self.front = Tunnels(self.wires.messenger("front"), {})
        self.far = Tunnels(self.wires.messenger("owner"), {"mqtt": accept})
        self.relays = Relays(self.front, lambda: self.owner)
        self.servers: list[asyncio.Server] = []

    async def start(self) -> None:
        await self.front.start()
        await self.far.start()

    async def listen(self, factory: Callable[[], Any]) -> int:
        server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
        self.servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def listen_tcp(self) -> int:
        return await self.listen(lambda: self.relays.relay("mqtt"))

    def close(self) -> None:
        for server in self.servers:
            server.close()
        self.front.close()
        self.far.close()


class Echo(asyncio.Protocol):
    """Sends back what it gets, as fast as it is taken; says when it is over."""

    def __init__(self) -> None:
        self.over: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.received = 0
        self.is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self.transport.write(data)

    def pause_writing(self) -> None:
        self.is_paused = True
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.is_paused = False
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set_result(exc)


class Echoes:
    """Makes them, and keeps them for the test."""

    def __init__(self) -> None:
        self.all: list[Echo] = []
        self.infos: list[dict[str, object]] = []

    def __call__(self, info: dict[str, object]) -> Echo:
        self.infos.append(info)
        self.all.append(Echo())
        return self.all[-1]


@pytest.fixture
def echoes() -> Echoes:
    return Echoes()


@pytest.fixture
async def front(echoes: Echoes) -> AsyncIterator[Front]:
    front = Front(echoes)
    await front.start()
    yield front
    front.close()


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(port: int) -> Streams:
    return await asyncio.open_connection("127.0.0.1", port)


async def until(holds: Callable[[], bool]) -> None:
    """What sockets do has no event of its own; callers have a timeout."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_a_client_is_served_through_the_tunnel(front: Front, echoes: Echoes) -> None:
    reader, writer = await connect(await front.listen_tcp())
    data = secrets.token_bytes(3_000_000)
    sending = asyncio.create_task(send(writer, data))
    async with asyncio.timeout(TIMEOUT_S):
        assert await reader.readexactly(len(data)) == data
        await sending
        host, port = writer.get_extra_info("sockname")
        assert echoes.infos == [{"listener": "mqtt", "peername": [host, port]}]
        writer.close()
        assert await echoes.all[0].over is None
    assert front.relays.all == set()


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def test_who_does_not_read_stops_who_writes_at_the_other_end(
    front: Front, echoes: Echoes
) -> None:
    """The client sends and never reads its echo: all buffers on the way fill, and no more."""
    reader, writer = await connect(await front.listen_tcp())
    other_reader, other_writer = await connect(await front.listen_tcp())
    sending = asyncio.create_task(send(writer, bytes(64 * 1024 * 1024)))
    async with asyncio.timeout(TIMEOUT_S):
        await until(lambda: bool(echoes.all) and echoes.all[0].is_paused)
        other_writer.write(b"not held up")
        assert await other_reader.readexactly(11) == b"not held up"
        assert not sending.done()
        assert echoes.all[0].received < 32 * 1024 * 1024, "mostly buffers of the kernel"
        count = 0
        while count < 64 * 1024 * 1024:
            count += len(await reader.read(1 << 20))
        await sending
    writer.close()
    other_writer.close()


async def test_when_the_owner_is_lost_the_client_is_let_go(front: Front, echoes: Echoes) -> None:
    reader, writer = await connect(await front.listen_tcp())
    writer.write(b"x")
    async with asyncio.timeout(TIMEOUT_S):
        assert await reader.readexactly(1) == b"x"
        front.front.lose("owner", "as the test asked")
        assert await reader.read() == b""
        assert isinstance(await echoes.all[0].over, ConnectionResetError)
    writer.close()


async def test_what_the_owner_said_last_arrives_before_the_end(
    front: Front, echoes: Echoes
) -> None:
    reader, writer = await connect(await front.listen_tcp())
    writer.write(b"x")
    async with asyncio.timeout(TIMEOUT_S):
        await reader.readexactly(1)
        echoes.all[0].transport.write(b"goodbye")
        echoes.all[0].transport.close()
        assert await reader.read() == b"goodbye"
    writer.close()


async def test_a_client_which_takes_nothing_is_cut_off_at_the_end(
    front: Front, echoes: Echoes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "CLOSE_TIMEOUT_S", 0.01)
    _, writer = await connect(await front.listen_tcp())
    writer.transport.pause_reading()
    writer.write(b"x")
    async with asyncio.timeout(TIMEOUT_S):
        await until(lambda: bool(echoes.all))
        echoes.all[0].transport.write(bytes(64 * 1024 * 1024))
        await asyncio.sleep(0)
        front.front.lose("owner", "as the test asked")
        await until(lambda: not front.relays.all)
    writer.close()


async def test_first_bytes_are_held_until_there_is_an_owner(front: Front, echoes: Echoes) -> None:
    front.owner = ""
    reader, writer = await connect(await front.listen_tcp())
    data = secrets.token_bytes(10 * HELD_BYTES_MAX)
    writer.write(data)
    async with asyncio.timeout(TIMEOUT_S):
        await until(lambda: bool(front.relays.held))
        front.relays.owner_changed()
        assert front.relays.held, "there is none yet"
        front.owner = "owner"
        front.relays.owner_changed()
        assert await reader.readexactly(len(data)) == data
    assert len(echoes.all) == 1
    writer.close()


async def test_without_an_owner_a_client_hears_the_last_words(front: Front) -> None:
    front.owner = ""
    front.relays.hold_s = 0.2
    front.relays.last_words = lambda held: b"nobody answers " + held
    reader, writer = await connect(await front.listen_tcp())
    writer.write(b"hello?")
    async with asyncio.timeout(TIMEOUT_S):
        assert await reader.read() == b"nobody answers hello?"
    writer.close()


async def test_clients_which_leave_while_they_are_held_are_forgotten(front: Front) -> None:
    front.owner = ""
    _, writer = await connect(await front.listen_tcp())
    async with asyncio.timeout(TIMEOUT_S):
        await until(lambda: bool(front.relays.held))
        writer.close()
        await until(lambda: not front.relays.all)
    assert front.relays.held == set()


def test_the_owner_learns_the_user_of_a_certificate() -> None:
    class Transport(asyncio.Transport):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            subject = ((("organizationName", "Cars"),), (("commonName", "car-1"),))
            return {"peername": ("10.0.0.1", 7, 0, 0), "peercert": {"subject": subject}}.get(name)

    info = client_info(Transport(), "mqtts")
    assert info["peername"] == ["10.0.0.1", 7]
    there = Transport()
    there.get_extra_info = info.get  # type: ignore[assignment]
    assert certificate_user(there, Tls(username_from="cn")) == "car-1"


@contextlib.asynccontextmanager
async def broker_behind() -> AsyncIterator[tuple[Front, Broker]]:
    broker = Broker(Settings(), MemoryStore(), asyncio.get_running_loop())
    broker.start()
    front = Front(lambda info: Connection(broker, str(info["listener"])))
    await front.start()
    try:
        yield front, broker
    finally:
        front.close()
        await broker.stop()


async def test_mqtt_through_a_relay() -> None:
    async with broker_behind() as (front, broker):
        port = await front.listen_tcp()

        def talk() -> str:
            with Wire(port) as reader, Wire(port) as writer:
                reader.connect("reader")
                reader.subscribe("a/#", qos=1)
                writer.connect("writer")
                writer.publish("a/b", b"hello" * 100_000, qos=1)
                assert reader.expect_publish().payload == b"hello" * 100_000
                return str(reader.socket.getsockname())

        peer = await asyncio.to_thread(talk)
        assert "127.0.0.1" in peer
        async with asyncio.timeout(TIMEOUT_S):
            await until(lambda: not broker.connections)


async def test_the_owner_admits_a_relayed_client_as_its_own() -> None:
    async with broker_behind() as (front, broker):
        port = await front.listen_tcp()
        _, writer = await connect(port)
        writer.write(b"\x10")
        async with asyncio.timeout(TIMEOUT_S):
            await until(lambda: bool(broker.connections))
        [connection] = broker.connections
        host, local = writer.get_extra_info("sockname")
        assert (connection.peer_ip, connection.peer_port) == (host, local)
        assert connection.listener == "mqtt"
        assert connection.loopback
        writer.close()


async def test_a_websocket_can_be_relayed(front: Front) -> None:
    port = await front.listen(lambda: WebSocketAdapter(front.relays.relay("ws")))
    reader, writer = await connect(port)
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    writer.write(
        f"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Protocol: mqtt\r\n\r\n".encode()
    )
    async with asyncio.timeout(TIMEOUT_S):
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x82\x83\x00\x00\x00\x00abc")  # a binary frame, masked with zeros
        assert await reader.readexactly(5) == b"\x82\x03abc"
        writer.write(b"\x88\x82\x00\x00\x00\x00\x03\xe8")  # close
        assert (await reader.read())[:1] == b"\x88"
        await until(lambda: not front.relays.all)
    writer.close()
