"""A quorum queue in the broker: its machine, its messages, its consumers, its part in commits.

A command is applied when it comes, and its rows are part of the group being collected. What
consumers see of it happens when that group is durable; dead letters are copied at once, because
their copies are rows of the same group. After a failed commit the queue is what the store has, and
its consumers check out anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from queuelake import names
from queuelake.broker.participant import Participant
from queuelake.broker.queues.rates import Rates
from queuelake.broker.queues.rows import read_ids, write_ids
from queuelake.broker.queues.tail import Tail
from queuelake.broker.quorum import rows, tracing
from queuelake.broker.quorum.burying import bury, bury_surely
from queuelake.broker.quorum.chunks import Chunks
from queuelake.broker.quorum.delivering import deliver, time_out
from queuelake.broker.quorum.policy import policy_of
from queuelake.config_types import parse_duration
from queuelake.engine.counters import Counters
from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.publishers import MessageIds
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import effects as e
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.machine import QuorumQueue
from queuelake.engine.quorum.message import Message
from queuelake.engine.quorum.policy import UNSET
from queuelake.engine.quorum.state import EXPIRED, MAXLEN
from queuelake.engine.quorum.upkeep import set_timers
from queuelake.engine.settled import Settled
from queuelake.queue_settings import QueueSettings
from queuelake.storage import api, queue_records
from queuelake.storage import queue_tables as t
from queuelake.storage import quorum_tables as q
from queuelake.storage.api import Batch, ReadTransaction
from queuelake.storage.chunk import Record

if TYPE_CHECKING:
    from queuelake.broker.queues.registry import Queues
    from queuelake.broker.quorum.subscriber import QuorumSubscriber
    from queuelake.broker.session import Session

LAST_COMMAND: Final = (1 << rows.COMMAND_BITS) - 1
WORKER: Final = "broker/letters"


@final
class QuorumHost(Participant):
    """One quorum queue which is awake."""

    __slots__ = (
        "_dedupe_number",
        "_effects",
        "_head",
        "_meta",
        "_sealed",
        "active_ms",
        "by_session",
        "chunks",
        "counters",
        "created_ms",
        "dead_chunks",
        "dead_notes",
        "dedupe_window_ms",
        "delivered_ids",
        "explicit",
        "gone",
        "id",
        "id_prefix",
        "ids",
        "is_deleted",
        "last",
        "letters_due_ms",
        "machine",
        "moves",
        "name",
        "next_forget_ms",
        "noted",
        "notes",
        "pids",
        "queues",
        "rates",
        "record_dirty",
        "settings",
        "subscribers",
        "tail",
        "topic",
        "workers",
    )

    def __init__(
        self,
        queues: Queues,
        queue_id: int,
        name: str,
        settings: QueueSettings,
        explicit: dict[str, object],
        created_ms: int,
    ) -> None:
        self.waiting = False
        self.group = 0
        self.queues: Queues = queues
        self.id: int = queue_id
        self.name: str = name
        self.topic: bytes = names.address(name).encode()
        self.id_prefix: bytes = self.topic + b":%d:" % rows.PARTITION
        self._use(settings)
        self.explicit: dict[str, object] = explicit  # what was set for this queue at run time
        self.created_ms: int = created_ms
        self.active_ms: int = created_ms
        self.is_deleted: bool = False
        self.record_dirty: bool = True
        self.counters: Counters = Counters()
        self.rates: Rates = Rates()
        self.subscribers: dict[int, QuorumSubscriber] = {}  # by the machine's key
        self.by_session: dict[int, list[QuorumSubscriber]] = {}
        self.pids: dict[int, str] = {}  # names of sessions by their ids
        self.delivered_ids: dict[bytes, list[int]] = {}  # producers' ids -> sequences
        self.ids: MessageIds = MessageIds()
        self.tail: Tail = Tail(queues.cache)
        # As `rows` writes them
        self.chunks: Chunks = Chunks()
        self.gone: Settled = Settled()
        self.last: int = 0  # sequence
        self.notes: set[int] = set()  # sequences which have one in the store
        self.moves: int = 0
        self.noted: dict[int, Message] = {}  # by index, since the last commit
        self.dead_chunks: list[int] = []
        self.dead_notes: list[int] = []
        self._head: bytes = b""
        self._dedupe_number: int = 0
        self.next_forget_ms: int = 0
        # Effects of the group being collected, and of the one being committed
        self._effects: list[Effect] = []
        self._sealed: list[Effect] = []
        self.workers: int = 0  # how often somebody took over the dead letters
        self.letters_due_ms: int = 0  # when those which were refused are tried again
        self._meta: Meta = Meta(0, 0)
        self.machine: QuorumQueue = QuorumQueue(policy_of(settings, name))

    # Commands

    def apply(self, command: Command, now_ms: int) -> r.Reply:
        """Apply, and remember what is to be written and done."""
        meta = self._meta
        if meta.index & LAST_COMMAND == LAST_COMMAND:
            self.last += 1
            self.gone.add(self.last)  # a sequence no message gets
            meta.index = self.last << rows.COMMAND_BITS
        else:
            meta.index += 1
        return self._apply(command, now_ms)

    def enqueue(self, record: Record, pid: str, ttl_ms: int, now_ms: int, due_ms: int = 0) -> None:
        """Make a message part of the queue; the caller has asked whether there is room."""
        machine = self.machine
        self.last += 1
        record.seq = self.last
        self._meta.index = self.last << rows.COMMAND_BITS
        self.tail.append(record)
        enqueuer = machine.enqueuers.get(pid) if pid else None
        number = 0 if not pid else 1 if enqueuer is None else enqueuer.numbers.next
        self.counters.enqueued += 1
        self.queues.runner.pace.published += 1
        size = record.size()
        self._apply(c.Enqueue(pid, number, size, record.priority, ttl_ms, due_ms), now_ms)

    def pid_of(self, session: Session) -> str:
        """The name of a session."""
        return self.pids.get(session.id) or self.queues.quorum.introduce(self, session)

    def accept(self, record: Record, now_ms: int) -> bool:
        """A dead letter of another queue, or one of its own which comes back; False: no room."""
        machine = self.machine
        if machine.rejecting:
            self.counters.refused += 1
            return False
        now_ms = max(now_ms, machine.now_ms)
        if machine.policy.ttl_ms >= 0:
            record.expires_ms = now_ms + machine.policy.ttl_ms
        self.enqueue(record, "", UNSET, now_ms)
        return True

    def _apply(self, command: Command, now_ms: int) -> r.Reply:
        machine = self.machine
        self._meta.now_ms = now_ms
        reply, effects = machine.apply(self._meta, command)
        for message in machine.noted:
            self.noted.pop(message.index, None)
            self.noted[message.index] = message
        if machine.buried:
            self._count_buried()
        for effect in effects:
            self._take(effect, now_ms)
        self.queues.runner.take_part(self)
        return reply

    def _count_buried(self) -> None:
        counters, buried = self.counters, self.machine.buried
        counters.expired += buried.get(EXPIRED, 0)
        counters.dropped += buried.get(MAXLEN, 0)
        if self.dead_letter_queue():
            for reason, count in buried.items():
                counters.dead[reason] = counters.dead.get(reason, 0) + count
        buried.clear()

    def _take(self, effect: Effect, now_ms: int) -> None:
        if isinstance(effect, (e.Deliver, e.ConsumerTimedOut)):
            self._effects.append(effect)
            if isinstance(effect, e.ConsumerTimedOut) and self.queues.tracer is not None:
                tracing.timed_out(self.queues.tracer, self, effect.key, effect.ids, now_ms)
        elif isinstance(effect, e.Release):
            for index in effect.indexes:
                self._release(rows.seq_of(index))
        elif isinstance(effect, e.DeadLetter):
            bury(self, effect.delivery, effect.reason, now_ms)
        elif isinstance(effect, e.DeadLetterDeliver):
            bury_surely(self, effect, now_ms)
        elif isinstance(effect, e.QueueDeleted):
            self.queues.quorum.expired(self)
        # The rest is for machines which are apart from their clients: sessions end by a call, and
        # timers are looked at in each slot.

    def _release(self, seq: int) -> None:
        self.gone.add(seq)
        first = self.chunks.release(seq)
        if first:
            self.dead_chunks.append(first)
        if seq in self.notes:
            self.notes.discard(seq)
            self.dead_notes.append(seq)

    # Messages

    def record(self, seq: int) -> Record | None:
        """A message, from memory or the store."""
        found = self.tail.records.get(seq)
        if found is not None:
            return found
        with self.queues.store.view() as view:
            records = t.read_chunk_at(view, self.id, rows.PARTITION, seq)
        for record in records:
            if record.seq == seq:
                self.tail.cached(records)  # its neighbours are likely to be wanted next
                return record
        return None

    def dead_letter_queue(self) -> str:
        """Where its dead letters go; empty: nowhere."""
        return self.machine.policy.dead_letter_target

    def message_id(self, record: Record) -> bytes:
        return record.message_id or self.id_prefix + b"%d" % record.seq

    # Time

    def tick(self, now_ms: int) -> None:
        timers = self.machine.timers
        for name in range(c.TIMERS):
            if not self.is_deleted and 0 < timers[name] <= now_ms:
                self.apply(c.Timeout(name), now_ms)
                timers = self.machine.timers
        if 0 < self.letters_due_ms <= now_ms and not self.is_deleted:
            self.take_letters(now_ms)

    def take_letters(self, now_ms: int) -> None:
        """A new worker for the backlog of dead letters begins with what the last one held."""
        self.letters_due_ms = 0
        if self.machine.policy.buries_surely():
            self.workers += 1
            self.apply(c.DeadLetterCheckout(f"{WORKER}{self.workers}"), now_ms)

    def wake_ms(self) -> int:
        """When time will change something in it; 0: never."""
        due = [due_ms for due_ms in (*self.machine.timers, self.letters_due_ms) if due_ms]
        return min(due) if due else 0

    # Its part in group commits

    def act(self, now_ms: int) -> None:
        """Whatever a command makes possible happens within it."""

    def prepare(self) -> None:
        pass

    def write(self, batch: Batch) -> None:
        if self.is_deleted:
            return
        if self.queues.tracer is not None:
            tracing.committing(self.queues.tracer, self)
        rows.write_messages(batch, self)
        rows.write_gone(batch, self)
        rows.write_notes(batch, self)
        head = rows.head_of(self)
        if head != self._head:
            self._head = head
            batch.put(api.QUORUM, q.head_key(self.id), head)
        if self.ids.added:
            self._dedupe_number += 1
            until_ms = self.machine.now_ms + self.dedupe_window_ms
            write_ids(batch, self.id, until_ms, self._dedupe_number, self.ids)
        if self.record_dirty:
            self.record_dirty = False
            key = t.queue_key(self.id)
            batch.put(api.QUEUES, key, queue_records.encode(self.queue_record()))
        self.tail.drop_upto(self.gone.upto)
        self._sealed += self._effects
        self._effects = []

    def stored(self, now_ms: int) -> None:
        self.tail.stored()
        if self.queues.tracer is not None:
            tracing.stored(self.queues.tracer, self, now_ms)
        sealed, self._sealed = self._sealed, []
        for effect in sealed:
            if self.is_deleted:
                return
            if isinstance(effect, e.Deliver):
                deliver(self, effect, now_ms)
            elif isinstance(effect, e.ConsumerTimedOut):
                time_out(self, effect, now_ms)

    def rolled_back(self) -> None:
        if self.is_deleted:
            return
        queues, before = self.queues, self.settings
        if queues.tracer is not None:
            queues.tracer.rolled_back(self.name)
        self.load()
        if self.settings != before:
            queues.bind(self.name, self.settings)
        now_ms = queues.clock.now_ms()
        if self.record_dirty:
            queues.runner.take_part(self)
        self.take_letters(now_ms)
        former = list(self.subscribers.values())
        self.subscribers.clear()
        for subscriber in former:
            subscriber.begin_again()
            if subscriber.joined:
                subscriber.check_out(now_ms)

    # Settings, and the store

    def queue_record(self) -> queue_records.QueueRecord:
        return queue_records.QueueRecord(
            self.name, queue_records.QUORUM, self.created_ms, msgspec.json.encode(self.explicit), 1
        )

    def _use(self, settings: QueueSettings) -> None:
        self.settings: QueueSettings = settings
        self.dedupe_window_ms: int = parse_duration(settings.dedupe_window)

    def configure(self, settings: QueueSettings, explicit: dict[str, object], now_ms: int) -> None:
        self._use(settings)
        self.explicit = explicit
        self.record_dirty = True
        self.apply(c.UpdateConfig(policy_of(settings, self.name)), now_ms)
        if self.machine.policy.buries_surely() and not self.machine.worker:
            self.take_letters(now_ms)

    def load(self) -> None:
        """Become what the store has, in one step."""
        with self.queues.store.view() as view:
            reading = self.begin_load(view)
            while reading.read_on(view, rows.CHUNKS_PER_SLICE):
                pass
            self.loaded(view, reading)

    def begin_load(self, view: ReadTransaction) -> rows.Reading:
        queues = self.queues
        queues.cache.forget(self.tail)
        self.tail = Tail(queues.cache)
        self._effects, self._sealed = [], []
        self.noted, self.dead_chunks, self.dead_notes = {}, [], []
        self._head = b""
        self.ids = MessageIds()
        value = view.get(api.QUEUES, t.queue_key(self.id))
        self.record_dirty = value is None
        if value is not None:
            self.explicit = queue_records.settings_tree(queue_records.decode_queue(value))
            self._use(queues.stored_settings(self.name, self.explicit))
        return rows.Reading(view, self, policy_of(self.settings, self.name))

    def loaded(self, view: ReadTransaction, reading: rows.Reading) -> None:
        now_ms = self.queues.clock.now_ms()
        self.machine = reading.machine()
        read_ids(view, self.id, self.ids, now_ms)
        self.machine.now_ms = now_ms
        set_timers(self.machine)
        self._meta.index = self.machine.index
