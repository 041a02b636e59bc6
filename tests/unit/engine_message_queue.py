"""A message queue machine with a store behind it and a clock the test owns.

Invariants are checked after every command. What the machine asks to be loaded is loaded. Values of
a last-value queue are found by key as a broker would find them: in an index which is kept by what
the machine says has left.
"""

from __future__ import annotations

from typing import NamedTuple

from queuelake.engine import commands as c
from queuelake.engine.effects import DeadLetter, Deliver, Load
from queuelake.engine.groups import GROUP
from queuelake.engine.kinds.message_queue import MessageQueue
from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.message import Entry
from queuelake.engine.policy.settings import Policy, message_queue_policy
from queuelake.engine.publishing import missing_heads
from tests.simulation.message_queue_invariants import check_message_queue

LOAD_ENTRIES_MAX = 100


class Delivery(NamedTuple):
    consumer: str
    seq: int
    attempt: int


def mq_policy_with(**settings: float) -> Policy:
    policy = message_queue_policy()
    for name, value in settings.items():
        assert hasattr(policy, name), name
        setattr(policy, name, value)
    return policy


class DrivenMessageQueue:
    def __init__(self, window_max: int = 64, **settings: float) -> None:
        self.machine = MessageQueue(mq_policy_with(**settings))
        self.machine.partitions[0].window_max = window_max
        self.group = self.machine.groups[GROUP]
        self.lane = self.group.lanes[0]
        self.now_ms = 1_000_000
        self.stored: dict[int, Entry] = {}
        self.index: dict[int, int] = {}  # of a last-value queue: key -> sequence
        self.dead: list[DeadLetter] = []
        self.loads: list[int] = []
        self._deliveries: list[Delivery] = []

    def apply(self, command: Command) -> int:
        effects = self.machine.apply(Meta(0, self.now_ms), command)
        reply = self.machine.reply
        if isinstance(command, c.Enqueue) and reply == 0:
            self.stored[command.entry.seq] = command.entry
        check_message_queue(self.machine)
        for effect in effects:
            self._perform(effect)
        return reply

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            self._deliveries.append(
                Delivery(effect.consumer.name, effect.entry.seq, effect.attempt)
            )
        elif isinstance(effect, Load):
            self.load(effect.first)
        else:
            assert isinstance(effect, DeadLetter)
            self.dead.append(effect)

    def load(self, first: int) -> None:
        self.loads.append(first)
        wanted = [seq for seq in self.live() if seq >= first]
        entries = [self.stored[seq] for seq in wanted[:LOAD_ENTRIES_MAX]]
        self.apply(c.Loaded(0, first, entries))

    def live(self) -> list[int]:
        """What is in the queue."""
        return self.lane.settled.unsettled(1, self.machine.partitions[0].last)

    def live_bytes(self) -> int:
        return sum(self.stored[seq].size for seq in self.live())

    # Publishers

    def publish(self, key: int = 0, *, size: int = 100) -> int:
        entry = Entry(0, size, key, self.now_ms, 0)
        for _, seq in missing_heads(self.machine, size):
            self.load(seq)
        replaces = self.index.get(key, 0) if self.machine.policy.is_last_value else 0
        former = self.stored[replaces].size if replaces else 0
        reply = self.apply(c.Enqueue(entry, replaces=replaces, replaced_size=former))
        self.take_freed()
        if reply == 0 and self.machine.policy.is_last_value:
            self.index[key] = entry.seq
        return reply

    def take_freed(self) -> list[tuple[int, int]]:
        """The index forgets what has left."""
        freed = self.machine.freed[:]
        self.machine.freed.clear()
        for key, seq in freed:
            if self.index.get(key) == seq:
                del self.index[key]
        return freed

    def publish_many(self, count: int) -> None:
        for _ in range(count):
            assert self.publish() == 0

    # Consumers

    def join(self, *consumers: str, prefetch: int = 0) -> None:
        for consumer in consumers:
            self.apply(c.Join(GROUP, consumer, prefetch))

    def leave(self, consumer: str) -> None:
        self.apply(c.Leave(GROUP, consumer, gone=True))

    def dispatch(self, *, in_bulk: bool = False) -> list[Delivery]:
        """What is handed out now, after as many loads as it takes."""
        while True:
            loads = len(self.loads)
            self.apply(c.Dispatch(in_bulk))
            if len(self.loads) == loads and not self.machine.more:
                break
        deliveries, self._deliveries = self._deliveries, []
        return deliveries

    def given(self) -> list[tuple[str, int]]:
        """Who gets what now."""
        return [(one.consumer, one.seq) for one in self.dispatch()]

    def settle(self, outcome: int, seq: int, consumer: str, *, delay_ms: int = 0) -> int:
        reply = self.apply(c.Settle(GROUP, consumer, 0, seq, outcome, delay_ms))
        self.take_freed()
        return reply

    def ack(self, seq: int, consumer: str = "x") -> int:
        return self.settle(c.ACK, seq, consumer)

    def reject(self, seq: int, consumer: str = "x") -> int:
        return self.settle(c.REJECT, seq, consumer)

    def nack(self, seq: int, consumer: str = "x", *, delay_ms: int = 0) -> int:
        return self.settle(c.NACK, seq, consumer, delay_ms=delay_ms)

    def bury(self) -> None:
        """The copies of all dead letters are stored."""
        dead, self.dead = self.dead, []
        for one in dead:
            self.settle(c.BURIED, one.entry.seq, "")

    # Time and orders

    def after(self, ms: int) -> None:
        """Ticks until the machine knows what it wanted to know."""
        self.now_ms += ms
        loads = -1
        while loads < len(self.loads):
            loads = len(self.loads)
            self.apply(c.Tick())
        self.take_freed()

    def configure(self, **settings: float) -> None:
        policy = message_queue_policy()
        before = self.machine.policy
        for name in [name for name in dir(before) if not name.startswith("_")]:
            setattr(policy, name, getattr(before, name))
        for name, value in settings.items():
            assert hasattr(policy, name), name
            setattr(policy, name, value)
        self.apply(c.Configure(policy))
