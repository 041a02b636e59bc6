"""Deliveries leave when the store knows of them, and never overtake each other."""

from __future__ import annotations

from queuelake.engine.effects import Deliver
from queuelake.engine.groups import Consumer, Group
from queuelake.engine.lane import Lane
from queuelake.engine.message import Entry
from queuelake.engine.outbox import Outbox
from queuelake.engine.settled import Settled


class Sender:
    """One lane, consumers x and y, and what has left."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.group = Group("g", 1, False, b"")
        self.lane = Lane(0, Settled())
        self.group.lanes.append(self.lane)
        self.consumers = {name: Consumer(name, 10, 0) for name in "xy"}
        self.left: list[int] = []

    def put(self, seq: int, consumer: str = "x", *, patient: bool = False) -> None:
        entry = Entry(0, 1, 0, 0, 0, seq=seq)
        effect = Deliver(self.group, self.consumers[consumer], entry, 1, patient)
        if self.outbox.put(effect):
            self.left.append(seq)

    def stored(self, claimed: int = 0) -> None:
        self.lane.claimed = max(self.lane.claimed, claimed)
        self.left += [effect.entry.seq for effect in self.outbox.stored()]


def test_a_delivery_leaves_when_its_group_is_stored() -> None:
    sender = Sender()
    sender.put(1)
    sender.outbox.seal()
    sender.put(2)
    assert sender.left == []
    sender.stored()
    assert sender.left == [1]
    sender.outbox.seal()
    sender.stored()
    assert sender.left == [1, 2]


def test_a_claimed_delivery_leaves_at_once() -> None:
    sender = Sender()
    sender.stored(claimed=10)
    sender.put(1)
    assert sender.left == [1]


def test_a_claimed_delivery_waits_behind_an_earlier_one_to_the_same_consumer() -> None:
    sender = Sender()
    sender.stored(claimed=10)
    sender.put(3, patient=True)
    sender.put(4)
    sender.put(5, "y")
    assert sender.left == [5]
    sender.outbox.seal()
    sender.stored()
    assert sender.left == [5, 3, 4]
    sender.put(6)
    assert sender.left == [5, 3, 4, 6]


def test_what_a_stored_group_claims_leaves_with_it() -> None:
    sender = Sender()
    sender.outbox.seal()
    for seq in (1, 2, 3):
        sender.put(seq)
    sender.stored(claimed=3)
    assert sender.left == [1, 2]
    sender.outbox.seal()
    sender.stored()
    assert sender.left == [1, 2, 3]


def test_what_a_stored_group_claims_stays_behind_what_it_does_not() -> None:
    sender = Sender()
    sender.outbox.seal()
    sender.put(1, patient=True)
    sender.put(2)
    sender.put(3, "y")
    sender.stored(claimed=10)
    assert sender.left == [3]
    sender.outbox.seal()
    sender.stored()
    assert sender.left == [3, 1, 2]
