"""A batch which is ready to be stored: a file which the export process writes and the broker reads.

The chunks of a batch are one behind the other as they will be in the store, so that the broker
copies bytes and decides, and never takes a row apart. What it must know to decide is at the end:

    MAGIC, chunks, `Prepared` (or `PreparedIds`) as msgpack, its length (4 bytes), MAGIC

The file needs no sync: it can be made again from what was staged.
"""

from __future__ import annotations

import os
import struct
from array import array
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from queuelake.errors import StorageError

MAGIC: Final = b"QLSTAGE1"
HAS_PRIORITIES: Final = 1  # of a chunk: some of its records have one of their own
IS_DELAYED: Final = 2  # of a chunk: its times are delays
FIRST: Final = len(MAGIC)  # where the chunks begin

_LENGTH: Final = struct.Struct("<I")
_END_BYTES: Final = _LENGTH.size + len(MAGIC)


class Letters(msgspec.Struct, array_like=True):
    """Messages of one partition of a dead-letter queue; `queue_id` is its number."""

    queue_id: int
    partition: int
    seqs: list[int]


class Prepared(msgspec.Struct, array_like=True, tag="messages"):
    """Messages for a queue. The texts of bytes are arrays of numbers, one for each chunk."""

    queue_id: int
    partitions: int  # which the queue had
    rows: int
    largest: int  # bytes of the longest payload
    size: int  # bytes of all payloads
    chunk_partitions: bytes  # 2 bytes each
    chunk_counts: bytes  # 4 bytes each
    chunk_sizes: bytes  # 4 bytes each
    chunk_flags: bytes  # 1 byte each
    letters: list[Letters] = []  # which leave their queue


class PreparedIds(msgspec.Struct, array_like=True, tag="ids"):
    """Vehicles for fan-out in order of their digests, one bucket for each first byte: the digests,
    the ends of the names, the names."""

    rows: int
    bucket_counts: bytes  # 4 bytes each
    bucket_sizes: bytes  # 4 bytes each


_Summary = Prepared | PreparedIds
_DECODER: Final[msgspec.msgpack.Decoder[_Summary]] = msgspec.msgpack.Decoder(_Summary)


class PreparedWriter:
    """Writes such a file; `add` as often as needed, then `finish`."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("xb", buffering=1 << 20)
        self._file.write(MAGIC)

    def add(self, parts: list[bytes]) -> None:
        self._file.writelines(parts)

    def finish(self, summary: _Summary) -> None:
        end = msgspec.msgpack.encode(summary)
        self._file.write(end + _LENGTH.pack(len(end)) + MAGIC)
        self._file.close()

    def close(self) -> None:
        self._file.close()


class PreparedReader:
    """Reads one: `summary` at once, the chunks in order with `read`."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            StorageError: it is not there, or not whole.
        """
        try:
            self._file: BinaryIO = path.open("rb", buffering=0)
        except OSError as error:
            raise StorageError(f"prepared batch {path.name!r} cannot be read: {error}") from None
        try:
            self.summary = self._read_summary()
        except (OSError, msgspec.MsgspecError, struct.error) as error:
            self._file.close()
            raise StorageError(f"prepared batch {path.name!r} is not whole: {error}") from None
        self._file.seek(len(MAGIC))

    def _read_summary(self) -> _Summary:
        size = os.fstat(self._file.fileno()).st_size
        self._file.seek(max(0, size - _END_BYTES))
        end = self._file.read()
        if not end.endswith(MAGIC):
            raise struct.error("it does not end like one")
        self._file.seek(size - _END_BYTES - _LENGTH.unpack_from(end)[0])
        return _DECODER.decode(self._file.read()[:-_END_BYTES])

    def read(self, size: int) -> bytes:
        """The next bytes of the chunks; the caller knows how many there are."""
        found = self._file.read(size)
        while len(found) < size:
            more = self._file.read(size - len(found))
            if not more:
                raise StorageError(f"prepared batch ends {size - len(found)} bytes early")
            found += more
        return found

    def rewind(self) -> None:
        self._file.seek(len(MAGIC))

    def close(self) -> None:
        self._file.close()


def numbers(kind: str, packed: bytes) -> list[int]:
    """The numbers in one of the texts of bytes: kind "H" or "I"."""
    return array(kind, packed).tolist()
