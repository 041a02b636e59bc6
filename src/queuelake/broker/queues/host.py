"""A queue in the broker: its machine, its messages, its consumers, and its part in group commits.

Commands are applied as they come; once in a turn of the loop the machine dispatches. A delivery
leaves when the group which has its hand-out is durable, or at once when the store knows of it
already. Everything is written by `write` and read back by `load`; after a failed commit the queue
is loaded again, and its consumers join anew.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from queuelake.broker.deliveries import Delivery
from queuelake.broker.participant import Participant
from queuelake.broker.pipeline.events import EventLog, note_deliveries, write_events
from queuelake.broker.pipeline.stats import Account, read_queue
from queuelake.broker.queues import reading, rows
from queuelake.broker.queues.deadletters import bury
from queuelake.broker.queues.delivered_ids import DeliveredIds
from queuelake.broker.queues.membership import withdraw
from queuelake.broker.queues.rates import Rates
from queuelake.broker.queues.reloading import reload
from queuelake.broker.queues.subscriber import Subscriber
from queuelake.broker.queues.tail import Tail
from queuelake.engine import commands as c
from queuelake.engine import events as e
from queuelake.engine.effects import DeadLetter, Deliver, GroupGone, Load, Rank
from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.message import Entry
from queuelake.engine.outbox import Outbox
from queuelake.engine.policy.settings import Policy
from queuelake.engine.state import QueueState
from queuelake.storage import queue_records
from queuelake.storage.chunk import Record

if TYPE_CHECKING:
    from queuelake.broker.pipeline.holding import Holding
    from queuelake.broker.queues.registry import Queues
    from queuelake.broker.tracing import Tracer
    from queuelake.engine.partition import Partition
    from queuelake.storage.api import Batch

log = logging.getLogger("queuelake.queues")

LOADS_PER_TURN_MAX: Final = 64
DISPATCH: Final = c.Dispatch()
DISPATCH_IN_BULK: Final = c.Dispatch(in_bulk=True)


class HostedQueue(Participant):
    """One queue which is awake, of whatever kind."""

    __slots__ = (
        "_dedupe_number",
        "_gone_groups",
        "_last_meta",
        "_outbox",
        "_released",
        "account",
        "active_ms",
        "created_ms",
        "delivered_ids",
        "ephemeral",
        "event_log",
        "extended",
        "hold",
        "id",
        "id_prefixes",
        "is_deleted",
        "machine",
        "name",
        "next_forget_ms",
        "queues",
        "rates",
        "record_dirty",
        "recorded",
        "subscribers",
        "tails",
        "tidies",
        "topic",
        "trimmed",
    )

    def __init__(
        self,
        queues: Queues,
        queue_id: int,
        name: str,
        topic: bytes,
        policy: Policy,
        created_ms: int,
        ephemeral: bool,
    ) -> None:
        self.waiting = False
        self.group = 0
        self.queues: Queues = queues
        self.id: int = queue_id
        self.name: str = name
        self.topic: bytes = topic
        self.created_ms: int = created_ms
        self.ephemeral: bool = ephemeral  # lives in memory only
        self.is_deleted: bool = False
        self.record_dirty: bool = True
        self.active_ms: int = created_ms
        self.rates: Rates = Rates()
        self.subscribers: dict[int, Subscriber] = {}
        self.delivered_ids: DeliveredIds = DeliveredIds()
        self.tails: list[Tail] = []
        self.trimmed: list[int] = []  # of each partition: up to where chunks were deleted
        self.hold: Holding | None = None  # what it keeps for the archive
        self.recorded: list[int] = []  # up to where the store says that messages are gone
        self.id_prefixes: list[bytes] = []
        self.account: Account = Account(queue_id)
        self.event_log: EventLog = EventLog(queues.ledger, queue_id)
        self._outbox: Outbox = Outbox()
        self._gone_groups: list[int] = []  # ids of groups whose rows have to go
        self.tidies: bool = False  # the next write deletes everything which can be
        self._dedupe_number: int = 0
        self.extended: int = 0  # the last commit group in which it got staged chunks
        self._released: dict[tuple[int, int], int] = {}  # delayed, due, and not yet deleted there
        self.next_forget_ms: int = 0
        self._last_meta: Meta = Meta(0, 0)
        self.machine: QueueState = self.new_machine(policy)
        self._grow()

    # What kind of queue it is

    @abstractmethod
    def new_machine(self, policy: Policy) -> QueueState: ...

    @abstractmethod
    def queue_record(self) -> queue_records.QueueRecord:
        """What the store has to know of it."""

    @abstractmethod
    def read_settings(self, record: queue_records.QueueRecord) -> Policy:
        """Take over the settings which the store has."""

    @abstractmethod
    def dead_letter_queue(self) -> str:
        """Where its dead letters go; empty: nowhere."""

    def alert_webhook(self) -> str:
        """Who is told of a dead letter; empty: nobody."""
        return ""

    def _grow(self) -> None:
        for partition in self.machine.partitions[len(self.tails) :]:
            self.tails.append(Tail(self.queues.cache))
            self.trimmed.append(reading.deleted_upto(self, partition))
            self.recorded.append(partition.gone.upto)
            self.id_prefixes.append(f"{self.topic.decode()}:{partition.number}:".encode())

    def entry_of(self, record: Record, number: int) -> Entry:
        """What the machine knows of a stored message."""
        return rows.entry_of(record, number, self.topic)

    def compaction_key(self) -> bytes:
        """The user property by which messages of a stream replace each other."""
        return b""

    # Commands

    def meta(self, now_ms: int) -> Meta:
        """Where and when the next command takes effect; no machine keeps it."""
        meta = self._last_meta
        meta.index += 1
        meta.now_ms = now_ms
        return meta

    def apply(self, command: Command, now_ms: int) -> int:
        """Apply, remember that there is something to write, act on the effects; the reply."""
        machine = self.machine
        effects = machine.apply(self.meta(now_ms), command)
        reply = machine.reply
        if effects:
            self._perform(effects, now_ms)
        self.changed()
        return reply

    def changed(self) -> None:
        queues = self.queues
        if not self.ephemeral:
            queues.runner.take_part(self)
        queues.runner.want_turn(self)

    # Effects

    def _perform(self, effects: list[Effect], now_ms: int) -> None:
        tracer = self.queues.tracer
        for effect in effects:
            if isinstance(effect, Deliver):
                if self.ephemeral or self._outbox.put(effect):
                    self._deliver(effect, now_ms, tracer)
            elif isinstance(effect, Load):
                reading.load_entries(self, effect.partition, effect.first, now_ms)
            elif isinstance(effect, DeadLetter):
                self._bury(effect, now_ms)
            elif isinstance(effect, Rank):
                reading.rank_stored(self, effect.group, now_ms)
            elif isinstance(effect, GroupGone):
                self.group_gone(effect.group_id)

    def group_gone(self, group_id: int) -> None:
        self._gone_groups.append(group_id)

    def _deliver(self, effect: Deliver, now_ms: int, tracer: Tracer | None) -> None:
        subscriber = self.subscribers.get(effect.consumer.tag)
        if subscriber is None or not subscriber.joined:
            return  # it left meanwhile, and the machine knows
        entry = effect.entry
        record = self.record(entry.partition, entry.seq)
        if record is None:
            if effect.group.is_out(entry.partition, entry.seq, effect.attempt):
                self.missing(effect, now_ms)
            return  # settled before it left, as an earlier delivery to the same consumer
        if record.message_id:
            self.delivered_ids.note(effect.group, record.message_id, entry.partition, entry.seq)
        if tracer is not None:
            record = tracer.delivering(self, effect, record)
        if effect.attempt == 1:
            self.machine.counters.latency.observe(now_ms - entry.ts_ms)
        subscriber.deliver(
            Delivery(
                subscriber, record, entry.partition, effect.attempt, subscriber.delivery_qos(record)
            )
        )
        self.queues.runner.touch(subscriber.session)

    def missing(self, effect: Deliver, now_ms: int) -> None:
        """A message which was handed out is nowhere to be found."""
        entry = effect.entry
        log.error("%s: message %d:%d is missing", self.name, entry.partition, entry.seq)

    def record(self, number: int, seq: int) -> Record | None:
        """A message, from memory or the store."""
        return self.tails[number].records.get(seq) or reading.find_record(self, number, seq)

    # Dead letters

    def _bury(self, effect: DeadLetter, now_ms: int) -> None:
        """Copy the message to its dead-letter queue, and settle it here in the same commit."""
        entry = effect.entry
        record = self.record(entry.partition, entry.seq)
        if record is not None:
            bury(self, effect, record, now_ms)
        if effect.group in self.machine.groups:
            settle = c.Settle(effect.group, "", entry.partition, entry.seq, c.BURIED)
            self.apply(settle, now_ms)

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        machine = self.machine
        counters = machine.counters
        before, timed_out = counters.expired + counters.dropped, counters.timed_out
        was_waiting = machine.is_waiting()
        effects = machine.apply(self.meta(now_ms), c.Tick())
        if effects:
            self._perform(effects, now_ms)
        if counters.timed_out != timed_out:
            withdraw(self)
        if was_waiting or effects or counters.expired + counters.dropped != before:
            self.changed()

    def tidy(self) -> None:
        """Delete from the store what nobody needs, if that has not been done by the way."""
        for partition in self.machine.partitions:
            number = partition.number
            if self.hold is not None:
                rows.let_go(self, partition, self.tails[number])
            if self.deletable(partition) > self.trimmed[number]:
                self.tidies = True
        if self.tidies and not self.ephemeral:
            self.queues.runner.take_part(self)

    def deletable(self, partition: Partition) -> int:
        """Up to where its chunks may be deleted."""
        upto = partition.gone.upto
        return upto if self.hold is None else min(upto, self.hold.floor(partition.number))

    def is_released(self, due_ms: int, number: int) -> bool:
        """Whether a delayed message has joined its partition, in a commit not yet durable."""
        if (due_ms, number) in self._released:
            return True
        self.withhold(due_ms, number)
        return False

    def withhold(self, due_ms: int, number: int) -> None:
        self._released[(due_ms, number)] = self.queues.runner.number

    # Its part in group commits

    def act(self, now_ms: int) -> None:
        if not self.is_deleted:
            self._dispatch(DISPATCH if self.ephemeral else DISPATCH_IN_BULK, now_ms)

    def _dispatch(self, command: c.Dispatch, now_ms: int) -> None:
        machine = self.machine
        for _ in range(LOADS_PER_TURN_MAX):
            effects = machine.apply(self.meta(now_ms), command)
            if not effects:
                return
            if machine.policy.events == e.ALL:
                note_deliveries(machine, effects)
            loaded = False
            for effect in effects:
                loaded = loaded or isinstance(effect, Load)
            self._perform(effects, now_ms)
            if not self.ephemeral:
                self.queues.runner.take_part(self)
            if machine.more:
                break
            if not loaded:
                return
        self.queues.runner.want_turn(self)  # others have their turn first

    def prepare(self) -> None:
        if not self.is_deleted:
            self._dispatch(DISPATCH, self.machine.now_ms)

    def write(self, batch: Batch) -> None:
        if self.is_deleted:
            return
        machine = self.machine
        if self.queues.tracer is not None:
            self.queues.tracer.committing(self)
        if machine.policy.events:
            write_events(batch, self)
        for number, partition in enumerate(machine.partitions):
            rows.write_partition(batch, self, partition, self.tails[number])
        for group in machine.groups.values():
            rows.write_group(batch, self, group)
        for group_id in self._gone_groups:
            rows.forget_group(batch, self, group_id)
        self._gone_groups = []
        self.tidies = False
        if machine.ids.added:
            self._dedupe_number += 1
            until_ms = machine.now_ms + machine.policy.dedupe_window_ms
            rows.write_ids(batch, self.id, until_ms, self._dedupe_number, machine.ids)
        if self.record_dirty:
            self.record_dirty = False
            rows.write_record(batch, self)
        self._outbox.seal()

    def stored(self, now_ms: int) -> None:
        for tail in self.tails:
            tail.stored()
        if self.extended and self.extended <= self.queues.runner.durable:
            self.extended = 0
            for tail in self.tails:
                tail.pointers = []
        for group in self.machine.groups.values():
            for lane in group.lanes:
                if lane.claiming > lane.claimed:
                    lane.claimed = lane.claiming
        if self._released:
            durable = self.queues.runner.durable
            self._released = {key: n for key, n in self._released.items() if n > durable}
        tracer = self.queues.tracer
        if tracer is not None:
            tracer.stored(self, now_ms)
        for effect in self._outbox.stored():
            self._deliver(effect, now_ms, tracer)

    def rolled_back(self) -> None:
        if not self.is_deleted:
            reload(self)

    # Loading

    def restore(self, machine: QueueState) -> None:
        """Take over what was read from the store."""
        self.account.carry(read_queue(self))
        machine.counters.latency.max_ms = self.machine.counters.latency.max_ms
        self.machine = machine
        for tail in self.tails:
            self.queues.cache.forget(tail)
        self.tails.clear()
        self.trimmed.clear()
        self.recorded.clear()
        self.id_prefixes.clear()
        self._outbox = Outbox()
        self._released = {}
        self._gone_groups = []
        self._grow()

    def configure(self, policy: Policy, now_ms: int) -> None:
        self.apply(c.Configure(policy), now_ms)
        self._grow()
        self.record_dirty = True

    def purge(self, now_ms: int) -> int:
        """Drop every message nobody holds; how many there were."""
        self.apply(c.Purge(), now_ms)
        if not self.ephemeral:
            reading.delete_delayed_rows(self)
        return self.machine.purged
