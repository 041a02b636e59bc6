"""Two transports which are each other's network: a client's connection to a broker of this process.

What is written at one end arrives at the other in a later turn of the loop, in one piece for each
turn. A protocol which pauses reading lets the bytes wait, and the writer's protocol is told to
pause when there are too many, as with a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

HIGH_BYTES: Final = 64 * 1024

Data = bytes | bytearray | memoryview


def connect(
    near: asyncio.BaseProtocol, far: asyncio.BaseProtocol, info: Mapping[str, object]
) -> asyncio.Transport:
    """The transport of `near`; `far` finds `info` in its own."""
    here, there = End({}), End(info)
    here.join(near, there)
    there.join(far, here)
    far.connection_made(there)
    near.connection_made(here)
    return here


class End(asyncio.Transport):
    """One of the two."""

    def __init__(self, info: Mapping[str, object]) -> None:
        super().__init__()
        self._info = info
        self._loop = asyncio.get_running_loop()
        self._protocol = asyncio.Protocol()
        self._peer = self
        self._arrived: list[bytes] = []  # for our protocol
        self._arrived_bytes = 0
        self._delivering = False
        self._reading_paused = False
        self._high, self._low = HIGH_BYTES, HIGH_BYTES // 4
        self._writing_paused = False  # our protocol was told so
        self._closing = False
        self._peer_closed = False  # all it wrote is in `_arrived`
        self._gone = False

    def join(self, protocol: asyncio.BaseProtocol, peer: End) -> None:
        self._protocol, self._peer = cast(asyncio.Protocol, protocol), peer

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        found = self._info.get(name, default)
        return tuple(found) if name == "peername" and isinstance(found, list) else found

    # Writing

    def write(self, data: Data) -> None:
        if not self._closing and data:
            self._peer.arrive(data if isinstance(data, bytes) else bytes(data))
            waiting = self._peer.waiting_bytes
            if waiting > self._high and not self._writing_paused:
                self._writing_paused = True
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Data]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self._peer.waiting_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else 4 * low if low is not None else HIGH_BYTES
        self._low = low if low is not None else self._high // 4

    def _taken(self) -> None:
        """The peer's protocol has read something."""
        if self._writing_paused and self._peer.waiting_bytes <= self._low:
            self._writing_paused = False
            if not self._gone:
                self._protocol.resume_writing()

    # Reading

    @property
    def waiting_bytes(self) -> int:
        return self._arrived_bytes

    def arrive(self, data: bytes) -> None:
        if not self._closing:
            self._arrived.append(data)
            self._arrived_bytes += len(data)
            self._want_delivery()

    @property
    def is_paused(self) -> bool:
        return self._reading_paused

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._want_delivery()

    def _want_delivery(self) -> None:
        if not self._delivering and (self._arrived or self._peer_closed):
            self._delivering = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._delivering = False
        if self._gone or self._reading_paused:
            return
        if self._arrived:
            data = self._arrived[0] if len(self._arrived) == 1 else b"".join(self._arrived)
            self._arrived.clear()
            self._arrived_bytes = 0
            self._protocol.data_received(data)
            self._peer._taken()
        if self._peer_closed and not self._arrived and not self._reading_paused:
            self._protocol.eof_received()
            self._leave(None)

    # The end

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """What was written is taken by the peer before it hears of the end."""
        if not self._closing:
            self._closing = True
            self._arrived.clear()
            self._peer.end()
            self._loop.call_soon(self._leave, None)

    def abort(self) -> None:
        # A peer which reads has heard of a close, and takes what was written before it.
        was_closed, self._closing = self._closing, True
        self._leave(None)
        if not was_closed or self._peer.is_paused:
            self._peer.reset()

    def end(self) -> None:
        """The peer has closed."""
        self._peer_closed = True
        self._want_delivery()

    def reset(self) -> None:
        """The peer has broken off."""
        self._leave(ConnectionResetError("the other side broke it off"))

    def _leave(self, error: Exception | None) -> None:
        if not self._gone:
            self._gone = self._closing = True
            self._arrived.clear()
            self._arrived_bytes = 0
            self._peer._taken()
            # The protocol may be in the middle of a call to us.
            self._loop.call_soon(self._protocol.connection_lost, error)
            if not self._peer._peer_closed:
                self._peer.end()
