"""Chunks of messages as columns: numpy over many chunks at a time, no step for each row.

The heads of the chunks, read as one array, say where each column of each chunk lies
(`storage/chunk.py` has the layout); a column of the batch is these parts joined. Where a chunk has
one value for all its records, the part is that value, and it is repeated afterwards: so a column
is known by its values and by how often each of them is there.
"""

from __future__ import annotations

import struct
from itertools import compress
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from queuelake.errors import StorageError
from queuelake.storage.chunk import (
    HEAD_BYTES,
    ONE,
    ONE_EXPIRES,
    ONE_PRIORITY,
    ONE_QOS,
    ONE_TS,
    RECORDS_MAX,
    TEXT_COLUMNS,
    chunk_range,
)

SMALL_BYTES: Final = 4096  # of a chunk
LOOK_FOR_ONE_MAX: Final = 4096  # values: of more it is not worth the look

TOPIC: Final = 0
KEY: Final = 1
MESSAGE_ID: Final = 2
PUBLISHER: Final = 3
PROPERTIES: Final = 4
PAYLOAD: Final = 5

_HEAD: Final = np.dtype(
    [("first", "<u8"), ("count", "<u4"), ("flags", "<u4"), ("texts", "<u4", (TEXT_COLUMNS,))]
)
_LENGTHS: Final = struct.Struct(f"<{TEXT_COLUMNS}I")
_LENGTHS_AT: Final = HEAD_BYTES - _LENGTHS.size
_END: Final = np.dtype("<u4")

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Texts:
    """A column of bytes: its values, and how often each is there; None: once."""

    def __init__(self, values: pa.Array, times: Ints | None) -> None:
        self.values = values
        self.times = times

    def spread(self, values: pa.Array) -> pa.Array:
        """What was made of each value, for each row."""
        if self.times is None:
            return values
        # To repeat a map takes longer than to take it.
        if self._is_one() and not pa.types.is_map(values.type):
            return pa.repeat(values[0], int(self.times.sum()))
        return values.take(pa.array(np.repeat(np.arange(len(values)), self.times)))

    def _is_one(self) -> bool:
        """Whether all values are the same, as those of single chunks mostly are."""
        if len(self.values) > LOOK_FOR_ONE_MAX:
            return False
        return len(self.values.unique()) == 1


