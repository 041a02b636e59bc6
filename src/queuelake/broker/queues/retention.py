"""How much of a stream is kept: by age, by bytes, by number of messages.

The oldest messages of all partitions together go first, whoever still needs them. The oldest chunk
of each partition is known, so that a second in which nothing has to go costs no read. Bytes are
those of chunks, and in one chunk all messages count equally; after a load they are counted a slice
at a time, so that for a while more may be kept than was asked for, never less.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, final

from queuelake.engine import commands as c
from queuelake.storage import api
from queuelake.storage import queue_tables as t
from queuelake.storage.chunk import Record, chunk_range
from queuelake.storage.stage_tables import stored_bytes

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue
    from queuelake.engine.partition import Partition
    from queuelake.storage.api import ReadTransaction

CHUNKS_PER_TURN_MAX: Final = 200  # counted in one turn; and so often something is forgotten
EXACT_MAX: Final = 1_000
FOREVER_MS: Final = 1 << 62


@final
class _Oldest:
    """The first chunk of a partition of which something is left."""

    __slots__ = ("bytes_each", "first", "last", "partition", "times")

    def __init__(self, partition: Partition, records: list[Record], size: int) -> None:
        self.partition: Partition = partition
        self.first: int = records[0].seq
        self.last: int = records[-1].seq
        self.bytes_each: float = size / len(records)
        self.times: list[int] = [record.ts_ms for record in records]

    def left(self) -> list[int]:
        """The times of its messages which are not forgotten."""
        return self.times[max(0, self.partition.gone.upto + 1 - self.first) :]


@final
class _Counted:
    """The bytes of one partition, from its oldest chunk to the one counted last."""

    __slots__ = ("first", "last", "size")

    def __init__(self, first: int) -> None:
        self.first: int = first  # of the chunk counted last, which may grow
        self.last: int = 0
        self.size: int = 0


@final
class Retention:
    """The limits of one stream which is awake."""

    __slots__ = ("_bytes", "_counted", "_host", "_machine", "_oldest")

    def __init__(self, host: HostedQueue) -> None:
        self._host = host
        self._machine = host.machine
        self._oldest: dict[int, _Oldest] = {}
        self._counted: dict[int, _Counted] = {}
        self._bytes: float = 0.0

    def recount(self) -> None:
        """Chunks were written anew: their sizes are not what they were."""
        self._oldest.clear()
        self._counted.clear()
        self._bytes = 0.0

    def due_ms(self) -> int:
        """When the oldest message will be too old; 0: never."""
        age_ms = self._machine.policy.retention_age_ms
        heads = self._heads()
        return heads[0][0] + age_ms if age_ms and heads else 0

    def retain(self, now_ms: int) -> None:
        """Forget the oldest messages of a stream until it is within its limits."""
        policy = self._machine.policy
        if not (policy.retention_age_ms or policy.retention_bytes or policy.retention_messages):
            return
        heads = self._heads()
        if policy.retention_bytes:
            self._count_bytes()
        count = sum([partition.stored() for partition in self._machine.partitions])
        for _ in range(CHUNKS_PER_TURN_MAX):
            if not heads:
                return
            chunk = self._oldest[heads[0][1]]
            excess = self._excess(chunk, count, _second_ms(heads), now_ms)
            if excess <= 0:
                return
            count -= self._forget(chunk, excess, now_ms)
            following = self._find_oldest(chunk.partition)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (following.left()[0], chunk.partition.number))

    def _heads(self) -> list[tuple[int, int]]:
        """A heap: when the oldest message of each partition came, and the partition."""
        heads: list[tuple[int, int]] = []
        for partition in self._machine.partitions:
            chunk = self._find_oldest(partition)
            if chunk is not None:
                heads.append((chunk.left()[0], partition.number))
        heapq.heapify(heads)
        return heads

    def _excess(self, chunk: _Oldest, count: int, second_ms: int, now_ms: int) -> int:
        """How many messages at the beginning of this chunk have to go, those of other partitions
        not being older; where very many have to go, that is not looked at."""
        policy = self._machine.policy
        times = chunk.left()
        excess = 0
        if policy.retention_messages:
            excess = count - policy.retention_messages
        if policy.retention_bytes and self._bytes > policy.retention_bytes:
            over = (self._bytes - policy.retention_bytes) / chunk.bytes_each
            excess = max(excess, math.ceil(over))
        if 0 < excess <= EXACT_MAX:
            excess = min(excess, max(1, bisect_right(times, second_ms)))
        if policy.retention_age_ms:
            old_ms = now_ms - policy.retention_age_ms
            young = [at for at, ts_ms in enumerate(times) if ts_ms > old_ms]
            excess = max(excess, young[0] if young else len(times))
        return min(excess, len(times))

    def _forget(self, chunk: _Oldest, excess: int, now_ms: int) -> int:
        """Some of them may be gone already; returns how many there were."""
        partition = chunk.partition
        before = partition.stored()
        start = max(chunk.first, partition.gone.upto + 1)
        self._host.apply(c.Truncate(partition.number, start + excess - 1), now_ms)
        counted = self._counted.get(partition.number)
        if counted is not None and chunk.first <= counted.first and counted.last:
            self._bytes -= excess * chunk.bytes_each
        return before - partition.stored()

    def _find_oldest(self, partition: Partition) -> _Oldest | None:
        number = partition.number
        upto = partition.gone.upto
        known = self._oldest.get(number)
        if known is not None and known.last > upto:
            return known
        self._oldest.pop(number, None)
        if upto == partition.last:
            return None
        host = self._host
        with host.queues.store.view() as view:
            records = t.read_chunk_at(view, host.id, number, upto + 1)
            if not records:
                return None  # it is on its way to the store
            size = _chunk_bytes(view, host.id, number, records[0].seq)
        found = self._oldest[number] = _Oldest(partition, records, size)
        return found

    # Bytes

    def _count_bytes(self) -> None:
        """Add what was stored since the last time."""
        left = CHUNKS_PER_TURN_MAX
        with self._host.queues.store.view() as view:
            for number, oldest in self._oldest.items():
                counted = self._counted.get(number)
                if counted is None:
                    counted = self._counted[number] = _Counted(oldest.first)
                if counted.last < oldest.partition.last and left > 0:
                    left -= self._count_partition(view, oldest, counted, left)

    def _count_partition(
        self, view: ReadTransaction, oldest: _Oldest, counted: _Counted, chunks_max: int
    ) -> int:
        """From the chunk counted last, which may have grown; returns how many chunks it were."""
        queue_id, number = self._host.id, oldest.partition.number
        start = t.chunk_key(queue_id, number, max(counted.first, oldest.first))
        stop = t.partition_key(queue_id, number) + b"\xff" * t.KEY_BYTES_MAX
        chunks = 0
        for key, value in view.scan(api.CHUNKS, start, stop):
            first = t.first_of(key)
            if key.endswith(b"\0\0"):
                if chunks == chunks_max:
                    break
                chunks += 1
                if first == counted.first and counted.last:
                    self._bytes -= counted.size
                elif first <= oldest.partition.gone.upto:
                    forgotten = oldest.partition.gone.upto + 1 - first
                    self._bytes -= forgotten * oldest.bytes_each
                counted.first, counted.last = chunk_range(value)
                counted.size = 0
            size = stored_bytes(key, value)
            counted.size += size
            self._bytes += size
        return chunks


def _second_ms(heads: list[tuple[int, int]]) -> int:
    """When the oldest message of all partitions but the first came."""
    return min([head[0] for head in heads[1:3]], default=FOREVER_MS)


def _chunk_bytes(view: ReadTransaction, queue_id: int, number: int, first: int) -> int:
    prefix = t.chunk_key(queue_id, number, first)[: t.CHUNK_PREFIX]
    return sum([stored_bytes(key, value) for key, value in t.scan_prefix(view, api.CHUNKS, prefix)])
