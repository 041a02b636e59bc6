"""All device mailboxes: one participant in group commits, with memory only for those in use.

A write is collected, numbered when its group is sealed, and delivered when that is durable. An
owner which is online has a `Reader` with a machine; the others are rows in the store. A position is
stored before the next batch is read. After a failed commit positions are written again, since the
owners did acknowledge; what came with more than that (a rewind, dead letters) never happened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from queuelake.broker.ecq.counters import Counters
from queuelake.broker.ecq.events import MailboxEvents
from queuelake.broker.ecq.letters import bury
from queuelake.broker.ecq.reader import Reader
from queuelake.broker.ecq.writing import Write, Writes
from queuelake.broker.participant import Participant
from queuelake.broker.pipeline.write_log import WriteLog
from queuelake.broker.refusing import refuse_held
from queuelake.engine import events as e
from queuelake.engine.kinds import ecq as m
from queuelake.engine.machine import Command, Meta
from queuelake.engine.policy.settings import Policy
from queuelake.errors import StorageError
from queuelake.storage import api
from queuelake.storage import ecq_tables as t
from queuelake.storage.api import Batch, Store

if TYPE_CHECKING:
    from queuelake.broker.clock import Clock, TimerWheel
    from queuelake.broker.queues.registry import Queues
    from queuelake.broker.runner import Runner
    from queuelake.broker.session import Session
    from queuelake.ecq_settings import EcqConfig

log = logging.getLogger("queuelake.ecq")

FETCHES_PER_TURN_MAX: Final = 256
REFUSALS: Final = {"advance": m.ADVANCE, "retry": m.RETRY_LATER, "dlq": m.DEAD_LETTER}


@final
class Position:
    """How far an owner has read, and when it said so."""

    __slots__ = ("acked", "ts_ms")

    def __init__(self, acked: int, ts_ms: int) -> None:
        self.acked: int = acked
        self.ts_ms: int = ts_ms


@final
class Mailboxes(Participant):
    """`readers` by their owner's name."""

    __slots__ = (
        "_bytes_max",
        "_clock",
        "_data_retention_ms",
        "_fetching",
        "_keys_max",
        "_last_meta",
        "_policy",
        "_reverting",
        "_saves",
        "_sealed_reverting",
        "_sealed_saves",
        "_timers",
        "_write_timeout_ms",
        "batch_max",
        "config",
        "counters",
        "events",
        "queues",
        "readers",
        "refusals",
        "runner",
        "store",
        "watch",
        "writes",
    )

    def __init__(self, queues: Queues, timers: TimerWheel, config: EcqConfig) -> None:
        self.waiting = False
        self.group = 0
        self.queues: Queues = queues
        self.store: Store = queues.store
        self.runner: Runner = queues.runner
        self._clock: Clock = queues.clock
        self._timers: TimerWheel = timers
        self._policy: Policy = Policy()
        self._last_meta: Meta = Meta(0, 0)
        self.counters: Counters = Counters()
        log = WriteLog(queues.store, queues.runner, api.ECQ_LOG)
        self.writes: Writes = Writes(queues.store, log)
        self.events: MailboxEvents = MailboxEvents(queues.ledger)
        self.readers: dict[bytes, Reader] = {}
        self.watch: Callable[[Reader], None] | None = None  # told of each new one
        self._fetching: list[Reader] = []  # those which look into the store in the next turn
        self._saves: dict[bytes, Position] = {}
        self._sealed_saves: dict[bytes, Position] = {}
        # Owners whose change is more than a position: it cannot just be written again.
        self._reverting: set[bytes] = set()
        self._sealed_reverting: set[bytes] = set()
        self.use(config)

    def load(self) -> None:
        with self.store.view() as view:
            value = view.get(api.META, t.HIGH_WATER)
        if value is not None:
            self.writes.owners.first_seq = int(value)
        self.writes.log.load()

    def use(self, config: EcqConfig) -> None:
        self.config: EcqConfig = config
        self._write_timeout_ms: int = config.write_timeout_ms
        self._data_retention_ms: int = config.data_retention_ms
        self.batch_max: int = config.reader_batch_size
        self.refusals: int = REFUSALS[config.reject_policy]
        for reader in self.readers.values():
            command = m.Configure(self._batch_of(reader), self.refusals)
            reader.machine.apply(self._meta(self._clock.now_ms()), command)

    def oldest_ms(self, now_ms: int) -> int:
        """What was written before is too old."""
        return now_ms - self._data_retention_ms

    def collect(self, write: Write) -> None:
        """Part of the group being collected from now on."""
        self.writes.pending.append(write)
        self.runner.take_part(self)

    # Readers

    def attach(self, session: Session) -> Reader:
        """The owner has subscribed."""
        now_ms = self._clock.now_ms()
        name = session.name
        former = self.readers.get(name)
        if former is not None:
            self._detach(former)
        reader = self.readers[name] = Reader(self, session, self._policy, now_ms)
        if self.watch is not None:
            self.watch(reader)
        self._apply(reader, self._attachment(reader), now_ms)
        return reader

    def _attachment(self, reader: Reader) -> m.Attach:
        acked = self.position(reader.name).acked
        return m.Attach(acked, self._batch_of(reader), self.refusals)

    def _batch_of(self, reader: Reader) -> int:
        # One below the client's receive maximum, so that other messages get through too.
        return max(1, min(self.batch_max, reader.session.window - 1))

    def detach(self, session: Session) -> bool:
        reader = self.readers.get(session.name)
        if reader is None or reader.session is not session:
            return False
        del self.readers[session.name]
        self._detach(reader)
        return True

    def _detach(self, reader: Reader) -> None:
        reader.withdraw()
        reader.distrust_tail()  # `watch` may keep it for a while
        reader.machine.apply(self._meta(0), m.Detach())

    def position(self, name: bytes) -> Position:
        """How far an owner has read, as it will be when all commits are done."""
        found = self._saves.get(name) or self._sealed_saves.get(name)
        if found is not None:
            return found
        with self.store.view() as view:
            value = view.get(api.ECQ_STATE, t.digest(name))
        if value is None:
            return Position(0, 0)
        acked, ts_ms, _ = t.read_numbers(value)
        return Position(acked, ts_ms)

    def is_changing(self, name: bytes) -> bool:
        """Whether something of an owner is on its way into the store."""
        if name in self._saves or name in self._sealed_saves:
            return True
        return self.writes.is_changing(name)

    def settled(self, reader: Reader, command: m.Settle) -> None:
        """The owner has answered."""
        counters = self.counters
        if not reader.machine.is_out(command.tag):
            return
        now_ms = self._clock.now_ms()
        if command.outcome == m.DONE:
            counters.acked += 1
        else:
            counters.rejected += 1
            held = reader.machine.held[command.tag]
            reason = f"0x{command.reason:02X}"
            self.events.note(e.REJECTED, now_ms, reader.name, held.seq, held.attempts, reason)
            self.runner.take_part(self)
        reader.active_ms = now_ms
        self._apply(reader, command, now_ms)

    def look(self, reader: Reader, now_ms: int) -> None:
        """Nobody has looked for a while."""
        reader.active_ms = now_ms
        reader.distrust_tail()
        self.counters.polls += 1
        self._apply(reader, m.Look(), now_ms)

    def rewind_to(self, name: bytes, acked: int) -> None:
        """Read again from behind a sequence."""
        self.counters.rewinds += 1
        self._reverting.add(name)
        reader = self.readers.get(name)
        if reader is None:
            self._save(name, Position(acked, self.position(name).ts_ms))
            return
        ts_ms = self.position(name).ts_ms
        reader.withdraw()
        self._apply(reader, m.Rewind(acked), self._clock.now_ms())
        self._saves[name].ts_ms = ts_ms  # nobody has acknowledged anything

    # The machines

    def _meta(self, now_ms: int) -> Meta:
        meta = self._last_meta
        meta.index += 1
        meta.now_ms = now_ms
        return meta

    def _apply(self, reader: Reader, command: Command, now_ms: int) -> None:
        for effect in reader.machine.apply(self._meta(now_ms), command):
            if isinstance(effect, m.Deliver):
                self._deliver(reader, effect, now_ms)
            elif isinstance(effect, m.Save):
                reader.entries.clear()
                self._save(reader.name, Position(effect.acked, now_ms))
            elif isinstance(effect, m.Fetch):
                self._fetch(reader, effect, now_ms)
            elif isinstance(effect, m.Bury):
                self._bury(reader, effect, now_ms)
            elif isinstance(effect, m.Wake):
                self._timers.arm(effect.due_ms, lambda now: self._wake(reader, now))

    def _try(self, reader: Reader, command: Command, now_ms: int) -> None:
        """One of many readers."""
        try:
            self._apply(reader, command, now_ms)
        except Exception:  # what is wrong with one must not stop the others
            self._give_up(reader)

    def _give_up(self, reader: Reader) -> None:
        """Reading failed: as if nothing had been found above its position, until the next look."""
        log.exception("reading the mailbox of %r", reader.name)
        if self.readers.get(reader.name) is not reader:
            return
        reader.withdraw()
        reader.distrust_tail()
        machine = reader.machine
        attach = m.Attach(machine.acked, self._batch_of(reader), self.refusals)
        machine.apply(self._meta(0), attach)
        machine.apply(self._meta(0), m.Read([], 0))

    def _wake(self, reader: Reader, now_ms: int) -> None:
        if self.readers.get(reader.name) is reader:
            self._apply(reader, m.Tick(), now_ms)

    def _fetch(self, reader: Reader, fetch: m.Fetch, now_ms: int) -> None:
        found = reader.find_in_tail(fetch, self.oldest_ms(now_ms), now_ms)
        if found is not None:
            self._apply(reader, found, now_ms)
            return
        reader.wanted = fetch
        self._fetching.append(reader)
        self.runner.want_turn(self)

    def _deliver(self, reader: Reader, effect: m.Deliver, now_ms: int) -> None:
        record = reader.entries[effect.seq]
        if effect.again:
            with self.store.view() as view:
                stored = reader.read_again(view, effect.seq, self.oldest_ms(now_ms), now_ms)
            if stored is None:
                self._apply(reader, m.Settle(effect.tag, m.DONE), now_ms)
                return
            record = stored
        else:
            self.counters.latency.observe(now_ms - record.ts_ms)
        self.counters.delivered += 1
        reader.deliver(record, effect.tag)
        self.runner.touch(reader.session)

    def _save(self, name: bytes, position: Position) -> None:
        self._saves[name] = position
        self.runner.take_part(self)

    def _bury(self, reader: Reader, effect: m.Bury, now_ms: int) -> None:
        self._reverting.add(reader.name)
        if bury(self.queues, reader.name, reader.entries[effect.seq], effect, now_ms):
            self.counters.dead_lettered += 1
            name, attempts = reader.name, effect.attempts
            self.events.note(e.DEAD_LETTERED, now_ms, name, effect.seq, attempts, "rejected")
        self.runner.take_part(self)

    # Its part in group commits

    def act(self, now_ms: int) -> None:
        """Look into the store for those who want it, some in a turn."""
        fetching = self._fetching[:FETCHES_PER_TURN_MAX]
        self._fetching = self._fetching[FETCHES_PER_TURN_MAX:]
        oldest_ms = self.oldest_ms(now_ms)
        found: list[tuple[Reader, m.Read]] = []
        if self._fetching:
            self.runner.want_turn(self)
        try:
            with self.store.view() as view:
                for reader in fetching:
                    wanted = reader.wanted
                    if wanted is not None:  # it has not left meanwhile
                        reader.wanted = None
                        try:
                            found.append((reader, reader.find(view, wanted, oldest_ms, now_ms)))
                        except Exception:  # what is wrong with one must not stop the others
                            self._give_up(reader)
        except StorageError:
            for reader in fetching:
                self._give_up(reader)
            return
        for reader, read in found:
            self._try(reader, read, now_ms)

    def prepare(self) -> None:
        now_ms = self._clock.now_ms()
        for write in self.writes.take_overdue(now_ms - self._write_timeout_ms):
            limit_s = self._write_timeout_ms / 1000
            problem = f"the store did not take the write within {limit_s} s"
            self.counters.refuse("timeout")
            session = write.session
            if session is not None and session.connection is not None:
                refuse_held(session.connection, session, write.packet_id, problem)

    def write(self, batch: Batch) -> None:
        self.writes.seal(batch)
        self.writes.log.write(batch)
        self.events.write(batch)
        for name, position in self._saves.items():
            reader = self.readers.get(name)
            owner = reader.digest if reader is not None else t.digest(name)
            t.put_state(batch, owner, position.acked, position.ts_ms, name)
        self._sealed_saves = self._saves
        self._saves = {}
        self._sealed_reverting = self._reverting
        self._reverting = set()

    def stored(self, now_ms: int) -> None:
        writes = self.writes
        self.counters.writes += writes.accepted
        self.counters.compacted += writes.replaced()
        written = writes.stored()
        saves = self._sealed_saves
        self._sealed_saves = {}
        self._sealed_reverting = set()
        self.events.stored()
        readers = self.readers
        touched: dict[bytes, Reader] = {}
        for write in written:
            reader = readers.get(write.owner)
            if reader is not None:
                reader.written(write.record)
                touched[write.owner] = reader
        for name, position in saves.items():
            reader = readers.get(name)
            if reader is not None:
                self._try(reader, m.Saved(position.acked), now_ms)
        for reader in touched.values():
            self._try(reader, m.Look(), now_ms)

    def rolled_back(self) -> None:
        self.writes.rolled_back()
        reverting = self._sealed_reverting | self._reverting
        saves = {**self._sealed_saves, **self._saves}
        self._sealed_saves = {}
        self._sealed_reverting = set()
        self._reverting = set()
        self._saves = {name: one for name, one in saves.items() if name not in reverting}
        if self.events.rolled_back(reverting) or self._saves:
            self.runner.take_part(self)
        now_ms = self._clock.now_ms()
        for name in reverting:
            reader = self.readers.get(name)
            if reader is not None:
                reader.withdraw()
                self._apply(reader, self._attachment(reader), now_ms)
