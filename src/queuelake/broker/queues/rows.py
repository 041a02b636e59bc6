"""A hosted queue in the store: writing what changed, and reading it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from queuelake.broker.queues.tail import Tail
from queuelake.engine.groups import Group
from queuelake.engine.lane import Lane, Tally
from queuelake.engine.message import Entry
from queuelake.engine.partition import Partition
from queuelake.engine.partitioning import fnv1a
from queuelake.engine.publishers import MessageIds
from queuelake.engine.settled import Settled
from queuelake.engine.settling import line_up
from queuelake.engine.state import QueueState
from queuelake.storage import api, queue_records
from queuelake.storage import queue_tables as t
from queuelake.storage.api import Batch, ReadTransaction
from queuelake.storage.chunk import Record
from queuelake.storage.stage_records import delayed_count

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue

BITS_BYTES: Final = 128
TRIM_CHUNKS_MIN: Final = 16
BEHIND_MIN: Final = 2_000
FULL_BYTES: Final = t.PIECE_BYTES * 9 // 10


def key_hash(key: bytes) -> int:
    """How the machine knows a key; 0 is no key."""
    return fnv1a(key) + 1 if key else 0


def entry_of(record: Record, partition: int, topic: bytes) -> Entry:
    """What the machine knows of a stored message of the queue at `topic`."""
    return entry_with(record, partition, topic, key_hash(record.key))


def entry_with(record: Record, partition: int, topic: bytes, key: int) -> Entry:
    rest = b""
    if record.topic and record.topic.startswith(topic):
        rest = record.topic[len(topic) + 1 :]
    return Entry(
        partition,
        len(record.payload),
        key,
        record.ts_ms,
        record.expires_ms,
        record.priority,
        rest,
        record.seq,
    )


# Writing


def write_partition(batch: Batch, host: HostedQueue, partition: Partition, tail: Tail) -> None:
    """New messages, and which of the old ones are gone."""
    number = partition.number
    if tail.pending:
        _write_chunks(batch, host, partition, tail)
        tail.storing = tail.pending
        tail.pending = []
    gone = partition.gone
    if gone.upto > host.trimmed[number]:
        _trim(batch, host, partition, tail)
    if gone.dirty:
        write_blocks(batch, host.id, t.EVERYBODY, number, gone)
    # Else it follows from what the groups have settled.
    if gone.upto > host.recorded[number] and (
        not host.machine.groups or host.machine.policy.is_stream
    ):
        _write_state(batch, host, partition)


def _write_state(batch: Batch, host: HostedQueue, partition: Partition) -> None:
    number = partition.number
    upto = partition.gone.upto
    host.recorded[number] = upto
    key = t.partition_key(host.id, number)
    batch.put(api.PARTITIONS, key, t.partition_state(upto, partition.last, 0))


def _is_behind(host: HostedQueue, partition: Partition) -> bool:
    """Whether no group will come to the newest messages soon."""
    soon = partition.last - BEHIND_MIN
    groups = host.machine.groups.values()
    return all([group.lanes[partition.number].next < soon for group in groups])


def _write_chunks(batch: Batch, host: HostedQueue, partition: Partition, tail: Tail) -> None:
    """The messages of this group, after those of the last chunk while that has room and nobody will
    read it soon: a backlog of many small groups lies in full chunks."""
    records = tail.pending
    if tail.chunks:
        first, last, size = tail.chunks[-1]
        if size < FULL_BYTES and last > tail.pointed and _is_behind(host, partition):
            before = tail.between(first, last)
            if len(before) == last - first + 1 and records[0].seq == last + 1:
                tail.chunks.pop()
                records = before + records
    for run in runs(records):
        for first, last, size in t.put_chunk(batch, host.id, partition.number, run[0].seq, run):
            tail.wrote(first, last, size)


def runs(records: list[Record]) -> list[list[Record]]:
    """Records without gaps; a range may have come between them."""
    if records[-1].seq - records[0].seq == len(records) - 1:
        return [records]
    found: list[list[Record]] = []
    for record in records:
        if not found or found[-1][-1].seq + 1 != record.seq:
            found.append([])
        found[-1].append(record)
    return found


def _trim(batch: Batch, host: HostedQueue, partition: Partition, tail: Tail) -> None:
    """Delete chunks nobody needs any more: many at a time, because looking for them costs more than
    they do; what is left is deleted when the queue is tidied up."""
    number = partition.number
    known = tail.chunks
    if not host.tidies and (
        len(known) < TRIM_CHUNKS_MIN or known[TRIM_CHUNKS_MIN - 1][1] > partition.gone.upto
    ):
        return
    let_go(host, partition, tail)
    upto = host.deletable(partition)
    if upto <= host.trimmed[number]:
        return  # the archive needs what is left
    batch.trim_chunks(host.id, number, upto)
    if upto - host.trimmed[number] > t.TRIM_CHUNKS_MAX:
        with host.queues.store.view() as view:
            upto = min(upto, t.trim_reach(view, host.id, number))  # the rest has its turn later
    host.trimmed[number] = upto
    _write_state(batch, host, partition)


def let_go(host: HostedQueue, partition: Partition, tail: Tail) -> None:
    """No consumer needs these any more: out of memory, and if they are held, they are counted."""
    upto = partition.gone.upto
    known = tail.chunks
    tail.drop_upto(upto)
    if host.hold is not None:
        host.hold.passed(partition.number, known, upto, host.machine.now_ms)
    count = 0
    while count < len(known) and known[count][1] <= upto:
        count += 1
    del known[:count]


def write_group(batch: Batch, host: HostedQueue, group: Group) -> None:
    if group.dirty:
        group.dirty = False
        record = queue_records.GroupRecord(
            group.name, group.derived, group.pattern, group.absent_ms
        )
        batch.put(api.GROUPS, t.group_key(host.id, group.id), queue_records.encode(record))
    is_consumed = len(group.consumers) > 0
    for lane in group.lanes:
        if lane.dirty or (not is_consumed and lane.claimed > lane.horizon):
            last = host.machine.partitions[lane.number].last
            _write_lane(batch, host.id, group.id, lane, lane.claim(last, is_consumed))


def _write_lane(batch: Batch, queue_id: int, group_id: int, lane: Lane, claimed: int) -> None:
    lane.dirty = False
    number = lane.number
    batch.put(
        api.LANES, t.lane_key(queue_id, group_id, number), t.lane_state(lane.settled.upto, claimed)
    )
    if lane.settled.dirty:
        write_blocks(batch, queue_id, group_id, number, lane.settled)
    if lane.dirty_tallies:
        for seq in lane.dirty_tallies:
            key = t.tally_key(queue_id, group_id, number, seq)
            tally = lane.tallies.get(seq)
            if tally is None:
                batch.delete(api.TALLIES, key)
            else:
                value = t.tally(tally.attempts, tally.due_ms, tally.first_ms)
                batch.put(api.TALLIES, key, value)
        lane.dirty_tallies.clear()


def write_blocks(batch: Batch, queue_id: int, group_id: int, number: int, settled: Settled) -> None:
    for block in settled.dirty:
        key = t.settled_key(queue_id, group_id, number, block)
        bits = settled.blocks.get(block)
        if bits is None:
            batch.delete(api.SETTLED, key)
        else:
            batch.put(api.SETTLED, key, bits.to_bytes(BITS_BYTES, "little"))
    settled.dirty.clear()


def forget_group(batch: Batch, host: HostedQueue, group_id: int) -> None:
    """Delete all rows of a group; those of a commit under way are in the store by now."""
    prefix = t.group_key(host.id, group_id)
    with host.queues.store.view() as view:
        for table in (api.GROUPS, api.LANES, api.SETTLED, api.TALLIES):
            for key, _ in t.scan_prefix(view, table, prefix):
                batch.delete(table, key)


def write_ids(batch: Batch, queue_id: int, until_ms: int, number: int, ids: MessageIds) -> None:
    """One row for all message ids of a group commit."""
    key = t.dedupe_key(queue_id, until_ms, number & 0xFFFFFFFF)
    batch.put(api.DEDUPE, key, b"".join(ids.added))
    ids.added = []


def read_ids(view: ReadTransaction, queue_id: int, ids: MessageIds, now_ms: int) -> None:
    for key, value in t.scan_prefix(view, api.DEDUPE, t.queue_key(queue_id)):
        until_ms = int.from_bytes(key[8:16], "big")
        if until_ms > now_ms:
            for digest in t.read_hashes(value):
                ids.restore(digest, until_ms)


def write_record(batch: Batch, host: HostedQueue) -> None:
    batch.put(api.QUEUES, t.queue_key(host.id), queue_records.encode(host.queue_record()))


# Reading


class Loader:
    """Fills the machine of a queue from its rows."""

    def __init__(self, view: ReadTransaction, host: HostedQueue) -> None:
        self._view = view
        self._id = host.id
        self._host = host
        self._entries: dict[int, Entry] = {}  # of the chunk read last
        self._partition = -1

    def load(self, machine: QueueState, next_group_id: int, now_ms: int) -> None:
        """Fill a machine which is new."""
        machine.now_ms = now_ms
        machine.next_group_id = next_group_id
        for partition in machine.partitions:
            machine.bytes += self._load_partition(partition)
        prefix = t.queue_key(self._id)
        for key, value in t.scan_prefix(self._view, api.GROUPS, prefix):
            group_id = int.from_bytes(key[8:], "big")
            record = queue_records.decode_group(value)
            group = Group(record.name, group_id, record.derived, record.pattern)
            # Its consumers, if it had any, are gone now; that has to be stored.
            group.dirty = not record.absent_ms
            group.absent_ms = record.absent_ms or now_ms
            machine.groups[record.name] = group
            self._load_lanes(machine, group)
        for partition in machine.partitions:
            machine.release(partition)
        if not machine.groups:
            machine.loose = sum([partition.stored() for partition in machine.partitions])
        read_ids(self._view, self._id, machine.ids, now_ms)
        machine.delayed = sum(
            [1 for key in self._delayed_keys() if key[-2:] == b"\0\0"]  # first pieces
        )
        machine.delayed += delayed_count(self._view, self._id)

    def _delayed_keys(self) -> list[bytes]:
        prefix = t.queue_key(self._id)
        return list(self._view.scan_keys(api.DELAYED, prefix, prefix + b"\xff" * t.KEY_BYTES_MAX))

    def _load_partition(self, partition: Partition) -> int:
        """Returns its bytes, where they are counted."""
        size = 0
        value = self._view.get(api.PARTITIONS, t.partition_key(self._id, partition.number))
        if value is not None:
            low, last, size = t.read_partition_state(value)
            partition.gone.upto = low
            partition.last = last
        last = t.last_sequence(self._view, self._id, partition.number)
        partition.last = max(partition.last, last)
        self._load_blocks(partition.gone, t.EVERYBODY, partition.number)
        return size

    def _load_blocks(self, settled: Settled, group_id: int, number: int) -> None:
        prefix = t.lane_key(self._id, group_id, number)
        for key, value in t.scan_prefix(self._view, api.SETTLED, prefix):
            block = int.from_bytes(key[14:], "big")
            settled.restore(block, int.from_bytes(value, "little"))

    def _load_lanes(self, machine: QueueState, group: Group) -> None:
        for partition in machine.partitions:
            number = partition.number
            value = self._view.get(api.LANES, t.lane_key(self._id, group.id, number))
            if value is None:  # the partition is younger than the group
                lane = Lane(number, partition.gone.copy())
            else:
                upto, claimed = t.read_lane_state(value)
                lane = Lane(number, Settled(upto))
                lane.dirty = False
                lane.claimed = lane.claiming = claimed
                lane.next = lane.horizon = max(claimed, upto + 1)
                self._load_blocks(lane.settled, group.id, number)
            lane.settled.raise_to(partition.gone.upto)
            lane.next = max(lane.next, lane.settled.upto + 1)
            lane.horizon = max(lane.horizon, lane.settled.upto + 1)
            group.lanes.append(lane)
            group.unsettled += lane.unsettled(partition.last)
            self._load_tallies(group, lane)
            self._put_back(machine, group, lane)

    def _load_tallies(self, group: Group, lane: Lane) -> None:
        prefix = t.lane_key(self._id, group.id, lane.number)
        for key, value in t.scan_prefix(self._view, api.TALLIES, prefix):
            seq = int.from_bytes(key[14:], "big")
            if seq not in lane.settled:
                attempts, due_ms, first_ms = t.read_tally(value)
                lane.tallies[seq] = Tally(attempts, due_ms, first_ms)

    def _put_back(self, machine: QueueState, group: Group, lane: Lane) -> None:
        """What was handed out and is not settled is in nobody's hands now."""
        last = machine.partitions[lane.number].last
        out = set(lane.settled.unsettled(lane.settled.upto + 1, min(lane.next - 1, last)))
        for seq in sorted(out | set(lane.tallies)):
            entry = self._entry(lane.number, seq)
            if entry is None:
                continue
            if seq >= lane.next:
                lane.ahead.add(seq)
            tally = lane.tallies.get(seq)
            if tally is None:
                lane.come_back(entry, 1, 0, 0)
                tally = lane.tallies[seq]
            line_up(machine, lane, entry, tally.due_ms)

    def _entry(self, number: int, seq: int) -> Entry | None:
        if self._partition != number or seq not in self._entries:
            records = t.read_chunk_at(self._view, self._id, number, seq)
            self._partition = number
            self._entries = {record.seq: self._host.entry_of(record, number) for record in records}
        return self._entries.get(seq)
