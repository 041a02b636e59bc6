"""Compaction of streams: of each key the last message stays, and whatever is younger than the lag.

A run goes over the partitions one after the other, a chunk at a time:

    first             clean                          last
      |--- compacted ---|--- new, or still too young ---|

1. From `clean` to the end it notes the last sequence of each key. When these are more than
   KEYS_MAX it stops there for now, and goes on from there after step 2.
2. From the first message to where step 1 stopped, every message older than the lag is removed of
   which step 1 has seen a later one. A message without a key is never removed.
3. A chunk in which at least half of the bytes are gone is written anew with blank records in their
   place: sequences and times stay. This waits until the removal is durable, because a delivery on
   its way may still need the message.

A run which is interrupted (the queue was loaded again, the broker restarted) leaves nothing behind:
the next one starts at the first message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final, final

from queuelake.broker.queues.incoming import skip_property
from queuelake.engine import commands as c
from queuelake.protocol.properties import USER_PROPERTY
from queuelake.storage import api
from queuelake.storage import queue_tables as t
from queuelake.storage.chunk import Record, encode_chunk

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue
    from queuelake.engine.partition import Partition

KEYS_MAX: Final = 100_000
REMOVALS_PER_SLICE: Final = 100
RECORDS_PER_REMOVAL: Final = 8  # as long as it takes to look at so many
DIGEST_BYTES: Final = 16
MESSAGE_ID: Final = b"message-id"  # of all user properties the one which is kept apart


@final
class Compaction:
    """The compaction of one stream which is awake."""

    __slots__ = ("_clean", "_hollow", "_host", "_key", "_machine", "is_running", "next_ms")

    def __init__(self, host: HostedQueue, now_ms: int) -> None:
        self._host = host
        self._machine = host.machine
        self._key: bytes = host.compaction_key()
        self._clean: list[int] = []  # of each partition: where the next run starts to note keys
        # Partition, first sequence, and the commit group of the removal, of chunks to be rewritten.
        self._hollow: list[tuple[int, int, int]] = []
        self.is_running = False
        self.next_ms: int = now_ms + host.machine.policy.compaction_interval_ms

    def is_due(self, now_ms: int) -> bool:
        return self._host.machine.policy.compaction_enabled and now_ms >= self.next_ms

    def is_done(self) -> bool:
        """Whether a run would find nothing: every message was compared with all which follow."""
        if not self._host.machine.policy.compaction_enabled:
            return True
        partitions = self._machine.partitions
        if self.is_running or len(self._clean) < len(partitions):
            return not any([partition.last for partition in partitions])
        return all([self._clean[one.number] > one.last for one in partitions])

    def run(self, now_ms: int) -> Iterator[int]:
        """One run, a slice at a time; yields how many records were looked at, 0: it has to wait."""
        policy = self._machine.policy
        self.is_running = True
        try:
            key = self._host.compaction_key()
            if key != self._key:
                self._key = key
                self._clean.clear()
            old_ms = now_ms - policy.compaction_lag_ms
            for partition in self._machine.partitions:
                if partition.number >= len(self._clean):
                    self._clean.append(1)
                while (yield from self._compact(partition, old_ms)):
                    pass
            while self._hollow:
                yield self._free()
        finally:
            self.is_running = False
            self._hollow.clear()
            self.next_ms = now_ms + policy.compaction_interval_ms

    def _compact(self, partition: Partition, old_ms: int) -> Generator[int, None, bool]:
        """As many keys as may be noted at once; tells whether there are more."""
        number = partition.number
        last_of: dict[bytes, int] = {}
        young = 0  # the first which may not be removed yet
        seq = max(self._clean[number], partition.gone.upto + 1)
        while len(last_of) < KEYS_MAX and (records := self._read(number, seq)):
            for record in records:
                if record.seq < seq or record.seq in partition.gone:
                    continue
                if not young and record.ts_ms > old_ms:
                    young = record.seq
                key = key_of(record, self._key)
                if key:
                    last_of[key] = record.seq
            seq = records[-1].seq + 1
            yield len(records)
        if last_of:
            yield from self._remove(partition, last_of, seq, old_ms)
        self._clean[number] = young or seq
        return not young and len(last_of) >= KEYS_MAX

    def _remove(
        self, partition: Partition, last_of: dict[bytes, int], end: int, old_ms: int
    ) -> Iterator[int]:
        host = self._host
        number = partition.number
        seq = partition.gone.upto + 1
        while seq < end and (records := self._read(number, seq)):
            over = [
                record.seq
                for record in records
                if record.seq not in partition.gone
                and record.ts_ms <= old_ms
                and last_of.get(key_of(record, self._key), 0) > record.seq
            ]
            yield len(records)
            for at in range(0, len(over), REMOVALS_PER_SLICE):
                if not self._is_current():
                    return
                now_ms = host.queues.clock.now_ms()
                for one in over[at : at + REMOVALS_PER_SLICE]:
                    host.apply(c.Remove(number, one), now_ms)
                yield RECORDS_PER_REMOVAL * REMOVALS_PER_SLICE
            size = sum([record.size() for record in records])
            gone = sum([record.size() for record in records if record.seq in partition.gone])
            if 0 < size <= 2 * gone:
                self._hollow.append((number, records[0].seq, host.queues.runner.number))
            seq = records[-1].seq + 1
            while self._hollow and self._hollow[0][2] <= host.queues.runner.durable:
                yield self._free()

    def _is_current(self) -> bool:
        return not self._host.is_deleted and self._host.machine is self._machine

    def _read(self, number: int, seq: int) -> list[Record]:
        """The chunk at a sequence; nothing when the queue is not the one it was."""
        if not self._is_current():
            return []
        host = self._host
        with host.queues.store.view() as view:
            return t.read_chunk_at(view, host.id, number, seq)

    # Space

    def _free(self) -> int:
        """Rewrite one chunk, if its time has come."""
        number, first, group = self._hollow[0]
        if not self._is_current():
            self._hollow.clear()
            return 1
        if group > self._host.queues.runner.durable:
            return 0
        del self._hollow[0]
        records = self._read(number, first)
        if records and records[0].seq == first and self._may_rewrite(number, records):
            self._rewrite(number, records)
        return max(1, len(records))

    def _may_rewrite(self, number: int, records: list[Record]) -> bool:
        """Not when a commit under way trims the chunk or appends to it."""
        first, last = records[0].seq, records[-1].seq
        if last <= self._machine.partitions[number].gone.upto:
            return False
        hold = self._host.hold
        if hold is not None and last > hold.floor(number):
            return False  # the archive wants what was removed, too
        known = self._host.tails[number].chunks
        if known and known[-1][0] <= first:
            return False
        return all([end == last for begin, end, _ in known if begin == first])

    def _rewrite(self, number: int, records: list[Record]) -> None:
        host = self._host
        gone = self._machine.partitions[number].gone
        first = records[0].seq
        before = encode_chunk(first, records)
        after = encode_chunk(first, [blank(one) if one.seq in gone else one for one in records])
        if 2 * len(after) > len(before):
            return
        assert len(after) <= t.PIECE_BYTES, "a chunk of many records was one piece before"
        batch = host.queues.runner.group.batch
        batch.delete_chunk(host.id, number, first)
        batch.put(api.CHUNKS, t.chunk_key(host.id, number, first), after)
        host.queues.runner.wake()


def blank(record: Record) -> Record:
    """What stays in the place of a message: when it came."""
    return Record(
        b"",
        b"",
        b"",
        b"",
        b"",
        b"",
        record.qos,
        record.priority,
        record.ts_ms,
        record.expires_ms,
        record.seq,
    )


def key_of(record: Record, name: bytes) -> bytes:
    """What tells its key apart from all others: the key, or its hash; empty: it has none."""
    if not name:
        key = record.key
    elif name == MESSAGE_ID:
        key = record.message_id
    else:
        key = _user_property(record.properties, name)
    if len(key) < DIGEST_BYTES:
        return key
    return hashlib.blake2b(key, digest_size=DIGEST_BYTES).digest()


def _user_property(properties: bytes, name: bytes) -> bytes:
    at = 0
    while at < len(properties):
        end = skip_property(properties, at)
        if properties[at] == USER_PROPERTY:
            key_end = at + 3 + (properties[at + 1] << 8 | properties[at + 2])
            if properties[at + 3 : key_end] == name:
                return properties[key_end + 2 : end]
        at = end
    return b""
