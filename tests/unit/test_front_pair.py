"""Two transports which are each other's network."""

from __future__ import annotations

import asyncio

from queuelake.broker.front import pair


class Side(asyncio.Protocol):
    def __init__(self) -> None:
        self.got = b""
        self.events: list[str] = []
        self.transport: asyncio.Transport | None = None
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost" if exc is None else "reset")
        self.lost.set()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_bytes_arrive_in_order_and_the_end_behind_them() -> None:
    async def run() -> None:
        near, far = Side(), Side()
        transport = pair.connect(near, far, {"peername": ["10.0.0.1", 5]})
        assert far.transport is not None
        assert far.transport.get_extra_info("peername") == ("10.0.0.1", 5)
        transport.write(b"one")
        transport.write(bytearray(b"two"))
        far.transport.write(b"back")
        assert (near.got, far.got) == (b"", b"")  # in a later turn
        await turns()
        assert (near.got, far.got) == (b"back", b"onetwo")
        transport.write(b"three")
        transport.close()
        transport.write(b"too late")
        await far.lost.wait()
        await near.lost.wait()
        assert far.got == b"onetwothree"
        assert far.events == ["eof", "lost"]
        assert near.events == ["lost"]

    asyncio.run(run())


def test_who_does_not_read_stops_the_writer() -> None:
    async def run() -> None:
        near, far = Side(), Side()
        transport = pair.connect(near, far, {})
        assert far.transport is not None
        far.transport.pause_reading()
        transport.write(b"x" * (pair.HIGH_BYTES + 1))
        await turns()
        assert near.events == ["pause"]
        assert far.got == b""
        far.transport.resume_reading()
        await turns()
        assert near.events == ["pause", "resume"]
        assert len(far.got) == pair.HIGH_BYTES + 1

    asyncio.run(run())


def test_a_close_waits_for_who_does_not_read() -> None:
    async def run() -> None:
        near, far = Side(), Side()
        transport = pair.connect(near, far, {})
        assert far.transport is not None
        far.transport.pause_reading()
        transport.write(b"last words")
        transport.close()
        await turns()
        assert not far.lost.is_set()
        far.transport.resume_reading()
        await far.lost.wait()
        assert far.got == b"last words"

    asyncio.run(run())


def test_who_does_not_read_hears_that_a_close_became_an_abort() -> None:
    async def run() -> None:
        near, far = Side(), Side()
        transport = pair.connect(near, far, {})
        assert far.transport is not None
        far.transport.pause_reading()
        transport.write(b"never read")
        transport.close()
        await turns()
        transport.abort()
        await far.lost.wait()
        assert far.events == ["reset"]

    asyncio.run(run())


def test_an_abort_behind_a_close_loses_nothing_of_who_reads() -> None:
    async def run() -> None:
        near, far = Side(), Side()
        transport = pair.connect(near, far, {})
        transport.write(b"last words")
        transport.close()
        transport.abort()
        await far.lost.wait()
        assert far.got == b"last words"

    asyncio.run(run())


def test_broken_off_is_heard_at_once() -> None:
    async def run() -> None:
        near, far = Side(), Side()
        transport = pair.connect(near, far, {})
        transport.write(b"never read")
        transport.abort()
        await far.lost.wait()
        await near.lost.wait()
        assert (far.got, far.events, near.events) == (b"", ["reset"], ["lost"])
        assert far.transport is not None
        far.transport.write(b"nobody")
        far.transport.close()

    asyncio.run(run())
