"""The same commands give a message queue the same state: on a replica, and after a restore.

Commands are thrown at random, also such as no broker sends. What a machine asks to be loaded is
answered by a command as well, so the record of commands is all another machine needs.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from queuelake.engine import commands as c
from queuelake.engine.effects import DeadLetter, Deliver, Load
from queuelake.engine.groups import GROUP
from queuelake.engine.kinds.message_queue import MessageQueue
from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.message import Entry
from queuelake.engine.policy import settings as p
from queuelake.engine.publishing import missing_heads
from queuelake.engine.snapshot import restore, snapshot, state_hash
from queuelake.engine.state import NOT_FOUND
from tests.simulation.message_queue_invariants import check_message_queue
from tests.simulation.message_queue_policies import throw_policy, throw_settings
from tests.simulation.queue_store import entry_of, row_of

REFUSALS_MIN = 0x80
CONSUMERS = ("x", "y", "z")
WINDOW_MAX = 2


class Script:
    """Commands from a seed, with the machine for which they were thrown."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.policy = throw_policy(self.dice)
        self.queue = new_queue(self.policy)
        self.now_ms = 1_000_000
        self.entries: dict[int, Entry] = {}
        self.record: list[tuple[int, Command, bytes]] = []  # time, command, hash behind it

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += self.dice.choice([0, 0, 1, 700, 20_000])
            self._apply(self._command())

    def _apply(self, command: Command) -> None:
        # Time alone is no part of the command.
        self.queue.now_ms = max(self.queue.now_ms, self.now_ms)
        before = state_hash(self.queue)
        recorded = copy_of(command)
        effects = self.queue.apply(Meta(0, self.now_ms), command)
        reply = self.queue.reply
        check_message_queue(self.queue)
        after = state_hash(self.queue)
        if reply >= REFUSALS_MIN or reply == NOT_FOUND:
            assert after == before, f"{command!r} was refused with {reply:#x} and changed something"
        elif isinstance(command, c.Enqueue):
            self.entries[command.entry.seq] = command.entry
        self.record.append((self.now_ms, recorded, after))
        for effect in effects:
            if isinstance(effect, Load):
                self._load(effect.first)
            elif isinstance(effect, DeadLetter) and self.dice.random() < 0.8:
                self._apply(c.Settle(effect.group, "", 0, effect.entry.seq, c.BURIED))

    def _load(self, first: int) -> None:
        wanted = sorted(seq for seq in self.entries if seq >= first)[:4]
        entries = [entry_of(row_of(self.entries[seq])) for seq in wanted]
        self._apply(c.Loaded(0, first, entries))

    def _command(self) -> Command:
        (throw,) = self.dice.choices(
            [self._enqueue, self._settle, self._member, self._time, self._order],
            [35, 30, 12, 20, 6],
        )
        return throw()

    def _enqueue(self) -> Command:
        dice = self.dice
        size, key = dice.choice([1, 30, 101]), dice.randrange(5)
        for _, seq in missing_heads(self.queue, size):
            self._load(seq)
        same = [seq for seq, entry in self.entries.items() if entry.key == key]
        replaces = dice.choice([*same[-1:], 0]) if self.policy.is_last_value else 0
        former = self.entries[replaces].size if replaces else 0
        entry = Entry(0, size, key, self.now_ms, 0)
        return c.Enqueue(entry, replaces=replaces, replaced_size=former)

    def _settle(self) -> Command:
        dice = self.dice
        outcome = dice.choice([c.ACK, c.ACK, c.NACK, c.REJECT])
        held = self.queue.groups[GROUP].lanes[0].held
        if held and dice.random() < 0.9:
            one = dice.choice(list(held.values()))
            place = (GROUP, one.consumer.name, 0, one.entry.seq)
            return c.Settle(*place, outcome, dice.choice([0, 500]), "words")
        group, number = dice.choice([GROUP, GROUP, "g"]), dice.choice([-1, 0, 0, 1])
        return c.Settle(group, dice.choice(CONSUMERS), number, dice.randrange(-1, 30), outcome)

    def _member(self) -> Command:
        dice = self.dice
        group, consumer = dice.choice([GROUP, GROUP, GROUP, "g"]), dice.choice(CONSUMERS)
        if dice.random() < 0.3:
            return c.Leave(group, consumer, dice.random() < 0.5)
        return c.Join(group, consumer, dice.choice([0, 0, 2]))

    def _time(self) -> Command:
        return self.dice.choice([c.Dispatch(), c.Dispatch(in_bulk=True), c.Tick()])

    def _order(self) -> Command:
        dice = self.dice
        seq = dice.randint(0, self.queue.partitions[0].last + 1)
        which = dice.randrange(6)
        if which == 0:
            return c.Purge()
        if which == 1:
            live = self.queue.groups[GROUP].lanes[0].settled.unsettled(1, seq)
            live = [one for one in live if one in self.entries]
            return c.Truncate(0, seq, sum(self.entries[one].size for one in live))
        if which == 2:
            return c.Expire([entry_of(row_of(one)) for one in self.entries.values()])
        if which == 3:
            return c.Remove(0, seq)
        policy = p.message_queue_policy()
        policy.is_last_value = self.policy.is_last_value
        throw_settings(policy, dice)
        return c.Configure(policy)


def new_queue(policy: p.Policy) -> MessageQueue:
    queue = MessageQueue(policy)
    queue.partitions[0].window_max = WINDOW_MAX
    return queue


def copy_of(command: Command) -> Command:
    """A machine writes the sequence into the entry it is given: each gets its own."""
    if not isinstance(command, c.Enqueue):
        return command
    entry = entry_of(row_of(command.entry))
    return c.Enqueue(entry, replaces=command.replaces, replaced_size=command.replaced_size)


def told(effects: list[Effect]) -> list[tuple[str, int, int]]:
    """The deliveries among the effects."""
    return [
        (one.consumer.name, one.entry.seq, one.attempt)
        for one in effects
        if isinstance(one, Deliver)
    ]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_a_replica_and_a_restored_replica_reach_the_same_state(seed: int, moments: int) -> None:
    script = Script(seed)
    script.play(120)
    dice = random.Random(moments)
    replica, restored = new_queue(script.policy), new_queue(script.policy)
    for now_ms, command, expected in script.record:
        if dice.random() < 0.1:
            freed = restored.freed  # told once, and no part of the state
            again = restore(snapshot(restored))
            assert isinstance(again, MessageQueue)
            restored = again
            restored.freed = freed
            restored.partitions[0].window_max = WINDOW_MAX
        first = replica.apply(Meta(0, now_ms), copy_of(command))
        second = restored.apply(Meta(0, now_ms), copy_of(command))
        assert told(first) == told(second)
        assert state_hash(replica) == expected, command
        assert state_hash(restored) == expected, command
    assert replica.freed == restored.freed == script.queue.freed


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_looking_at_a_message_queue_changes_nothing(seed: int) -> None:
    script = Script(seed)
    script.play(80)
    queue = script.queue
    before = state_hash(queue)
    queue.depth()
    queue.is_waiting()
    missing_heads(queue, 1000)
    queue.stored(queue.partitions[0])
    queue.deleted(queue.partitions[0])
    assert state_hash(queue) == before
