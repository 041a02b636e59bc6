"""A queue machine with a store behind it and a clock the test owns.

Invariants are checked after every command. What the machine asks to be loaded is loaded.
"""

from __future__ import annotations

from typing import NamedTuple

from queuelake.engine import commands as c
from queuelake.engine.effects import DeadLetter, Deliver, GroupGone, Load, Rank
from queuelake.engine.kinds.durable import DurableQueue
from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.message import PRIORITY_DEFAULT, Entry
from queuelake.engine.policy.settings import Policy
from queuelake.engine.publishing import missing_heads
from tests.simulation.queue_invariants import check_invariants

LOAD_ENTRIES_MAX = 100


class Delivery(NamedTuple):
    consumer: str
    partition: int
    seq: int
    attempt: int
    group: str


def policy_with(**settings: float) -> Policy:
    """One partition unless told otherwise."""
    policy = Policy()
    policy.partitions = 1
    for name, value in settings.items():
        assert hasattr(policy, name), name
        setattr(policy, name, value)
    return policy


class DrivenQueue:
    def __init__(self, window_max: int = 64, **settings: float) -> None:
        self.machine = DurableQueue(policy_with(**settings))
        for partition in self.machine.partitions:
            partition.window_max = window_max
        self.now_ms = 1_000_000
        self.stored: dict[tuple[int, int], Entry] = {}
        self.dead: list[DeadLetter] = []
        self.gone_groups: list[str] = []
        self.loads: list[tuple[int, int]] = []
        self._given: list[Entry] = []
        self._deliveries: list[Delivery] = []

    def apply(self, command: Command) -> int:
        effects = self.machine.apply(Meta(0, self.now_ms), command)
        reply = self.machine.reply
        for entry in [entry for entry in self._given if entry.seq]:
            self.stored[(entry.partition, entry.seq)] = entry
            self._given.remove(entry)
        check_invariants(self.machine)
        for effect in effects:
            self._perform(effect)
        return reply

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            entry = effect.entry
            place = (effect.consumer.name, entry.partition, entry.seq)
            self._deliveries.append(Delivery(*place, effect.attempt, effect.group.name))
        elif isinstance(effect, Load):
            self.load(effect.partition, effect.first)
        elif isinstance(effect, DeadLetter):
            self.dead.append(effect)
        elif isinstance(effect, Rank):
            for partition in self.machine.partitions:
                ranked = [e for e in self._of(partition.number) if e.priority != PRIORITY_DEFAULT]
                self.apply(c.Ranked(effect.group, partition.number, ranked))
        else:
            assert isinstance(effect, GroupGone)
            self.gone_groups.append(effect.group)

    def load(self, number: int, first: int) -> None:
        self.loads.append((number, first))
        entries = [entry for entry in self._of(number) if entry.seq >= first]
        self.apply(c.Loaded(number, first, entries[:LOAD_ENTRIES_MAX]))

    def _of(self, number: int) -> list[Entry]:
        return [self.stored[place] for place in sorted(self.stored) if place[0] == number]

    # Publishers

    def publish(
        self,
        key: int = 0,
        *,
        partition: int = 0,
        size: int = 100,
        ttl_ms: int = 0,
        priority: int = PRIORITY_DEFAULT,
        rest: bytes = b"",
        dedupe: bytes = b"",
        publisher: str = "",
        number: int = 0,
    ) -> int:
        expires_ms = self.now_ms + ttl_ms if ttl_ms else 0
        entry = Entry(partition, size, key, self.now_ms, expires_ms, priority, rest)
        self._given.append(entry)
        for head in missing_heads(self.machine):
            self.load(*head)
        return self.apply(c.Enqueue(entry, dedupe, c.PUBLISHED, publisher, number))

    def publish_many(self, count: int, key: int = 0) -> None:
        for _ in range(count):
            assert self.publish(key) == 0

    # Consumers

    def join(
        self,
        consumer: str = "x",
        *,
        group: str = "g",
        prefetch: int = 0,
        derived: bool = False,
        starts: list[int] | None = None,
        pattern: bytes = b"",
    ) -> None:
        replays = starts is not None
        self.apply(c.Join(group, consumer, prefetch, derived, starts, pattern, replays=replays))

    def leave(self, consumer: str = "x", *, group: str = "g", gone: bool = True) -> None:
        self.apply(c.Leave(group, consumer, gone))

    def dispatch(self) -> list[Delivery]:
        """What is handed out now, after as many loads as it takes."""
        while True:
            loads = len(self.loads)
            self.apply(c.Dispatch())
            if len(self.loads) == loads and not self.machine.more:
                break
        deliveries, self._deliveries = self._deliveries, []
        return deliveries

    def sequences(self) -> list[int]:
        return [delivery.seq for delivery in self.dispatch()]

    def settle(
        self,
        outcome: int,
        seq: int,
        consumer: str = "x",
        *,
        group: str = "g",
        partition: int = 0,
        delay_ms: int = 0,
        reason: str = "",
    ) -> int:
        return self.apply(c.Settle(group, consumer, partition, seq, outcome, delay_ms, reason))

    def ack(self, seq: int, consumer: str = "x", *, group: str = "g", partition: int = 0) -> int:
        return self.settle(c.ACK, seq, consumer, group=group, partition=partition)

    def nack(self, seq: int, consumer: str = "x", *, delay_ms: int = 0) -> int:
        return self.settle(c.NACK, seq, consumer, delay_ms=delay_ms)

    def reject(self, seq: int, consumer: str = "x", *, reason: str = "") -> int:
        return self.settle(c.REJECT, seq, consumer, reason=reason)

    def bury(self) -> None:
        """The copies of all dead letters are stored."""
        dead, self.dead = self.dead, []
        for one in dead:
            self.apply(c.Settle(one.group, "", one.entry.partition, one.entry.seq, c.BURIED))

    # Time

    def after(self, ms: int) -> None:
        self.now_ms += ms
        self.apply(c.Tick())
