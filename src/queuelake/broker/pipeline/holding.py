"""What one queue keeps for the archive: chunks nobody needs any more and the lake does not have.

    deleted       floor                 gone                      last
      |-- archived --|-- held: kept only --|-- some group needs it --|
                         for the archive

The floor of a partition is the mark of the lake, or where the range ends which was given up last.
Nothing above it is deleted. What is held is counted by chunks: of those written lately the queue
knows the size when they are settled, the others are read from the store a slice at a time. So
archiving costs nothing for each message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, final

from queuelake.storage import api
from queuelake.storage import queue_tables as t
from queuelake.storage.archive_tables import Archived, with_lost
from queuelake.storage.chunk import chunk_range, chunk_times
from queuelake.storage.stage_tables import is_pointer, read_pointer, stored_bytes

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue

SPANS_MAX: Final = 512  # of each partition; then two are counted as one
CHUNKS_PER_SLICE: Final = 100
RECORDS_PER_CHUNK: Final = 5  # as long as it takes to look at so many
FOREVER: Final = 1 << 62

Chunk = tuple[int, int, int]  # first and last sequence, bytes


@final
class Shard:
    """One partition."""

    __slots__ = ("behind", "bytes", "counted", "looked", "lost", "mark", "spans")

    def __init__(self, archived: Archived) -> None:
        self.mark: int = archived.upto
        self.lost: list[tuple[int, int]] = archived.lost
        self.bytes: int = 0
        self.counted: int = 0  # what is held up to here is in `spans`
        self.looked: int = 0  # up to here the store was looked through for more
        self.behind: bool = True  # it has to be
        self.spans: deque[tuple[int, int, int]] = deque()  # last sequence, bytes, since when

    def floor(self) -> int:
        return max(self.mark, self.lost[-1][1]) if self.lost else self.mark

    def lost_count(self) -> int:
        return sum([upto - after for after, upto in self.lost])

    def add(self, last: int, size: int, since_ms: int) -> int:
        """A chunk is settled; returns the bytes which are held because of it."""
        self.counted = last
        if last <= self.floor():
            return 0
        self.spans.append((last, size, since_ms))
        self.bytes += size
        if len(self.spans) > SPANS_MAX:
            self._join()
        return size

    def _join(self) -> None:
        spans = list(self.spans)
        self.spans.clear()
        for (_, size, since_ms), (last, more, _) in zip(spans[::2], spans[1::2], strict=False):
            self.spans.append((last, size + more, since_ms))
        if len(spans) % 2:
            self.spans.append(spans[-1])

    def release(self) -> int:
        """The floor is higher; returns the bytes which are not held any more."""
        floor = self.floor()
        freed = 0
        while self.spans and self.spans[0][0] <= floor:
            freed += self.spans.popleft()[1]
        self.bytes -= freed
        return freed

    def give_up(self) -> tuple[int, int]:
        """Let the oldest go unarchived; returns how many messages and bytes."""
        after = self.floor()
        last, size, _ = self.spans.popleft()
        self.bytes -= size
        self.lost = with_lost(self.lost, after, last)
        return last - after, size

    def recount(self) -> int:
        """Nothing is known; returns the bytes which were counted so far."""
        size, self.bytes = self.bytes, 0
        self.spans.clear()
        self.counted = self.looked = 0
        self.behind = True
        return size


@final
class Holding:
    """One queue. `grown` is told each change of the bytes it holds."""

    __slots__ = ("_grown", "host", "is_counting", "lasts", "name", "promises", "queue_id", "shards")

    def __init__(
        self, queue_id: int, name: str, promises: bool, grown: Callable[[int], None]
    ) -> None:
        self.queue_id: int = queue_id
        self.name: str = name
        self.promises: bool = promises  # `archive = true`
        self.shards: list[Shard] = []
        self.host: HostedQueue | None = None  # when it is awake
        self.lasts: list[int] = []  # when it sleeps: where its partitions end
        self.is_counting: bool = False
        self._grown: Callable[[int], None] = grown

    def floor(self, number: int) -> int:
        """What is above may not be deleted."""
        return self.shards[number].floor() if self.promises else FOREVER

    def bytes(self) -> int:
        return sum([shard.bytes for shard in self.shards])

    def upto(self) -> list[int]:
        """Where its partitions end."""
        if self.host is None:
            return self.lasts
        return [partition.last for partition in self.host.machine.partitions]

    def lag(self) -> int:
        """Messages which the lake does not have."""
        if not self.promises:
            return 0
        pairs = zip(self.upto(), self.shards, strict=False)
        return sum([max(0, last - shard.mark) for last, shard in pairs])

    def raise_mark(self, number: int, upto: int) -> None:
        self.shards[number].mark = upto
        self._grown(-self.shards[number].release())

    def recount(self) -> None:
        """The store is what counts."""
        for shard in self.shards:
            self._grown(-shard.recount())

    # Counting

    def passed(self, number: int, known: list[Chunk], upto: int, now_ms: int) -> None:
        """Everything up to `upto` is gone for consumers; `known` are the chunks written lately."""
        if not self.promises:
            return
        shard = self.shards[number]
        counted = max(shard.counted, shard.floor())
        if not shard.behind and known and known[0][0] <= counted + 1:
            for first, last, size in known:
                if last > upto:
                    return
                if first > max(shard.counted, shard.floor()) + 1:
                    shard.behind = True  # staged chunks lie between, of which the queue knows less
                    return
                if last > shard.counted:
                    self._grown(shard.add(last, size, now_ms))
        elif upto > max(counted, shard.looked):
            shard.behind = True

    def is_counted(self) -> bool:
        return not self.promises or not any([shard.behind for shard in self.shards])

    def count(self, host: HostedQueue) -> Iterator[int]:
        """Look through the store for what is held, a slice at a time; yields what that costs."""
        self.is_counting = True
        try:
            for number, shard in enumerate(self.shards):
                while shard.behind and self.host is host:
                    yield self._count_some(host, number, shard)
        finally:
            self.is_counting = False

    def _count_some(self, host: HostedQueue, number: int, shard: Shard) -> int:
        if number >= len(host.machine.partitions):
            shard.behind = False  # the commit which made the partition has failed
            return 1
        upto = host.machine.partitions[number].gone.upto
        known = host.tails[number].chunks
        stop = known[0][0] if known else FOREVER
        runner = host.queues.runner
        found: list[tuple[int, int, int]] = []  # last sequence, bytes, time
        with host.queues.store.view() as view:
            start = t.chunk_key(host.id, number, shard.counted + 1)
            end = t.partition_key(host.id, number) + b"\xff" * t.KEY_BYTES_MAX
            for key, value in view.scan(api.CHUNKS, start, end):
                if key.endswith(b"\0\0"):
                    first, last = chunk_range(value)
                    if last > upto or first >= stop or len(found) == CHUNKS_PER_SLICE:
                        break
                    found.append((last, 0, _time_of(value)))
                last, size, ts_ms = found[-1]
                found[-1] = (last, size + stored_bytes(key, value), ts_ms)
        for last, size, ts_ms in found:
            self._grown(shard.add(last, size, ts_ms))
        if len(found) < CHUNKS_PER_SLICE:
            shard.behind = False
            # What is on its way to the store is looked for again.
            shard.looked = shard.counted if runner.has_work() else upto
        return RECORDS_PER_CHUNK * (len(found) + 1)


def _time_of(value: bytes) -> int:
    """When the first message of a chunk came."""
    return read_pointer(value).ts_ms if is_pointer(value) else chunk_times(value)[0]
