"""One message queue machine from a seed: publishers, consumers, a store which forgets.

As in `queue_machine`, commands gather in a group, deliveries leave when the store knows of them,
and a crash throws away what was not stored. The values of a last-value queue are found by key in an
index which is kept by what the machine says has left, and read back after a crash.

Checked in every step: the invariants of the machine, its bytes, one value for each key, that
limits take the oldest first, that a message leaves only for a reason and the machine says so, that
what left in the store never comes back, that no value comes after its successor, and that whoever
refused a message is not asked again at once. At the end all is delivered.

Each message carries the number by which the test knows it in `rest`.
"""

from __future__ import annotations

import random

from queuelake.engine import commands as c
from queuelake.engine.effects import DeadLetter, Deliver, Load
from queuelake.engine.groups import GROUP
from queuelake.engine.kinds.message_queue import MessageQueue
from queuelake.engine.lane import Lane
from queuelake.engine.leaving import is_over
from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.message import Entry
from queuelake.engine.outbox import Outbox
from queuelake.engine.policy import settings as p
from queuelake.engine.publishing import missing_heads
from queuelake.engine.snapshot import restore, snapshot, state_hash
from queuelake.engine.state import NOT_FOUND, NOT_HELD, TOO_LARGE
from tests.simulation.message_queue_invariants import check_message_queue
from tests.simulation.message_queue_policies import throw_policy, throw_settings
from tests.simulation.queue_store import (
    Change,
    Store,
    changes_of,
    entry_of,
    rebuild,
    row_of,
    tallies_of,
)

CONSUMERS = "vwxyz"
LOAD_ENTRIES_MAX = 4
STEPS = 150
DRAIN_ROUNDS_MAX = 400


def run_seed(seed: int, steps: int = STEPS) -> None:
    """One life; raises when a promise was broken."""
    world = World(seed)
    for _ in range(steps):
        world.step()
    world.drain()


class Sealed:
    """A group on its way to the store."""

    def __init__(self, changes: list[Change], world: World) -> None:
        self.changes = changes
        self.done = set(world.done)
        self.tallies = tallies_of(world.queue)


