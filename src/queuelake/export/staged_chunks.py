"""Columns of rows become chunks (`storage/chunk.py`) without a step for each row.

The rows of a block are sorted by partition, in their order; then chunks are cut where the sum of
their bytes says so. A column of a chunk is a slice of the column of the block.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from queuelake.engine.message import PRIORITY_DEFAULT
from queuelake.export.staged_rows import Rows
from queuelake.storage.chunk import (
    HEAD_BYTES,
    ONE,
    ONE_EXPIRES,
    ONE_PRIORITY,
    ONE_QOS,
    ONE_TS,
    PIECE_BYTES,
    RECORDS_MAX,
)
from queuelake.storage.prepared import HAS_PRIORITIES, IS_DELAYED

QOS: Final = 1
_HEAD: Final = struct.Struct("<QII6I")
_TIMES: Final = struct.Struct("<qq")
_OFFSET: Final = 0x811C9DC5
_PRIME: Final = 0x01000193

Ints = NDArray[np.int64]


class Chunk:
    """One chunk, in parts which are to be written one behind the other."""

    __slots__ = ("count", "flags", "largest", "partition", "parts", "payload_bytes", "size")

    def __init__(
        self,
        partition: int,
        count: int,
        flags: int,
        parts: list[bytes],
        largest: int,
        payload_bytes: int,
    ) -> None:
        self.partition = partition
        self.count = count
        self.flags = flags
        self.parts = parts
        self.size = sum(map(len, parts))
        self.largest = largest  # bytes of the longest payload
        self.payload_bytes = payload_bytes


class Layout:
    """How the rows of a batch become chunks; one for the whole batch."""

    def __init__(self, partitions: int, life_ms: int, publisher: bytes) -> None:
        self._partitions = partitions
        self._life_ms = life_ms
        self._publisher = publisher
        self._turn = random.randrange(partitions)  # where rows without a key begin

    def chunks(self, rows: Rows) -> Iterator[Chunk]:
        partition = self._partition_of(rows)
        delayed = rows.delay_ms > 0 if rows.delay_ms is not None else None
        sort_by = partition if delayed is None else partition + delayed * self._partitions
        order: Ints | None = None
        if sort_by.any():
            order = np.argsort(sort_by, kind="stable")
            sort_by = sort_by[order]
        block = _Block(rows, order, self._publisher)
        bounds = np.flatnonzero(np.diff(sort_by)) + 1
        starts = [0, *bounds.tolist()]
        for start, stop in zip(starts, [*starts[1:], rows.count], strict=True):
            group = int(sort_by[start])
            is_delayed = group >= self._partitions
            for first, last in block.cuts(start, stop):
                yield block.chunk(first, last, group % self._partitions, is_delayed, self._life_ms)

    def _partition_of(self, rows: Rows) -> Ints:
        count = self._partitions
        if count == 1:
            return np.zeros(rows.count, np.int64)
        turns = (np.arange(rows.count) + self._turn) % count
        self._turn = (self._turn + rows.count) % count
        if isinstance(rows.key, bytes):
            return turns
        lengths = np.diff(_offsets(rows.key))
        return np.where(lengths > 0, fnv1a(rows.key) % count, turns)


def fnv1a(keys: pa.Array) -> Ints:
    """As `engine.partitioning.fnv1a`, of each key; b"" gives what the hash begins with."""
    offsets = _offsets(keys)
    data = _data(keys)
    lengths = np.diff(offsets)
    hashes = np.full(len(lengths), _OFFSET, np.uint64)
    prime, mask = np.uint64(_PRIME), np.uint64(0xFFFFFFFF)
    left = np.arange(len(lengths))
    place = 0
    while True:
        left = left[lengths[left] > place]
        if not len(left):
            return hashes.astype(np.int64)
        hashes[left] = ((hashes[left] ^ data[offsets[left] + place]) * prime) & mask
        place += 1


class _Texts:
    """A column of bytes: of each row, or one value for all."""

    def __init__(self, values: pa.Array | bytes, order: Ints | None) -> None:
        self.one: bytes | None = values if isinstance(values, bytes) else None
        if isinstance(values, bytes):
            return
        if order is not None:
            values = values.take(pa.array(order))
        self._offsets = _offsets(values)
        self._data = _data(values).data
        if len(values) and not self._offsets[-1] - self._offsets[0]:
            self.one = b""

    def lengths(self) -> Ints | int:
        """What each row adds to a chunk."""
        return 0 if self.one is not None else np.diff(self._offsets) + 4

    def add_to(self, parts: list[bytes], first: int, last: int) -> int:
        """Append the values of some rows; returns what the head says of them."""
        if self.one is not None:
            parts.append(self.one)
            return len(self.one) | ONE
        start, stop = int(self._offsets[first]), int(self._offsets[last])
        if start == stop:
            return ONE
        parts.append((self._offsets[first + 1 : last + 1] - start).astype("<u4").tobytes())
        parts.append(bytes(self._data[start:stop]))
        return stop - start


class _Block:
    """The columns of a block of rows, sorted."""

    def __init__(self, rows: Rows, order: Ints | None, publisher: bytes) -> None:
        columns = (rows.topic, rows.key, rows.message_id, publisher, rows.properties, rows.payload)
        self._texts = [_Texts(values, order) for values in columns]
        self._priority = rows.priority
        self._delay_ms = rows.delay_ms
        if order is not None:
            self._priority = rows.priority[order] if rows.priority is not None else None
            self._delay_ms = rows.delay_ms[order] if rows.delay_ms is not None else None
        costs = np.zeros(rows.count, np.int64)
        for texts in self._texts:
            costs += texts.lengths()
        if self._priority is not None:
            costs += 1
        if self._delay_ms is not None:
            costs += 8
        self._ends = np.cumsum(costs)
        lengths = self._texts[-1].lengths()
        self._payload_lengths: Ints = (
            np.zeros(rows.count, np.int64) if isinstance(lengths, int) else lengths - 4
        )
        ones = [texts.one for texts in self._texts if texts.one is not None]
        self._once = HEAD_BYTES + 18 + sum(map(len, ones))

    def cuts(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Where to cut rows into chunks of one piece; one which is longer is alone in its chunk."""
        room = PIECE_BYTES - self._once
        while start < stop:
            before = int(self._ends[start - 1]) if start else 0
            last = int(np.searchsorted(self._ends, before + room, side="right"))
            last = min(max(last, start + 1), stop, start + RECORDS_MAX)
            yield start, last
            start = last

    def chunk(self, first: int, last: int, partition: int, is_delayed: bool, life_ms: int) -> Chunk:
        flags = ONE_TS | ONE_EXPIRES | ONE_QOS | ONE_PRIORITY
        times = _TIMES.pack(0, life_ms)
        kind = 0
        if is_delayed:
            assert self._delay_ms is not None
            flags &= ~ONE_TS
            kind = IS_DELAYED
            delays = self._delay_ms[first:last].astype("<i8").tobytes()
            times = delays + life_ms.to_bytes(8, "little")
        priorities = bytes([PRIORITY_DEFAULT])
        if self._priority is not None and (self._priority[first:last] != PRIORITY_DEFAULT).any():
            flags &= ~ONE_PRIORITY
            kind |= HAS_PRIORITIES
            priorities = self._priority[first:last].tobytes()
        parts = [b"", times, bytes([QOS]), priorities]
        lengths = [texts.add_to(parts, first, last) for texts in self._texts]
        parts[0] = _HEAD.pack(partition if is_delayed else 0, last - first, flags, *lengths)
        payloads = self._payload_lengths[first:last]
        return Chunk(partition, last - first, kind, parts, int(payloads.max()), int(payloads.sum()))


def _offsets(values: pa.Array) -> Ints:
    raw = np.frombuffer(values.buffers()[1], np.int32)
    found: Ints = raw[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return found


def _data(values: pa.Array) -> NDArray[np.uint8]:
    buffer = values.buffers()[2]
    return np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
