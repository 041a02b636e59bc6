"""What one message between two nodes holds: a head, and the frames of many tunnels.

The head says who sends, in which life of its process, for which life of the receiver, and where
this message stands in the flow (see `flow`). Each frame names a tunnel and the side which opened
it, as both sides count those they open for themselves. A message without frames is a heartbeat.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from queuelake.errors import FrameError

VERSION: Final = 1

OPEN: Final = 1  # kind and info, as msgpack
DATA: Final = 2
WINDOW: Final = 3  # this many more bytes may be sent
END: Final = 4  # everything was sent
RESET: Final = 5  # why, as text
LOST: Final = 6  # the number of the first message which counts; of no tunnel

FROM_OPENER: Final = 0x80  # in the byte of the frame's type

_HEAD: Final = struct.Struct("<BQQQQQB")  # version, the numbers of Head, length of the name
_FRAME: Final = struct.Struct("<BII")  # type, tunnel, length of the body
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")

NAME_BYTES_MAX: Final = 255
HEAD_BYTES_MAX: Final = _HEAD.size + NAME_BYTES_MAX
FRAME_HEAD_BYTES: Final = _FRAME.size
INFO_BYTES_MAX: Final = 16 * 1024
REASON_BYTES_MAX: Final = 500


class Head(NamedTuple):
    """Of a message. `number` is that of the last message with frames, which this one may be."""

    life: int
    to_life: int  # 0: for any
    base: int  # the sender began again behind this number
    number: int
    received: int  # the last number the sender has of the receiver
    node: str


class Frame(NamedTuple):
    type: int
    from_opener: bool
    tunnel: int
    body: bytes


class Opening(msgspec.Struct, array_like=True):
    """The body of an OPEN."""

    kind: str
    info: dict[str, object]


_encode_opening = msgspec.msgpack.Encoder().encode
_decode_opening = msgspec.msgpack.Decoder(Opening).decode


def encode_head(head: Head) -> bytes:
    name = head.node.encode()
    return _HEAD.pack(VERSION, *head[:5], len(name)) + name


def frame_head(kind: int, from_opener: bool, tunnel: int, length: int) -> bytes:
    """What stands before a body; bodies of DATA are not copied to be framed."""
    return _FRAME.pack(kind | FROM_OPENER if from_opener else kind, tunnel, length)


def encode_frame(kind: int, from_opener: bool, tunnel: int, body: bytes = b"") -> bytes:
    return frame_head(kind, from_opener, tunnel, len(body)) + body


def encode_opening(tunnel: int, kind: str, info: dict[str, object]) -> bytes:
    """
    Raises:
        FrameError: the info is larger than a message is meant to carry.
    """
    body = _encode_opening(Opening(kind, info))
    if len(body) > INFO_BYTES_MAX:
        raise FrameError(f"a tunnel of kind {kind!r} with {len(body)} of {INFO_BYTES_MAX} bytes")
    return encode_frame(OPEN, True, tunnel, body)


def encode_window(from_opener: bool, tunnel: int, size: int) -> bytes:
    return encode_frame(WINDOW, from_opener, tunnel, _U32.pack(size))


def encode_reset(from_opener: bool, tunnel: int, reason: str) -> bytes:
    return encode_frame(RESET, from_opener, tunnel, reason.encode()[:REASON_BYTES_MAX])


def encode_lost(number: int) -> bytes:
    return encode_frame(LOST, True, 0, _U64.pack(number))


def decode_head(message: bytes) -> tuple[Head, int]:
    """The head, and where the frames begin.

    Raises:
        FrameError: this is no message of our version.
    """
    if len(message) < _HEAD.size or message[0] != VERSION:
        raise FrameError(f"a message of {len(message)} bytes which is not of version {VERSION}")
    _, life, to_life, base, number, received, length = _HEAD.unpack_from(message)
    start = _HEAD.size + length
    if len(message) < start:
        raise FrameError(f"a head of {start} bytes in a message of {len(message)}")
    name = message[_HEAD.size : start].decode(errors="replace")
    return Head(life, to_life, base, number, received, name), start


def read_frames(message: bytes, start: int) -> Iterator[Frame]:
    """
    Raises:
        FrameError: a frame is longer than the message.
    """
    size = len(message)
    while start < size:
        if start + FRAME_HEAD_BYTES > size:
            raise FrameError(f"{size - start} bytes behind the last frame")
        kind, tunnel, length = _FRAME.unpack_from(message, start)
        start += FRAME_HEAD_BYTES
        end = start + length
        if end > size:
            raise FrameError(f"a frame of {length} bytes where {size - start} are left")
        yield Frame(kind & ~FROM_OPENER, kind >= FROM_OPENER, tunnel, message[start:end])
        start = end


def decode_opening(body: bytes) -> Opening:
    """
    Raises:
        FrameError: it is none.
    """
    try:
        return _decode_opening(body)
    except msgspec.MsgspecError as error:
        raise FrameError(f"no opening of a tunnel: {error}") from None


def decode_size(body: bytes) -> int:
    """The value of a WINDOW or a LOST."""
    if len(body) == _U32.size:
        return int(_U32.unpack(body)[0])
    if len(body) == _U64.size:
        return int(_U64.unpack(body)[0])
    raise FrameError(f"a number of {len(body)} bytes")