class World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.policy = throw_policy(self.dice)
        self.now_ms = 1_000_000
        self.store = Store()
        self.queue = MessageQueue(self.policy)
        self.queue.partitions[0].window_max = 2
        self.messages: dict[int, Entry] = {}
        self.fresh: list[Entry] = []  # not in a group yet
        self.outbox = Outbox()
        self.sealed: Sealed | None = None
        self.inbox: dict[int, tuple[str, int]] = {}  # what consumers have: who, attempt
        self.attempts: dict[bytes, int] = {}  # highest which a consumer saw
        self.open: set[int] = set()
        self.values: dict[int, int] = {}
        self.newest: dict[int, int] = {}  # key -> number of the newest value somebody saw
        self.refusals: dict[int, tuple[str, int]] = {}  # who is not to be asked before
        self.done: set[bytes] = set()
        self.done_stored: set[bytes] = set()
        self.unburied: list[DeadLetter] = []
        self.published = 0
        self.loads = 0

    @property
    def lane(self) -> Lane:
        return self.queue.groups[GROUP].lanes[0]

    # What may happen

    def step(self) -> None:
        self.now_ms += self.dice.choice([0, 1, 10, 3000])
        weights = {
            self._publish: 35,
            self._settle: 30,
            self._dispatch: 25,
            self._commit: 20,
            self._join: 8,
            self._tick: 6,
            self._leave: 6,
            self._crash: 2,
            self._configure: 1,
            self._order: 1,
            self._snapshot: 1,
        }
        (action,) = self.dice.choices(list(weights), list(weights.values()))
        action()

    def _publish(self) -> None:
        dice, policy = self.dice, self.policy
        self.published += 1
        size = dice.choice([0, 10, 40, 90, 101])
        key = dice.randrange(6)
        expires_ms = self.now_ms + dice.choice([1, 5000]) if dice.random() < 0.05 else 0
        rest = str(self.published).encode()
        entry = Entry(0, size, key, self.now_ms, expires_ms, rest=rest)
        for _, seq in missing_heads(self.queue, size):
            self._load(seq)
        replaces = self.values.get(key, 0) if policy.is_last_value else 0
        former = self.messages[replaces].size if replaces else 0
        over_before = self.is_over_limits()
        self.is_whole = not missing_heads(self.queue, size)
        reply = self.apply(c.Enqueue(entry, replaces=replaces, replaced_size=former))
        assert reply == (TOO_LARGE if 0 < policy.bytes_max < size else 0)
        if reply:
            return
        if policy.is_last_value:
            self.values[key] = entry.seq
        self._check_values()
        assert over_before or not self.is_whole or not self.is_over_limits()

    def is_over_limits(self) -> bool:
        count, size = self.queue.depth(), self.queue.bytes
        return 0 < self.policy.count_max < count or 0 < self.policy.bytes_max < size

    def _check_values(self) -> None:
        if self.policy.is_last_value:
            live = {self.messages[seq].key: seq for seq in self.open}
            assert len(live) == len(self.open), "two values of one key"
            assert live == self.values, (live, self.values)

    def _join(self) -> None:
        self.apply(c.Join(GROUP, self.dice.choice(CONSUMERS), self.dice.choice([0, 0, 2])))

    def _leave(self) -> None:
        consumer = self.dice.choice(CONSUMERS)
        self.inbox = {seq: held for seq, held in self.inbox.items() if held[0] != consumer}
        self.apply(c.Leave(GROUP, consumer, gone=True))

    def _settle(self) -> None:
        if not self.inbox:
            return
        seq = self.dice.choice(list(self.inbox))
        consumer, attempt = self.inbox.pop(seq)
        outcome = self.dice.choice([c.ACK, c.ACK, c.NACK, c.REJECT])
        is_held = self._is_held(seq, consumer, attempt)
        others = set(self.queue.groups[GROUP].consumers) - {consumer}
        delay_ms = self.dice.choice([0, 0, 500])
        reply = self.apply(c.Settle(GROUP, consumer, 0, seq, outcome, delay_ms))
        assert reply == 0 if is_held else reply in (0, NOT_FOUND, NOT_HELD)
        if is_held and outcome == c.REJECT and others:
            self.refusals[seq] = (consumer, self.now_ms + self.policy.redispatch_ms)

    def _is_held(self, seq: int, consumer: str, attempt: int) -> bool:
        held = self.lane.held.get(seq)
        return held is not None and (held.consumer.name, held.attempt) == (consumer, attempt)

    def _dispatch(self) -> None:
        """Again after a load, as the host does: the window may have other entries soon."""
        loads = -1
        while loads < self.loads:
            loads = self.loads
            self.apply(c.Dispatch(in_bulk=self.dice.random() < 0.3))

    def _tick(self) -> None:
        unburied, self.unburied = self.unburied, []
        self._perform(unburied)
        self.now_ms += self.dice.choice([0, 10_000])
        self.apply(c.Tick())

    def _configure(self) -> None:
        policy = p.message_queue_policy()
        policy.is_last_value = self.policy.is_last_value
        throw_settings(policy, self.dice)
        self.policy = policy
        self.apply(c.Configure(policy))

    def _order(self) -> None:
        last = self.queue.partitions[0].last
        upto = self.dice.randint(0, last + 1)
        which = self.dice.randrange(4)
        if which == 0:
            self.apply(c.Purge())
        elif which == 1 and upto:
            self.apply(c.Remove(0, upto))
        elif which == 2:
            found = [seq for seq in self.open if self.dice.random() < 0.5]
            self.apply(c.Expire([entry_of(row_of(self.messages[seq])) for seq in found]))
        else:
            size = sum(self.messages[seq].size for seq in self.open if seq <= upto)
            self.apply(c.Truncate(0, upto, size))
        self._read_values()  # of what left by an order nothing is said

    def _snapshot(self) -> None:
        other = restore(snapshot(self.queue))
        assert isinstance(other, MessageQueue)
        assert state_hash(other) == state_hash(self.queue)
        check_message_queue(other)

    # The machine and its effects

    def apply(self, command: Command) -> int:
        effects = self.queue.apply(Meta(0, self.now_ms), command)
        reply = self.queue.reply
        if isinstance(command, c.Enqueue) and reply == 0:
            self.messages[command.entry.seq] = command.entry
            self.fresh.append(command.entry)
            self.open.add(command.entry.seq)
        self._observe(command)
        check_message_queue(self.queue)
        assert self.queue.bytes == sum(self.messages[seq].size for seq in self.open)
        self._perform(effects)
        return reply

    def _perform(self, effects: list[Effect] | list[DeadLetter]) -> None:
        for effect in effects:
            if isinstance(effect, Deliver):
                self._check_hand_out(effect)
                if self.outbox.put(effect):
                    self._deliver(effect)
            elif isinstance(effect, Load):
                self._load(effect.first)
            elif isinstance(effect, DeadLetter) and self.dice.random() < 0.2:
                self.unburied.append(effect)  # the dead letters have no room now
            else:
                assert isinstance(effect, DeadLetter)
                self.apply(c.Settle(GROUP, "", 0, effect.entry.seq, c.BURIED))

    def _load(self, first: int) -> None:
        self.loads += 1
        wanted = sorted(seq for seq in self.messages if seq >= first)[:LOAD_ENTRIES_MAX]
        entries = [entry_of(row_of(self.messages[seq])) for seq in wanted]
        self.apply(c.Loaded(0, first, entries))

    def _check_hand_out(self, effect: Deliver) -> None:
        entry = effect.entry
        assert effect.consumer.held <= effect.consumer.prefetch
        assert not is_over(self.policy, entry, self.now_ms)
        who, until_ms = self.refusals.pop(entry.seq, ("", 0))
        assert who != effect.consumer.name or self.now_ms >= until_ms

    def _deliver(self, effect: Deliver) -> None:
        """A delivery reaches its consumer."""
        entry = effect.entry
        if not self._is_held(entry.seq, effect.consumer.name, effect.attempt):
            return  # left or timed out before the group was stored
        if self.queue.groups[GROUP].consumers.get(effect.consumer.name) is not effect.consumer:
            return  # it came back as another
        number = int(entry.rest)
        if entry.seq in self.open:
            assert entry.rest not in self.done, f"{number} comes after it left"
        assert entry.rest not in self.done_stored, f"{number} comes after it left in the store"
        assert effect.attempt >= self.attempts.get(entry.rest, 0)
        if self.policy.is_last_value:
            assert number >= self.newest.get(entry.key, 0), f"{number} comes after its successor"
            self.newest[entry.key] = number
        self.attempts[entry.rest] = effect.attempt
        self.inbox[entry.seq] = (effect.consumer.name, effect.attempt)

    # What became of the messages

    def _observe(self, command: Command) -> None:
        """Note what left, and ask why."""
        now = set(self.lane.settled.unsettled(1, self.queue.partitions[0].last))
        left = self.open - now
        assert now <= self.open
        freed, self.queue.freed = self.queue.freed, []
        for seq in left:
            entry = self.messages[seq]
            assert self._has_reason(command, entry, now), (command, seq)
            self.done.add(entry.rest)
        if self.policy.is_last_value:
            for key, seq in freed:
                if self.values.get(key) == seq:
                    del self.values[key]
            told = {seq for _, seq in freed}
            assert len(told) == len(freed), "told twice"
            assert told <= left
            if not isinstance(command, c.Purge | c.Truncate):
                assert told == left, (command, told, left)
        else:
            assert not freed
        self.open = now

    def _has_reason(self, command: Command, entry: Entry, now: set[int]) -> bool:
        if isinstance(command, c.Enqueue):
            return entry.seq == command.replaces or entry.seq < min(now)
        if isinstance(command, c.Settle):
            final = command.outcome in (c.ACK, c.BURIED) or not self.policy.dlq_enabled
            return final and command.seq == entry.seq
        if isinstance(command, c.Remove):
            return command.seq == entry.seq
        if isinstance(command, c.Truncate):
            return entry.seq <= command.upto
        if isinstance(command, c.Purge):
            return True
        is_old = is_over(self.policy, entry, self.now_ms)
        if isinstance(command, c.Tick):
            is_oldest = entry.seq < min(now, default=entry.seq + 1)
            return is_old or is_oldest or not self.policy.dlq_enabled
        return isinstance(command, c.Dispatch | c.Expire) and is_old

    # The store

    def _commit(self) -> None:
        """One group is on its way at a time."""
        if self.sealed is None:
            self.sealed = Sealed(changes_of(self.queue, self.fresh, []), self)
            self.fresh = []
            self.outbox.seal()
            return
        sealed, self.sealed = self.sealed, None
        self.store.commit(sealed.changes)
        assert self.store.tables["tallies"] == sealed.tallies
        self.lane.claimed = max(self.lane.claimed, self.lane.claiming)
        for effect in self.outbox.stored():
            self._deliver(effect)
        self.done_stored = sealed.done
        self._trim()

    def _flush(self) -> None:
        if self.sealed is not None:
            self._commit()
        self._commit()
        self._commit()

    def _trim(self) -> None:
        """Messages which left go from the store, once it knows that they have."""
        rows = self.store.tables["messages"]
        for key in list(rows):
            if rows[key][6] in self.done_stored and key[1] not in self.open:
                del rows[key]
                del self.messages[key[1]]

    def _crash(self) -> None:
        queue = rebuild(self.store, self.policy, self.now_ms)
        assert isinstance(queue, MessageQueue)
        self.queue = queue
        queue.partitions[0].window_max = 2
        rows = self.store.tables["messages"]
        self.messages = {key[1]: entry_of(row) for key, row in rows.items()}
        self.open = set(self.lane.settled.unsettled(1, queue.partitions[0].last))
        assert self.open <= set(self.messages), "lost"
        queue.bytes = sum(self.messages[seq].size for seq in self.open)
        self.fresh, self.sealed, self.outbox = [], None, Outbox()
        self.inbox, self.unburied, self.refusals = {}, [], {}
        self.done = set(self.done_stored)
        for seq, entry in self.messages.items():
            assert (seq in self.open) == (entry.rest not in self.done_stored), seq
        self._read_values()
        self._check_values()
        check_message_queue(queue)

    def _read_values(self) -> None:
        if self.policy.is_last_value:
            self.values = {self.messages[seq].key: seq for seq in sorted(self.open)}

    # The end

    def drain(self) -> None:
        """Somebody takes everything: nothing may be stuck."""
        for consumer in CONSUMERS:
            self.apply(c.Leave(GROUP, consumer, gone=True))
        self.inbox.clear()
        for _ in range(DRAIN_ROUNDS_MAX):
            self.apply(c.Join(GROUP, "x", 0))
            self._dispatch()
            self._flush()
            for seq, (consumer, _) in list(self.inbox.items()):
                self.apply(c.Settle(GROUP, consumer, 0, seq, c.ACK))
            self.inbox.clear()
            if not self.open:
                break
            self.now_ms += 5000
            self._tick()
        assert not self.open, "stuck"
        assert not self.lane.held
        self._flush()
        self._crash()
        assert not self.open, "came back"
