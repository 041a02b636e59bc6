"""One queue machine from a seed: publishers, groups, a store which loses what was not committed.

Commands gather in a group; when the group is stored its deliveries reach the consumers and its
messages count as accepted. A delivery which the store knows of already leaves at once. A crash
throws away what was not stored, and the machine is built anew from the rows.

Checked in every step: the invariants of the machine, that a message is settled only for a reason,
that what is settled in the store never comes back, that delivery counts rise, that first deliveries
come in order, and one at a time for each key where that was asked. At the end all is delivered.

The size of an entry is the number by which the test knows the message.
"""

from __future__ import annotations

import random
from typing import TypeAlias

from queuelake.engine import commands as c
from queuelake.engine.effects import DeadLetter, Deliver, GroupGone, Load, Rank
from queuelake.engine.groups import Group
from queuelake.engine.kinds.durable import DurableQueue
from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.message import PRIORITY_DEFAULT, Entry
from queuelake.engine.outbox import Outbox
from queuelake.engine.policy import settings as p
from queuelake.engine.publishing import missing_heads
from queuelake.engine.state import DUPLICATE, FULL, NOT_FOUND, NOT_HELD
from tests.simulation.queue_invariants import check_invariants
from tests.simulation.queue_policies import policy_of
from tests.simulation.queue_store import (
    Change,
    Store,
    changes_of,
    entry_of,
    rebuild,
    row_of,
    tallies_of,
)

Place: TypeAlias = tuple[str, int, int]  # group, partition, sequence
Known: TypeAlias = tuple[str, int]  # group, message

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
        self.ids = dict(world.ids)
        self.tallies = tallies_of(world.queue)


