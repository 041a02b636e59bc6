"""Messages of partitions in memory: those not yet stored, and a bounded cache of those which are.

A partition's newest messages are usually wanted next, so they stay until all partitions together
use more than their share of memory; then the oldest make room. What is needed again is read from
the store a chunk at a time and cached in the same way.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, final

from queuelake.storage.chunk import Record
from queuelake.storage.stage_tables import Pointer

RECORD_OVERHEAD_BYTES: Final = 300
CHUNKS_KNOWN_MAX: Final = 256


@final
class Tail:
    """The messages of one partition."""

    __slots__ = ("cache", "chunks", "pending", "pointed", "pointers", "records", "spans", "storing")

    def __init__(self, cache: RecordCache) -> None:
        self.cache: RecordCache = cache
        self.pending: list[Record] = []  # of the group being collected
        self.storing: list[Record] = []  # of the group being committed
        self.records: dict[int, Record] = {}  # by sequence: the two above, and what is cached
        self.spans: list[tuple[int, int, int]] = []  # first, last, bytes of what is cached
        # First and last sequence, and bytes, of the chunks written lately, in order.
        self.chunks: list[tuple[int, int, int]] = []
        # To staged chunks which this partition got lately: the store may not know of them yet.
        self.pointers: list[Pointer] = []
        self.pointed: int = 0  # up to here chunks may be behind pointers: nothing joins them

    def append(self, record: Record) -> None:
        self.pending.append(record)
        self.records[record.seq] = record

    def stored(self) -> None:
        """The group being committed is durable: what was in it may be forgotten."""
        if self.storing:
            self.cached(self.storing)
            self.storing = []

    def cached(self, records: list[Record]) -> None:
        size = 0
        for record in records:
            self.records[record.seq] = record
            size += record.size() + RECORD_OVERHEAD_BYTES
        self.spans.append((records[0].seq, records[-1].seq, size))
        self.cache.grown(self, size)

    def point(self, pointer: Pointer) -> None:
        """The partition has got a staged chunk."""
        self.pointers.append(pointer)
        self.pointed = pointer.first + pointer.count - 1
        self.wrote(pointer.first, self.pointed, pointer.size)

    def pointer_at(self, seq: int) -> Pointer | None:
        """To the staged chunk which holds a message, if the store may not know it."""
        pointers = self.pointers
        at = bisect_right(pointers, seq, key=first_of) - 1
        if at < 0 or seq >= pointers[at].first + pointers[at].count:
            return None
        return pointers[at]

    def wrote(self, first: int, last: int, size: int) -> None:
        self.chunks.append((first, last, size))
        if len(self.chunks) > CHUNKS_KNOWN_MAX:
            del self.chunks[: CHUNKS_KNOWN_MAX // 2]

    def between(self, first: int, last: int) -> list[Record]:
        """Those which are in memory."""
        found = [self.records.get(seq) for seq in range(first, last + 1)]
        return [record for record in found if record is not None]

    def drop_upto(self, seq: int) -> None:
        """Nobody needs these any more."""
        spans = self.spans
        while spans and spans[0][1] <= seq:
            self._drop(spans.pop(0))

    def drop_oldest(self) -> bool:
        """Make room; False: there is nothing to drop."""
        if not self.spans:
            return False
        self._drop(self.spans.pop(0))
        return True

    def _drop(self, span: tuple[int, int, int]) -> None:
        first, last, size = span
        records = self.records
        if len(records) == last - first + 1 and not self.pending and not self.storing:
            records.clear()  # it was all there is
        elif last - first >= len(records):  # last values lie far apart
            for seq in [seq for seq in records if first <= seq <= last]:
                del records[seq]
        else:
            for seq in range(first, last + 1):
                if seq in records:
                    del records[seq]
        self.cache.bytes -= size

    def clear(self) -> None:
        while self.drop_oldest():
            pass
        self.pending = []
        self.storing = []
        self.records.clear()
        self.chunks.clear()
        self.pointers = []


def first_of(pointer: Pointer) -> int:
    return pointer.first


@final
class RecordCache:
    """All tails together, and how much memory they may use."""

    __slots__ = ("_bytes_max", "_tails", "bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max: int = bytes_max
        self.bytes: int = 0
        self._tails: dict[int, Tail] = {}  # by identity, longest unused first

    def grown(self, tail: Tail, size: int) -> None:
        self.bytes += size
        number = id(tail)
        self._tails.pop(number, None)
        self._tails[number] = tail
        while self.bytes > self._bytes_max and self._tails:
            oldest = next(iter(self._tails))
            if not self._tails[oldest].drop_oldest():
                del self._tails[oldest]

    def forget(self, tail: Tail) -> None:
        tail.clear()
        self._tails.pop(id(tail), None)
