"""Chunks which are stored before anybody may see them, and the pointers which show them.

A batch of the pipeline is stored as ordinary chunks, in many commits, under a number of its own:
its stage. They belong to no queue yet, so they know neither their sequences nor their time: those
are in the pointers, which one small commit puts where the chunks of a queue are. From then on a
chunk is read through its pointer, and deleted with it.

    STAGED    stage, number, piece                     -> chunk, its first sequence 0
    STAGED    stage, OPEN                              -> (nothing) while nobody points to it
    CHUNKS    queue, partition, first sequence, 0      -> pointer, shorter than any chunk

In a staged chunk all records came at the same time, which is 0, and live equally long: what the
chunk says about expiry is how long. The pointer says when they came.
"""

from __future__ import annotations

import struct
from typing import Final, final

from queuelake.errors import StorageError
from queuelake.storage.api import STAGED, ReadTransaction, WriteTransaction
from queuelake.storage.chunk import (
    HEAD_BYTES,
    PIECE_BYTES,
    POINTER_BYTES,
    Record,
    decode_chunk,
    has_one_time,
)

OPEN: Final = b"\xff" * 6  # behind a stage: greater than all its chunks
STAGE_BYTES: Final = 8

_POINTER: Final = struct.Struct("<QIQIQI")
_STAGED: Final = struct.Struct(">QI")
_FIRST: Final = struct.Struct("<Q")
_TIMES: Final = struct.Struct("<qq")
_TIMES_END: Final = HEAD_BYTES + 16
_LAST_KEY: Final = b"\xff" * 16


@final
class Pointer:
    """Where the records from sequence `first` on are: in chunk `number` of a stage."""

    __slots__ = ("count", "first", "number", "size", "stage", "ts_ms")

    def __init__(
        self, first: int, count: int, stage: int, number: int, ts_ms: int, size: int
    ) -> None:
        self.first: int = first
        self.count: int = count
        self.stage: int = stage
        self.number: int = number
        self.ts_ms: int = ts_ms
        self.size: int = size  # bytes of the chunk

    def encode(self) -> bytes:
        return _POINTER.pack(self.first, self.count, self.stage, self.number, self.ts_ms, self.size)


def is_pointer(value: bytes) -> bool:
    """Whether the first piece of a chunk in CHUNKS is one; it is no chunk then."""
    return len(value) == POINTER_BYTES


def is_first_piece(key: bytes) -> bool:
    """Of a row of CHUNKS. The last piece of a long chunk may be just as long as a pointer."""
    return key.endswith(b"\0\0")


def read_pointer(value: bytes) -> Pointer:
    first, count, stage, number, ts_ms, size = _POINTER.unpack(value)
    return Pointer(first, count, stage, number, ts_ms, size)


def stored_bytes(key: bytes, value: bytes) -> int:
    """What a row of CHUNKS takes, with what it points to."""
    points = is_pointer(value) and is_first_piece(key)
    return read_pointer(value).size if points else len(value)


def stage_key(stage: int) -> bytes:
    return stage.to_bytes(STAGE_BYTES, "big")


def staged_key(stage: int, number: int, piece: int = 0) -> bytes:
    return _STAGED.pack(stage, number) + piece.to_bytes(2, "big")


def staged_rows(stage: int, number: int, chunk: bytes) -> list[tuple[bytes, bytes]]:
    """The rows of STAGED which hold a chunk."""
    if len(chunk) <= PIECE_BYTES:
        return [(staged_key(stage, number), chunk)]
    return [
        (staged_key(stage, number, piece), chunk[at : at + PIECE_BYTES])
        for piece, at in enumerate(range(0, len(chunk), PIECE_BYTES))
    ]


def read_staged(view: ReadTransaction, stage: int, number: int, size: int) -> bytes:
    """A chunk as it was staged.

    Raises:
        StorageError: it is not there, or not all of it.
    """
    pieces: list[bytes] = []
    for piece in range((size + PIECE_BYTES - 1) // PIECE_BYTES):
        value = view.get(STAGED, staged_key(stage, number, piece))
        if value is None:
            raise StorageError(f"piece {piece} of staged chunk {stage}:{number} is missing")
        pieces.append(value)
    chunk = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if len(chunk) != size:
        raise StorageError(f"staged chunk {stage}:{number} has {len(chunk)} of {size} bytes")
    return chunk


def resolve(view: ReadTransaction, pointer: Pointer) -> bytes:
    """The chunk behind a pointer, with its sequences and times: like any other from here on.

    Raises:
        StorageError: there is none.
    """
    chunk = read_staged(view, pointer.stage, pointer.number, pointer.size)
    return placed(chunk, pointer.first, pointer.ts_ms)


def placed(chunk: bytes, first: int, ts_ms: int) -> bytes:
    """A staged chunk as if its records had come at `ts_ms`, from sequence `first` on."""
    if not has_one_time(chunk):
        raise StorageError(f"staged chunk for sequence {first} has times of its own")
    _, life_ms = _TIMES.unpack_from(chunk, HEAD_BYTES)
    expires_ms = ts_ms + life_ms if life_ms else 0
    return b"".join(
        [
            _FIRST.pack(first),
            chunk[8:HEAD_BYTES],
            _TIMES.pack(ts_ms, expires_ms),
            chunk[_TIMES_END:],
        ]
    )


def pointed_records(view: ReadTransaction, pointer: Pointer) -> list[Record]:
    return decode_chunk(resolve(view, pointer))


# Deleting


def free_staged(transaction: WriteTransaction, pointer: Pointer) -> int:
    """Delete what a pointer points to; returns how many rows it were."""
    piece = 0
    while transaction.delete(STAGED, staged_key(pointer.stage, pointer.number, piece)):
        piece += 1
    return piece


def open_stages(view: ReadTransaction) -> list[int]:
    """Stages to which nothing points yet; a look at each stage, not at each chunk."""
    found: list[int] = []
    at = b""
    while True:
        key = next(view.scan_keys(STAGED, at, _LAST_KEY), None)
        if key is None:
            return found
        stage = int.from_bytes(key[:STAGE_BYTES], "big")
        if view.get(STAGED, key[:STAGE_BYTES] + OPEN) is not None:
            found.append(stage)
        at = stage_key(stage + 1)


def first_chunk(view: ReadTransaction, stage: int) -> tuple[list[bytes], bytes]:
    """The chunk of a stage with the lowest number: the keys of its rows, and all of it."""
    keys: list[bytes] = []
    pieces: list[bytes] = []
    for key, piece in view.scan(STAGED, stage_key(stage), stage_key(stage) + OPEN):
        if keys and key[:-2] != keys[0][:-2]:
            break
        keys.append(key)
        pieces.append(piece)
    return keys, b"".join(pieces)


def stage_keys(view: ReadTransaction, stage: int, count_max: int) -> list[bytes]:
    """The first rows of a stage; its mark is the last of them."""
    found: list[bytes] = []
    for key in view.scan_keys(STAGED, stage_key(stage), stage_key(stage + 1)):
        found.append(key)
        if len(found) == count_max:
            break
    return found