class World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.policy = policy_of(self.dice)
        self.now_ms = 1_000_000
        self.store = Store()
        self.queue = DurableQueue(self.policy)
        self._narrow_windows()
        self.messages: dict[tuple[int, int], Entry] = {}
        self.fresh: list[Entry] = []  # not in a group yet
        self.forgotten: list[int] = []  # groups likewise
        self.outbox = Outbox()
        self.sealed: Sealed | None = None
        self.inbox: dict[Place, tuple[str, int]] = {}  # what consumers have: who, attempt
        self.attempts: dict[Known, int] = {}  # highest which a consumer saw
        self.first: dict[tuple[str, int, int], int] = {}  # group, partition, key -> sequence
        self.open: dict[tuple[str, int], set[int]] = {}  # what a group has not settled
        self.done: set[Known] = set()
        self.done_stored: set[Known] = set()
        # Passed by others while they were out or settled, and the store was never told.
        self.excused: set[Known] = set()
        self.unburied: list[DeadLetter] = []
        self.ids: dict[bytes, int] = {}
        self.ids_stored: dict[bytes, int] = {}
        self.published = 0
        self.loads = 0
        self.groups_made = 0

    def _narrow_windows(self) -> None:
        for partition in self.queue.partitions:
            partition.window_max = 2

    # What may happen

    def step(self) -> None:
        self.now_ms += self.dice.choice([0, 1, 10, 3000])
        weights = {
            self._publish: 30,
            self._settle: 30,
            self._dispatch: 25,
            self._commit: 20,
            self._join: 8,
            self._tick: 6,
            self._leave: 5,
            self._crash: 2,
            self._remove: 1,
            self._purge: 0.5,
            self._forget: 0.3,
        }
        (action,) = self.dice.choices(list(weights), list(weights.values()))
        action()

    def _publish(self) -> None:
        dice, policy = self.dice, self.policy
        self.published += 1
        number = dice.randrange(policy.partitions)
        expires_ms = self.now_ms + policy.ttl_ms if policy.ttl_ms else 0
        if dice.random() < 0.1:
            expires_ms = self.now_ms + dice.choice([1, 5000])
        priority = dice.choice([PRIORITY_DEFAULT] * 3 + [0, 9])
        key = dice.choice([0, 1, 2, 3])
        entry = Entry(number, self.published, key, self.now_ms, expires_ms, priority)
        digest = dice.choice([b"", b"", b"a", b"b"])
        for partition, seq in missing_heads(self.queue):
            self._load(partition, seq)
        full = self.queue.depth() >= policy.depth_max
        reply = self.apply(c.Enqueue(entry, digest))
        is_known = digest != b"" and self.ids.get(digest, 0) > self.now_ms
        assert (reply == DUPLICATE) == is_known
        assert reply in ((0, FULL) if policy.drop_head else (FULL,) if full else (0,)) or is_known
        if reply:
            return
        if digest:
            self.ids[digest] = self.now_ms + policy.dedupe_window_ms
        self.messages[(number, entry.seq)] = entry
        self.fresh.append(entry)

    def _join(self) -> None:
        names = list(self.queue.groups)
        if len(names) < 2 and (not names or self.dice.random() < 0.3):
            self.groups_made += 1
            names = [f"g{self.groups_made}"]
        starts = self.dice.choice([None, [c.FROM_LATEST]])
        self.apply(c.Join(self.dice.choice(names), self.dice.choice("xyz"), 0, starts=starts))

    def _leave(self) -> None:
        group, consumer = self.dice.choice([*self.queue.groups, "none"]), self.dice.choice("xyz")
        gone = self.dice.random() < 0.6
        if gone:
            self.inbox = {
                place: (who, attempt)
                for place, (who, attempt) in self.inbox.items()
                if (place[0], who) != (group, consumer)
            }
        self.apply(c.Leave(group, consumer, gone))
        if gone and self.dice.random() < 0.5 and group in self.queue.groups:
            self.apply(c.Join(group, consumer, 0))  # a takeover

    def _settle(self) -> None:
        if not self.inbox:
            return
        place = self.dice.choice(list(self.inbox))
        consumer, attempt = self.inbox.pop(place)
        outcome = self.dice.choice([c.ACK, c.ACK, c.NACK, c.REJECT])
        is_held = self._is_held(place, consumer, attempt)
        delay_ms = self.dice.choice([0, 0, 500])
        reply = self.apply(c.Settle(*place[:1], consumer, *place[1:], outcome, delay_ms))
        assert reply == 0 if is_held else reply in (0, NOT_FOUND, NOT_HELD)

    def _is_held(self, place: Place, consumer: str, attempt: int) -> bool:
        group = self.queue.groups.get(place[0])
        held = None if group is None else group.lanes[place[1]].held.get(place[2])
        return held is not None and (held.consumer.name, held.attempt) == (consumer, attempt)

    def _dispatch(self) -> None:
        """Again after a load, as the host does: the window may have other entries soon."""
        loads = -1
        while loads < self.loads:
            loads = self.loads
            self.apply(c.Dispatch())

    def _tick(self) -> None:
        unburied, self.unburied = self.unburied, []
        self._perform(unburied)
        self.now_ms += self.dice.choice([0, 10_000])
        self.apply(c.Tick())

    def _purge(self) -> None:
        self.apply(c.Purge())

    def _remove(self) -> None:
        partition = self.dice.choice(self.queue.partitions)
        if partition.last:
            self.apply(c.Remove(partition.number, self.dice.randint(1, partition.last)))

    def _forget(self) -> None:
        self.apply(c.ForgetGroup(self.dice.choice([*self.queue.groups, "none"])))

    # The machine and its effects

    def apply(self, command: Command) -> int:
        effects = self.queue.apply(Meta(0, self.now_ms), command)
        reply = self.queue.reply
        self._observe(command)
        check_invariants(self.queue)
        self._perform(effects)
        return reply

    def _perform(self, effects: list[Effect] | list[DeadLetter]) -> None:
        for effect in effects:
            if isinstance(effect, Deliver):
                self._check_hand_out(effect)
                if self.outbox.put(effect):
                    self._deliver(effect)
            elif isinstance(effect, Load):
                self._load(effect.partition, effect.first)
            elif isinstance(effect, Rank):
                self._rank(effect.group)
            elif isinstance(effect, GroupGone):
                self.forgotten.append(effect.group_id)
            elif isinstance(effect, DeadLetter) and self.dice.random() < 0.2:
                self.unburied.append(effect)  # the dead letters have no room now
            elif isinstance(effect, DeadLetter):
                place = effect.entry.partition, effect.entry.seq
                self.apply(c.Settle(effect.group, "", *place, c.BURIED))

    def _load(self, number: int, first: int) -> None:
        self.loads += 1
        last = self.queue.partitions[number].last
        wanted = range(first, min(first + LOAD_ENTRIES_MAX, last + 1))
        entries = [self.messages[(number, seq)] for seq in wanted]
        self.apply(c.Loaded(number, first, [entry_of(row_of(entry)) for entry in entries]))

    def _rank(self, group: str) -> None:
        for partition in self.queue.partitions:
            of_it = [e for e in self.messages.values() if e.partition == partition.number]
            ranked = [entry_of(row_of(e)) for e in of_it if e.priority != PRIORITY_DEFAULT]
            self.apply(c.Ranked(group, partition.number, ranked))

    def _deliver(self, effect: Deliver) -> None:
        """A delivery reaches its consumer."""
        entry, group = effect.entry, effect.group.name
        place, known = (group, entry.partition, entry.seq), (group, entry.size)
        if not self._is_held(place, effect.consumer.name, effect.attempt):
            self.excused.add(known)  # left, timed out or was purged before the group was stored
            return
        assert known not in self.done, f"{known} comes after it was settled"
        assert effect.attempt > self.attempts.get(known, 0), f"attempt {effect.attempt} again"
        is_first = known not in self.attempts and known not in self.excused
        if is_first and self.policy.ordering != p.NONE:
            line = (group, entry.partition, entry.key)
            assert self.first.get(line, 0) < entry.seq, f"{known} comes after a later one"
            self.first[line] = entry.seq
        self.attempts[known] = effect.attempt
        self.inbox[place] = (effect.consumer.name, effect.attempt)

    def _check_hand_out(self, effect: Deliver) -> None:
        entry, policy = effect.entry, self.policy
        assert effect.consumer.held <= effect.consumer.prefetch
        assert not 0 < entry.expires_ms <= self.now_ms
        lane = effect.group.lanes[entry.partition]
        of_key = [held for held in lane.held.values() if held.entry.key == entry.key]
        if policy.key_inflight and entry.key:
            assert len(of_key) <= policy.key_inflight
        serial = policy.key_inflight == 1 and policy.retry_blocks != p.BLOCKS_NOTHING
        if serial and policy.ordering != p.NONE and entry.key:
            for earlier in lane.settled.unsettled(1, entry.seq - 1):
                is_same = self.messages[(entry.partition, earlier)].key == entry.key
                assert not is_same or earlier in lane.dying, f"{entry.seq} overtakes {earlier}"

    # What became of the messages

    def _observe(self, command: Command) -> None:
        """Note what is settled now, and ask why."""
        names = set(self.queue.groups)
        self.open = {lane: seqs for lane, seqs in self.open.items() if lane[0] in names}
        for group in self.queue.groups.values():
            for lane in group.lanes:
                last = self.queue.partitions[lane.number].last
                now = set(lane.settled.unsettled(1, last))
                before = self.open.get((group.name, lane.number))
                if before is None:
                    before = set()  # its first look at the partition decides where it begins
                    for number, seq in self.messages:
                        if number == lane.number and seq not in now:
                            self.done.add((group.name, self.messages[(number, seq)].size))
                for seq in before - now:
                    entry = self.messages[(lane.number, seq)]
                    assert self._has_reason(command, group, entry), (command, group.name, seq)
                    self.done.add((group.name, entry.size))
                self.open[(group.name, lane.number)] = now

    def _has_reason(self, command: Command, group: Group, entry: Entry) -> bool:
        if isinstance(command, c.Settle):
            place = (command.group, command.partition, command.seq)
            final = command.outcome in (c.ACK, c.BURIED) or not self.policy.dlq_enabled
            return final and place == (group.name, entry.partition, entry.seq)
        if isinstance(command, c.Remove):
            return (command.partition, command.seq) == (entry.partition, entry.seq)
        if isinstance(command, c.Enqueue):
            return self.policy.drop_head
        if isinstance(command, c.Tick | c.Dispatch | c.Leave):
            is_over = 0 < entry.expires_ms <= self.now_ms and not isinstance(command, c.Leave)
            return is_over or not self.policy.dlq_enabled
        return isinstance(command, c.Purge)

    # The store

    def _commit(self) -> None:
        """One group is on its way at a time."""
        if self.sealed is None:
            changes = changes_of(self.queue, self.fresh, self.forgotten)
            self.sealed = Sealed(changes, self)
            self.fresh, self.forgotten = [], []
            self.outbox.seal()
            return
        sealed, self.sealed = self.sealed, None
        self.store.commit(sealed.changes)
        self.done_stored = sealed.done
        self.ids_stored = sealed.ids
        assert self.store.tables["tallies"] == sealed.tallies
        for group in self.queue.groups.values():
            for lane in group.lanes:
                lane.claimed = max(lane.claimed, lane.claiming)
        self._trim()
        for effect in self.outbox.stored():
            self._deliver(effect)

    def _flush(self) -> None:
        if self.sealed is not None:
            self._commit()
        self._commit()
        self._commit()

    def _trim(self) -> None:
        """Messages which nobody needs leave the store, once it knows that they are gone."""
        for (number,), (upto, _) in self.store.tables["partitions"].items():
            for key in [key for key in self.messages if key[0] == number and key[1] <= upto]:
                del self.messages[key]
                self.store.tables["messages"].pop(key, None)

    def _crash(self) -> None:
        queue = rebuild(self.store, self.policy, self.now_ms)
        assert isinstance(queue, DurableQueue)
        self.queue = queue
        self._narrow_windows()
        self.messages = {
            (key[0], key[1]): entry_of(row) for key, row in self.store.tables["messages"].items()
        }
        self.fresh, self.forgotten, self.sealed, self.outbox = [], [], None, Outbox()
        self.inbox, self.unburied, self.open = {}, [], {}
        self.excused |= self.done - self.done_stored
        self.done = set(self.done_stored)
        self.ids = dict(self.ids_stored)
        self._check_rebuilt()
        check_invariants(self.queue)

    def _check_rebuilt(self) -> None:
        """Nothing accepted is lost, nothing settled comes back."""
        for partition in self.queue.partitions:
            for seq in partition.gone.unsettled(1, partition.last):
                assert (partition.number, seq) in self.messages, f"{partition.number}:{seq} is lost"
        for group in self.queue.groups.values():
            for (number, seq), entry in self.messages.items():
                is_settled = seq in group.lanes[number].settled
                assert is_settled == ((group.name, entry.size) in self.done_stored), (number, seq)

    # The end

    def drain(self) -> None:
        """Somebody takes everything: nothing may be stuck."""
        for _ in range(DRAIN_ROUNDS_MAX):
            for group in list(self.queue.groups):
                self.apply(c.Join(group, "x", 0))
            self._dispatch()
            self._flush()
            for place, (consumer, _) in list(self.inbox.items()):
                self.apply(c.Settle(*place[:1], consumer, *place[1:], c.ACK))
            self.inbox.clear()
            if not any(group.unsettled for group in self.queue.groups.values()):
                break
            self.now_ms += 40_000
            self._tick()
        assert not any(group.unsettled for group in self.queue.groups.values()), "stuck"
        self._flush()
        self._crash()
        assert not any(group.unsettled for group in self.queue.groups.values()), "came back"
