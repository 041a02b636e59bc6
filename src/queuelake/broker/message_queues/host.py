"""A message queue in the broker.

A regular queue is stored as durable queues are: the messages of one commit are a chunk. In a
last-value queue any message may leave at any time, so each has a row of its own, and one which is
overwritten before its commit is never written at all.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, final

import msgspec

from queuelake import names
from queuelake.broker.message_queues.latest import LatestValues, key_of
from queuelake.broker.message_queues.policy import policy_of
from queuelake.broker.queues import reading, rows
from queuelake.broker.queues.host import HostedQueue
from queuelake.engine import commands as c
from queuelake.engine.effects import Deliver
from queuelake.engine.groups import GROUP
from queuelake.engine.kinds.message_queue import MessageQueue
from queuelake.engine.leaving import known, missing_head
from queuelake.engine.machine import Command
from queuelake.engine.message import Entry
from queuelake.engine.policy.settings import STICKY_KEY, Policy
from queuelake.engine.state import QueueState
from queuelake.storage import api, queue_records
from queuelake.storage import queue_tables as t
from queuelake.storage.api import Batch
from queuelake.storage.chunk import Record

if TYPE_CHECKING:
    from queuelake.broker.message_queues.definition import Definition
    from queuelake.broker.queues.registry import Queues

HEADS_MAX: Final = 1_000  # loaded to make room for one message


@final
class MessageQueueHost(HostedQueue):
    """One message queue which is awake."""

    __slots__ = (
        "_gone_rows",
        "_inserted",
        "_latest",
        "_sealed",
        "_since_ms",
        "_written",
        "has_expiring",
        "known",
    )

    def __init__(
        self, queues: Queues, queue_id: int, known: Definition, policy: Policy, created_ms: int
    ) -> None:
        self.known: Definition = known
        self._latest: LatestValues = LatestValues(queues.store, queue_id)
        self.has_expiring: bool = False  # messages which asked for a shorter life came lately
        self._gone_rows: list[int] = []  # sequences of last values which have left
        self._written: int = 0  # the highest sequence which was part of a commit
        self._inserted: int = 0  # messages since the last write
        self._since_ms: int = 0  # when the first of them came
        self._sealed: tuple[int, int] = (0, 0)  # the same two of the commit under way
        topic = known.address.encode()
        super().__init__(queues, queue_id, known.name, topic, policy, created_ms, False)

    # What kind of queue it is

    def new_machine(self, policy: Policy) -> QueueState:
        return MessageQueue(policy)

    def queue_record(self) -> queue_records.QueueRecord:
        return queue_records.QueueRecord(
            self.name,
            queue_records.MESSAGE,
            self.created_ms,
            msgspec.json.encode(self.known.settings),
            1,
            self.machine.next_group_id,
        )

    def read_settings(self, record: queue_records.QueueRecord) -> Policy:
        self.known.adopt(record)
        return policy_of(self.known.settings, self.known.service.config)

    def dead_letter_queue(self) -> str:
        return names.dead_letter_name_of_filter(self.name)

    def entry_of(self, record: Record, number: int) -> Entry:
        return self._entry(record, self._key(record))

    def _key(self, record: Record) -> int:
        policy = self.machine.policy
        if policy.is_last_value:
            return key_of(record.key)
        if policy.strategy == STICKY_KEY:
            return rows.key_hash(record.publisher)
        return 0

    def _entry(self, record: Record, key: int) -> Entry:
        size = len(record.payload)
        return Entry(0, size, key, record.ts_ms, record.expires_ms, seq=record.seq)

    # Messages

    def insert(self, record: Record, now_ms: int) -> int:
        """Store a message; the machine's reply."""
        machine = self.machine
        policy = machine.policy
        if policy.count_max or policy.bytes_max:
            self._load_heads(len(record.payload), now_ms)
        key = self._key(record)
        replaces = replaced_size = 0
        if policy.is_last_value:
            replaces, replaced_size = self._latest.find(key)
        entry = self._entry(record, key)
        command = c.Enqueue(entry, b"", c.PUBLISHED, "", 0, replaces, replaced_size)
        machine.apply(self.meta(now_ms), command)
        if machine.freed:
            self._forget_freed()
        if machine.reply == 0:
            record.seq = entry.seq
            self.tails[0].append(record)
            if policy.is_last_value:
                self._latest.put(key, entry.seq, entry.size)
            if record.expires_ms:
                self.has_expiring = True
            if not self._inserted:
                self._since_ms = now_ms
            self._inserted += 1
            self.queues.runner.pace.published += 1
            self.changed()
        return machine.reply

    def _load_heads(self, size: int, now_ms: int) -> None:
        """The oldest messages go when there is no room; the machine has to know them."""
        before = 0
        for _ in range(HEADS_MAX):
            seq = missing_head(self.machine, size)
            if not seq or seq == before:
                return
            reading.load_entries(self, 0, seq, now_ms)
            before = seq

    def apply(self, command: Command, now_ms: int) -> int:
        reply = super().apply(command, now_ms)
        if self.machine.freed:
            self._forget_freed()
        return reply

    def tick(self, now_ms: int) -> None:
        super().tick(now_ms)
        if self.machine.freed:
            self._forget_freed()
            self.changed()

    def _forget_freed(self) -> None:
        records = self.tails[0].records
        for key, seq in self.machine.freed:
            self._latest.forget(key)
            self._gone_rows.append(seq)
            records.pop(seq, None)
        self.machine.freed.clear()

    def oldest_age_ms(self, now_ms: int) -> int:
        """Of its oldest message, which may be in the store only."""
        lane = self.machine.groups[GROUP].lanes[0]
        seq = lane.settled.upto + 1
        if seq > self.machine.partitions[0].last:
            return 0
        entry = known(self.machine, lane, seq)
        if entry is not None:
            return max(0, now_ms - entry.ts_ms)
        record = self.record(0, seq)
        return max(0, now_ms - record.ts_ms) if record is not None else 0

    def forget_key(self, key: int, seq: int) -> None:
        """Its message has left, and nobody told."""
        if self._latest.find(key)[0] == seq:
            self._latest.forget(key)
            self.changed()

    def missing(self, effect: Deliver, now_ms: int) -> None:
        """It was overwritten before it could leave: its place in the consumer's hands is free."""
        seq = effect.entry.seq
        if seq not in self.machine.groups[GROUP].lanes[0].settled:
            super().missing(effect, now_ms)
            return
        self.apply(c.Settle(GROUP, effect.consumer.name, 0, seq, c.ACK), now_ms)

    # Its part in group commits

    def write(self, batch: Batch) -> None:
        if self.is_deleted:
            return
        if self.machine.freed:  # by the dispatch
            self._forget_freed()
        if self.machine.policy.is_last_value:
            self._write_values(batch)
        super().write(batch)
        self._sealed = (self._inserted, self._since_ms)
        self._inserted = 0
        partition = self.machine.partitions[0]
        state = t.partition_state(partition.gone.upto, partition.last, max(0, self.machine.bytes))
        batch.put(api.PARTITIONS, t.partition_key(self.id, 0), state)

    def _write_values(self, batch: Batch) -> None:
        for seq in self._gone_rows:
            if seq <= self._written:
                batch.delete_chunk(self.id, 0, seq)
        self._gone_rows = []
        self._latest.write(batch, max(1, len(self.known.service.known)))
        tail = self.tails[0]
        if not tail.pending:
            return
        settled = self.machine.groups[GROUP].lanes[0].settled
        self._written = tail.pending[-1].seq
        tail.storing = [record for record in tail.pending if record.seq not in settled]
        tail.pending = []
        for record in tail.storing:
            t.put_chunk(batch, self.id, 0, record.seq, [record])

    def stored(self, now_ms: int) -> None:
        super().stored(now_ms)
        count, since_ms = self._sealed
        if count:
            self._sealed = (0, 0)
            self.known.stored(count, now_ms - since_ms)

    def restore(self, machine: QueueState) -> None:
        super().restore(machine)
        _cut_waits_short(machine)
        self._latest.clear()
        self._gone_rows = []
        self._written = machine.partitions[0].last
        self._inserted = 0
        self._sealed = (0, 0)


def _cut_waits_short(machine: QueueState) -> None:
    """What was refused before a restart waits no longer than usual, even if the clock was set back
    meanwhile."""
    lane = machine.groups[GROUP].lanes[0]
    due_ms = machine.now_ms + machine.policy.redispatch_ms
    if lane.waiting:
        lane.waiting = [(min(due, due_ms), seq, entry) for due, seq, entry in lane.waiting]
        heapq.heapify(lane.waiting)
