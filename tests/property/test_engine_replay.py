"""The same commands give the same state: on a replica, after a restore, and when one is refused.

Commands are thrown at random, also such as no broker sends. What a machine asks to be loaded is
answered by a command as well, so the record of commands is all another machine needs.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from queuelake.engine import commands as c
from queuelake.engine.effects import DeadLetter, Load, Rank
from queuelake.engine.kinds.durable import DurableQueue
from queuelake.engine.machine import Command, Meta
from queuelake.engine.message import PRIORITY_DEFAULT, Entry
from queuelake.engine.policy import settings as p
from queuelake.engine.publishing import missing_heads
from queuelake.engine.snapshot import restore, snapshot, state_hash
from queuelake.engine.state import NOT_FOUND
from tests.simulation.queue_invariants import check_invariants
from tests.simulation.queue_policies import policy_of
from tests.simulation.queue_store import entry_of, row_of

REFUSALS_MIN = 0x80
GROUPS = ("a", "b", "c")
CONSUMERS = ("x", "y", "z")


class Script:
    """Commands from a seed, with the machine for which they were thrown."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.policy = policy_of(self.dice)
        self.policy.is_stream = self.dice.random() < 0.3
        self.queue = DurableQueue(copy_of(self.policy))
        self.narrow(self.queue)
        self.now_ms = 1_000_000
        self.entries: list[Entry] = []
        self.numbers = dict.fromkeys(CONSUMERS, 1)
        self.record: list[tuple[int, Command, bytes]] = []  # time, command, hash behind it
        self.refused = 0

    def narrow(self, queue: DurableQueue) -> None:
        for partition in queue.partitions:
            partition.window_max = 2

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += self.dice.choice([0, 0, 1, 700, 20_000])
            self._apply(self._command())

    def _apply(self, command: Command) -> None:
        # Time alone is no part of the command.
        self.queue.now_ms = max(self.queue.now_ms, self.now_ms)
        before = state_hash(self.queue)
        recorded = copy_of_command(command)
        effects = self.queue.apply(Meta(0, self.now_ms), command)
        reply = self.queue.reply
        check_invariants(self.queue)
        after = state_hash(self.queue)
        if reply >= REFUSALS_MIN or reply == NOT_FOUND:
            self.refused += 1
            assert after == before, f"{command!r} was refused with {reply:#x} and changed something"
        if isinstance(command, c.Enqueue):
            self.entries.append(command.entry)
        self.record.append((self.now_ms, recorded, after))
        for effect in effects:
            if isinstance(effect, Load):
                stored = [e for e in self._stored(effect.partition) if e.seq >= effect.first]
                self._apply(c.Loaded(effect.partition, effect.first, copies(stored[:4])))
            elif isinstance(effect, Rank):
                for partition in range(len(self.queue.partitions)):
                    ranked = [e for e in self._stored(partition) if e.priority != PRIORITY_DEFAULT]
                    self._apply(c.Ranked(effect.group, partition, copies(ranked)))
            elif isinstance(effect, DeadLetter) and self.dice.random() < 0.8:
                place = effect.entry.partition, effect.entry.seq
                self._apply(c.Settle(effect.group, "", *place, c.BURIED))

    def _stored(self, partition: int) -> list[Entry]:
        found = [e for e in self.entries if e.partition == partition and e.seq]
        return sorted(found, key=lambda entry: entry.seq)

    def _command(self) -> Command:
        (throw,) = self.dice.choices(
            [self._enqueue, self._settle, self._member, self._time, self._order],
            [35, 30, 12, 20, 6],
        )
        return throw()

    def _enqueue(self) -> Command:
        dice, number = self.dice, self.dice.randrange(len(self.queue.partitions))
        expires_ms = self.now_ms + dice.choice([1, 5000]) if dice.random() < 0.2 else 0
        priority = dice.choice([PRIORITY_DEFAULT, PRIORITY_DEFAULT, 0, 31])
        size = 10 if dice.random() < 0.95 else 10**9
        entry = Entry(number, size, dice.randrange(4), self.now_ms, expires_ms, priority)
        for partition, seq in missing_heads(self.queue):
            stored = [e for e in self._stored(partition) if e.seq >= seq]
            self._apply(c.Loaded(partition, seq, copies(stored[:2])))
        if dice.random() < 0.1:
            return c.Accept(size, dice.choice([b"", b"m"]))
        if dice.random() < 0.1 and self.queue.delayed:
            return c.Enqueue(entry, cause=c.DUE)
        if dice.random() < 0.3:
            publisher = dice.choice(CONSUMERS)
            session = self.queue.publishers.get(publisher)
            following = 1 if session is None else session.next
            number = max(1, following + dice.choice([0, 0, 0, -1, 1, 2]))
            return c.Enqueue(entry, dice.choice([b"", b"m"]), publisher=publisher, number=number)
        return c.Enqueue(entry, dice.choice([b"", b"", b"k", b"l", b"m"]))

    def _settle(self) -> Command:
        dice = self.dice
        held = [
            (group.name, one.consumer.name, lane.number, seq)
            for group in self.queue.groups.values()
            for lane in group.lanes
            for seq, one in lane.held.items()
        ]
        outcome = dice.choice([c.ACK, c.ACK, c.NACK, c.REJECT])
        delay_ms = dice.choice([0, 500])
        if held and dice.random() < 0.9:
            return c.Settle(*dice.choice(held), outcome, delay_ms, "words")
        place = dice.choice([-1, 0, 1, 99]), dice.randrange(-1, 6)
        return c.Settle(dice.choice(GROUPS), dice.choice(CONSUMERS), *place, outcome, delay_ms)

    def _member(self) -> Command:
        dice = self.dice
        group, consumer = dice.choice(GROUPS), dice.choice(CONSUMERS)
        if dice.random() < 0.3:
            return c.Leave(group, consumer, dice.random() < 0.5)
        starts = dice.choice([None, None, [c.FROM_EARLIEST], [c.FROM_LATEST], [c.FROM_LAST, 2]])
        derived, replays = dice.random() < 0.2, dice.random() < 0.5
        return c.Join(group, consumer, dice.choice([0, 2]), derived, starts, replays=replays)

    def _time(self) -> Command:
        return self.dice.choice([c.Dispatch(), c.Dispatch(), c.Tick()])

    def _order(self) -> Command:
        dice, queue = self.dice, self.queue
        partition = dice.choice(queue.partitions)
        seq = dice.randint(0, partition.last + 1)
        which = dice.randrange(6)
        if which == 0:
            return c.Purge()
        if which == 1:
            return c.ForgetGroup(dice.choice(GROUPS))
        if which == 2 and queue.policy.is_stream:
            return c.Truncate(partition.number, seq)
        if which == 3:
            policy = copy_of(queue.policy)
            policy.ordering = dice.choice([p.NONE, p.PARTITION])
            policy.key_inflight = dice.randrange(3)
            policy.retry_blocks = dice.randrange(3)
            policy.partitions = min(6, len(queue.partitions) + dice.randrange(2))
            policy.delivery_timeout_ms = dice.choice([10_000, 30_000])
            policy.depth_max = dice.choice([5, 100])
            return c.Configure(policy)
        return c.Remove(partition.number, seq)


