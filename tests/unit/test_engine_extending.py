"""Ranges of messages which the store has already: counted like all others, loaded when needed."""

from __future__ import annotations

import pytest

from queuelake.engine import commands as c
from queuelake.engine.effects import Deliver, Load
from queuelake.engine.kinds.durable import DurableQueue
from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.message import Entry
from queuelake.engine.policy.settings import Policy
from queuelake.engine.state import FULL, TOO_LARGE


class Queue:
    """A machine, and a store which has every range it was given."""

    def __init__(self, **policy: object) -> None:
        settings = Policy()
        for name, value in policy.items():
            setattr(settings, name, value)
        self.machine = DurableQueue(settings)
        self.index = 0
        self.delivered: list[tuple[int, int]] = []

    def apply(self, command: Command, now_ms: int = 1_000) -> list[Effect]:
        self.index += 1
        effects = self.machine.apply(Meta(self.index, now_ms), command)
        for effect in effects:
            if isinstance(effect, Load):
                partition = self.machine.partitions[effect.partition]
                last = min(partition.last, effect.first + 9)
                entries = [
                    Entry(effect.partition, 1, 0, 500, 0, seq=seq)
                    for seq in range(effect.first, last + 1)
                ]
                self.apply(c.Loaded(effect.partition, effect.first, entries), now_ms)
            elif isinstance(effect, Deliver):
                self.delivered.append((effect.entry.partition, effect.entry.seq))
        return effects

    def dispatch(self) -> None:
        while any(isinstance(effect, Load) for effect in self.apply(c.Dispatch())):
            pass

    def publish(self) -> int:
        self.apply(c.Enqueue(Entry(0, 1, 0, 1_000, 0)))
        return self.machine.reply


def test_a_range_counts_without_a_group_and_for_each_group() -> None:
    queue = Queue(partitions=2)
    queue.apply(c.Extend([3, 4], 1, 7))
    assert queue.machine.reply == 0
    assert (queue.machine.depth(), queue.machine.loose) == (7, 7)
    assert [partition.last for partition in queue.machine.partitions] == [3, 4]
    queue.apply(c.Join("g", "one", 100))
    queue.apply(c.Extend([1, 0], 1, 1))
    assert queue.machine.groups["g"].unsettled == 8
    assert queue.machine.counters.enqueued == 8


def test_a_range_between_publishes_is_handed_out_in_its_place() -> None:
    queue = Queue(partitions=1)
    queue.apply(c.Join("g", "one", 100))
    queue.publish()
    queue.apply(c.Extend([25], 1, 25))
    queue.publish()
    queue.dispatch()
    assert queue.delivered == [(0, seq) for seq in range(1, 28)]
    for _, seq in queue.delivered:
        queue.apply(c.Settle("g", "one", 0, seq, c.ACK))
    assert queue.machine.depth() == 0
    assert queue.machine.partitions[0].gone.upto == 27


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        (c.Extend([8], 1, 8), 0),
        (c.Extend([9], 1, 9), FULL),
        (c.Extend([5], 1, 5, delayed=4), FULL),
        (c.Extend([1], 101, 101), TOO_LARGE),
    ],
)
def test_a_range_is_taken_whole_or_not_at_all(command: c.Extend, reply: int) -> None:
    queue = Queue(partitions=1, depth_max=10, message_bytes_max=100)
    queue.publish()
    queue.publish()
    queue.apply(command)
    assert queue.machine.reply == reply
    assert queue.machine.depth() == (10 if reply == 0 else 2)
    assert queue.machine.counters.refused == (reply != 0)


def test_what_is_to_come_later_counts_from_now_on() -> None:
    queue = Queue(partitions=1, depth_max=10)
    queue.apply(c.Extend([2], 1, 4, delayed=2))
    assert (queue.machine.delayed, queue.machine.depth()) == (2, 4)
    assert queue.machine.is_waiting()


def test_the_oldest_go_as_time_passes_where_they_make_room() -> None:
    queue = Queue(partitions=1, depth_max=10, drop_head=True)
    queue.apply(c.Join("g", "one", 2))
    queue.publish()
    queue.dispatch()
    queue.apply(c.Extend([50], 1, 50))
    assert queue.machine.reply == 0
    assert queue.machine.is_over()
    for _ in range(20):
        queue.apply(c.Tick())
    assert not queue.machine.is_over()
    assert queue.machine.depth() == 10
    assert queue.machine.counters.dropped == 41
    left = queue.machine.groups["g"].lanes[0].settled.unsettled(1, 51)
    assert left == [1, *range(43, 52)], "the first is in hand"
    assert queue.publish() == 0
    assert queue.machine.depth() == 10