class Chunks:
    """The records with sequences (after, upto] of some chunks, which are in order.

    Raises:
        StorageError: one of them is no chunk.
    """

    def __init__(self, values: list[bytes], after: int, upto: int) -> None:
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        # Small parts are copied twice more quickly than they are looked at through a view.
        is_small = sizes.mean() < SMALL_BYTES
        self._values: list[bytes | memoryview] = [
            value if is_small else memoryview(value) for value in values
        ]
        if sizes.min() < HEAD_BYTES:
            raise StorageError(f"chunk of {sizes.min()} bytes is shorter than its head")
        heads = np.frombuffer(b"".join([value[:HEAD_BYTES] for value in values]), _HEAD)
        first = heads["first"].astype(np.int64)
        count = heads["count"].astype(np.int64)
        _expect((count > 0) & (count <= RECORDS_MAX), first, "says that it has too many records")
        self._place(heads, count)
        _expect(self._end == sizes, first, "is not as long as its head says")
        self._first, self._count = first, count
        # Of the first and the last chunk not all records may be wanted.
        self._low = np.clip(after + 1 - first, 0, count)
        self._high = np.clip(upto + 1 - first, 0, count)
        self._rows: Ints = self._high - self._low
        if self._rows.min() <= 0:
            self._keep(self._rows > 0)
        self.rows = int(self._rows.sum())

    def _place(self, heads: NDArray[np.void], count: Ints) -> None:
        """Where the columns of each chunk lie, and whether they are one value."""
        at = np.full_like(count, HEAD_BYTES)
        flags = heads["flags"]
        self._fixed_at: list[Ints] = []
        self._fixed_one: list[Flags] = []
        for flag, width in ((ONE_TS, 8), (ONE_EXPIRES, 8), (ONE_QOS, 1), (ONE_PRIORITY, 1)):
            one = flags & flag != 0
            self._fixed_at.append(at)
            self._fixed_one.append(one)
            at = at + width * np.where(one, 1, count)
        self._ends_at: list[Ints] = []
        self._text_at: list[Ints] = []
        self._text_one: list[Flags] = []
        self._length: list[Ints] = []
        for n in range(TEXT_COLUMNS):
            one = heads["texts"][:, n] & ONE != 0
            length = (heads["texts"][:, n] & (ONE - 1)).astype(np.int64)
            self._ends_at.append(at)
            at = at + np.where(one, 0, 4 * count)
            self._text_at.append(at)
            self._text_one.append(one)
            self._length.append(length)
            at = at + length
        self._end = at

    def _keep(self, wanted: Flags) -> None:
        self._values = list(compress(self._values, wanted.tolist()))
        for columns in (self._fixed_at, self._ends_at, self._text_at, self._length):
            columns[:] = [column[wanted] for column in columns]
        for flags in (self._fixed_one, self._text_one):
            flags[:] = [column[wanted] for column in flags]
        self._first, self._count = self._first[wanted], self._count[wanted]
        self._rows = self._rows[wanted]
        self._low, self._high = self._low[wanted], self._high[wanted]

    def sequences(self) -> Ints:
        before = np.cumsum(self._rows) - self._rows
        shifts: Ints = np.repeat(self._first + self._low - before, self._rows)
        return np.arange(self.rows) + shifts

    def ts_ms(self) -> Ints:
        return self._fixed(0, 8, np.dtype("<i8"))

    def expires_ms(self) -> Ints:
        return self._fixed(1, 8, np.dtype("<i8"))

    def qos(self) -> NDArray[np.int8]:
        return self._fixed(2, 1, np.dtype("i1"))

    def _fixed(self, n: int, width: int, kind: np.dtype[Any]) -> NDArray[Any]:
        at, one = self._fixed_at[n], self._fixed_one[n]
        begin = np.where(one, at, at + width * self._low)
        values = np.frombuffer(
            self._joined(begin, np.where(one, at + width, at + width * self._high)), kind
        )
        times = self._times(one)
        return values if times is None else np.repeat(values, times)

    def text(self, n: int) -> Texts:
        one, at, length = self._text_one[n], self._text_at[n], self._length[n]
        many = ~one
        counts = np.where(one, 1, self._rows)
        begin, stop = np.zeros_like(length), length.copy()
        ends = np.empty(int(counts.sum()), np.int64)
        if one.any():
            ends[np.repeat(one, counts)] = length[one]
        if many.any():
            ends_at = self._ends_at[n]
            parts = self._joined(
                ends_at + np.where(one, 0, 4 * self._low),
                ends_at + np.where(one, 0, 4 * self._high),
            )
            ends[np.repeat(many, counts)] = np.frombuffer(parts, _END)
            stop = ends[np.cumsum(counts) - 1]
            for chunk in np.flatnonzero(many & (self._low > 0)):
                before = int(ends_at[chunk] + 4 * (self._low[chunk] - 1))
                begin[chunk] = int.from_bytes(self._values[chunk][before : before + 4], "little")
            right = np.where(self._high == self._count, stop == length, stop <= length)
            _expect(right, self._first, "has a column which is not as long as its head says")
        sizes = stop - begin
        offsets = np.zeros(len(ends) + 1, np.int64)
        offsets[1:] = ends + np.repeat(np.cumsum(sizes) - sizes - begin, counts)
        _expect_rising(offsets)
        data = self._joined(at + begin, at + stop)
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        return Texts(pa.Array.from_buffers(pa.binary(), len(ends), buffers), self._times(one))

    def _times(self, one: Flags) -> Ints | None:
        """How often each value of a column is there."""
        if not one.any() or (self._rows[one] == 1).all():
            return None
        if one.all():
            return self._rows
        times: Ints = np.repeat(np.where(one, self._rows, 1), np.where(one, 1, self._rows))
        return times

    def _joined(self, begin: Ints, end: Ints) -> bytes:
        """These bytes of each chunk, one after the other."""
        if (begin == end).all():
            return b""
        places = zip(self._values, begin.tolist(), end.tolist(), strict=True)
        return b"".join([value[start:stop] for value, start, stop in places])


def reach_of(value: bytes) -> tuple[int, int, int]:
    """First and last sequence of a chunk, and how many bytes its texts take as rows: a value which
    is there once for all records is there for each of them then.

    Raises:
        StorageError: this is no chunk.
    """
    first, last = chunk_range(value)
    count = last - first + 1
    size = 0
    for length in _LENGTHS.unpack_from(value, _LENGTHS_AT):
        size += (length ^ ONE) * count if length & ONE else length
    return first, last, size


def _expect(right: Flags, first: Ints, words: str) -> None:
    if not right.all():
        raise StorageError(f"chunk of sequence {first[~right][0]} {words}")


def _expect_rising(offsets: Ints) -> None:
    if (offsets[1:] < offsets[:-1]).any():
        raise StorageError("a value of a chunk has less than no bytes")
