"""One end of a tunnel: an asyncio transport whose network is the flow of frames to another node.

A window bounds what is sent and not yet taken by the protocol on the other side; a protocol which
pauses reading gives none, so what waits here is at most one window. What cannot be sent waits in
the buffer of the writing side, whose protocol is told to pause, as with any transport.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from queuelake.cluster import frames

log = logging.getLogger("queuelake.tunnels")

WINDOW_BYTES: Final = 256 * 1024
WINDOW_STEP_BYTES: Final = WINDOW_BYTES // 4  # what was taken is said in steps of this
HIGH_BYTES: Final = 64 * 1024

Data = bytes | bytearray | memoryview


class Carrier(Protocol):
    """What a tunnel needs of the flow to the other node."""

    def want(self, tunnel: Tunnel) -> None:
        """It has something which `take` would give."""
        ...

    def control(self, frame: bytes) -> None:
        """Send this in its turn, before the data of any tunnel."""
        ...

    def drop(self, tunnel: Tunnel) -> None:
        """Nothing more comes from it or goes to it."""
        ...


class Tunnel(asyncio.Transport):
    """`open_in` is the number of the message in which, at the earliest, it was opened by us."""

    def __init__(
        self,
        carrier: Carrier,
        number: int,
        is_opener: bool,
        info: Mapping[str, object],
        open_in: int = 0,
    ) -> None:
        super().__init__()
        self.number = number
        self.is_opener = is_opener
        self.open_in = open_in
        self.queued = False  # the carrier's mark: it is in its line
        self._carrier = carrier
        self._info = info
        self._loop = asyncio.get_running_loop()
        self._protocol = asyncio.Protocol()
        # Writing
        self._buffer: deque[bytes | memoryview] = deque()
        self._buffer_bytes = 0
        self._credit = WINDOW_BYTES
        self._high = HIGH_BYTES
        self._low = HIGH_BYTES // 4
        self._writing_paused = False
        self._closing = False
        self._gone = False
        # Reading
        self._reading_paused = False
        self._unread = bytearray()
        self._given = WINDOW_BYTES  # what the other side may still send
        self._taken = 0  # by the protocol, and not said yet
        self._end_seen = False

    def connect(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        self._call(protocol.connection_made, self)

    # For the protocol: writing

    def write(self, data: Data) -> None:
        if self._closing or not data:
            return
        # A mutable buffer is its owner's again when this returns.
        self._buffer.append(data if isinstance(data, bytes) else bytes(data))
        self._written(len(data))

    def writelines(self, list_of_data: Iterable[Data]) -> None:
        for data in list_of_data:
            self.write(data)

    def _written(self, size: int) -> None:
        self._buffer_bytes += size
        if self._credit:
            self._carrier.want(self)
        if self._buffer_bytes > self._high and not self._writing_paused:
            self._writing_paused = True
            self._call(self._protocol.pause_writing)

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self._buffer_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be at least low ({low}), and low at least 0")
        self._high, self._low = high, low

    # For the protocol: reading

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def pause_reading(self) -> None:
        self._reading_paused = not self._closing

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            if self._unread or self._end_seen:
                self._loop.call_soon(self._deliver_unread)
            else:
                self._give_window()

    # For the protocol: the end

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """What was written is sent first."""
        if not self._closing:
            self._closing = True
            if self._end_seen:
                self._leave(None)  # nobody is there to take it
                return
            # What comes now is thrown away, but taken: both sides may be at this.
            self._reading_paused = False
            self._taken += len(self._unread)
            self._unread.clear()
            self._give_window()
            self._carrier.want(self)

    def abort(self) -> None:
        self.reset("the other side broke it off")

    def reset(self, reason: str) -> None:
        """Break it off, and tell the other side why."""
        if not self._gone:
            self._carrier.control(frames.encode_reset(self.is_opener, self.number, reason))
            self._leave(None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._info.get(name, default)

    # For the carrier: sending

    def has_work(self) -> bool:
        """Whether `take` would give something."""
        if self._gone:
            return False
        return self._credit > 0 if self._buffer else self._closing

    def take(self, room: int, parts: list[bytes | memoryview]) -> int:
        """Append frames of at most `room` bytes, heads not counted, to `parts`; returns the size
        with heads."""
        size = min(room, self._credit, self._buffer_bytes)
        added = 0
        if size:
            parts.append(frames.frame_head(frames.DATA, self.is_opener, self.number, size))
            self._move(size, parts)
            added = size + frames.FRAME_HEAD_BYTES
        if self._closing and not self._buffer:
            parts.append(frames.encode_frame(frames.END, self.is_opener, self.number))
            added += frames.FRAME_HEAD_BYTES
            self._leave(None)
        elif self._writing_paused and self._buffer_bytes <= self._low:
            self._writing_paused = False
            self._call(self._protocol.resume_writing)
        return added

    def _move(self, size: int, parts: list[bytes | memoryview]) -> None:
        self._credit -= size
        self._buffer_bytes -= size
        buffer = self._buffer
        while size:
            data = buffer.popleft()
            if len(data) > size:
                view = memoryview(data)
                parts.append(view[:size])
                buffer.appendleft(view[size:])
                return
            parts.append(data)
            size -= len(data)

    # For the carrier: what arrives

    def data_arrived(self, data: bytes) -> None:
        self._given -= len(data)
        if self._given < 0:
            self._break(f"{-self._given} bytes beyond a window of {WINDOW_BYTES}")
        elif self._closing:
            self._taken += len(data)
            self._give_window()
        elif self._reading_paused or self._unread:
            self._unread += data
        else:
            self._deliver(data)

    def window_arrived(self, size: int) -> None:
        self._credit += size
        if self._credit > WINDOW_BYTES:
            self._break(f"a window of {self._credit} bytes of at most {WINDOW_BYTES}")
        elif self.has_work():
            self._carrier.want(self)

    def end_arrived(self) -> None:
        self._end_seen = True
        if not self._reading_paused and not self._unread:
            self._end()

    def lose(self, reason: str) -> None:
        """The other side, or the way to it, is gone."""
        self._leave(ConnectionResetError(reason))

    def _deliver_unread(self) -> None:
        if self._reading_paused or self._gone:
            return
        if self._unread:
            data = bytes(self._unread)
            self._unread.clear()
            self._deliver(data)
        # The protocol may have paused again, or have closed.
        if self._end_seen and not self._reading_paused and not self._gone:
            self._end()

    def _deliver(self, data: bytes) -> None:
        self._taken += len(data)
        self._call(self._protocol.data_received, data)
        self._give_window()

    def _give_window(self) -> None:
        if self._taken >= WINDOW_STEP_BYTES and not self._reading_paused and not self._gone:
            self._given += self._taken
            window = frames.encode_window(self.is_opener, self.number, self._taken)
            self._taken = 0
            self._carrier.control(window)

    def _end(self) -> None:
        self._call(self._protocol.eof_received)
        self._leave(None)

    def _break(self, problem: str) -> None:
        log.error("tunnel %d is broken off: %s", self.number, problem)
        self._carrier.control(frames.encode_reset(self.is_opener, self.number, problem))
        self.lose(problem)

    def _leave(self, error: Exception | None) -> None:
        if self._gone:
            return
        self._gone = self._closing = True
        self._buffer.clear()
        self._buffer_bytes = 0
        self._unread.clear()
        self._carrier.drop(self)
        # The protocol may be in the middle of a call to us.
        self._loop.call_soon(self._call, self._protocol.connection_lost, error)

    def _call(self, method: Any, *arguments: object) -> None:
        """A mistake in one protocol must not end the others which share the flow."""
        try:
            method(*arguments)
        except Exception:
            log.exception("tunnel %d is broken off: its protocol failed", self.number)
            self.reset("its protocol failed")