def copies(entries: list[Entry]) -> list[Entry]:
    """A store gives new objects each time."""
    return [entry_of(row_of(entry)) for entry in entries]


def copy_of_command(command: Command) -> Command:
    """A machine writes the sequence into the entry it is given: each gets its own."""
    if not isinstance(command, c.Enqueue):
        return command
    (entry,) = copies([command.entry])
    return c.Enqueue(entry, command.dedupe, command.cause, command.publisher, command.number)


def copy_of(policy: p.Policy) -> p.Policy:
    copy = p.Policy()
    for name in [name for name in dir(policy) if not name.startswith("_")]:
        setattr(copy, name, getattr(policy, name))
    return copy


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_a_replica_and_a_restored_replica_reach_the_same_state(seed: int, moments: int) -> None:
    script = Script(seed)
    script.play(120)
    dice = random.Random(moments)
    replica = DurableQueue(copy_of(script.policy))
    restored = DurableQueue(copy_of(script.policy))
    script.narrow(replica)
    script.narrow(restored)
    for now_ms, command, expected in script.record:
        if dice.random() < 0.1:
            restored = restore(snapshot(restored))
            for at, partition in enumerate(restored.partitions):
                partition.window_max = replica.partitions[at].window_max
        for queue in (replica, restored):
            queue.apply(Meta(0, now_ms), copy_of_command(command))
            assert state_hash(queue) == expected, command


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_looking_at_a_queue_changes_nothing(seed: int) -> None:
    script = Script(seed)
    script.play(80)
    queue = script.queue
    before = state_hash(queue)
    queue.depth()
    queue.is_waiting()
    missing_heads(queue)
    for partition in queue.partitions:
        queue.stored(partition)
        queue.deleted(partition)
        queue.is_deleted(partition, 1)
    for group in queue.groups.values():
        for lane in group.lanes:
            lane.unsettled(queue.partitions[lane.number].last)
    assert state_hash(queue) == before
