"""One active consumer: who it is, who is next, and how they change over."""

from __future__ import annotations

import pytest

from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import effects as e
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.activating import waiting_line
from tests.quorum.driven import C1, C2, C3, Driven


def active(queue: Driven) -> int:
    found = queue.queue.active
    return found.key if found is not None else 0


def told(queue: Driven) -> list[tuple[int, bool]]:
    return [(one.key, one.active) for one in queue.found(e.ConsumerStatus)]


def single(**settings: object) -> Driven:
    return Driven(single_active_consumer=True, **settings)


@pytest.mark.rule("Q31")
def test_only_the_active_consumer_gets_messages() -> None:
    queue = single()
    first = queue.checkout(C1, prefetch=2)
    assert told(queue) == [(first, True)]
    second = queue.checkout(C2, prefetch=9)
    assert told(queue) == []
    for _ in range(3):
        queue.enqueue()
    assert len(queue.held(first)) == 2
    assert queue.held(second) == {}
    assert queue.apply(c.Dequeue(C1, "x", settled=True)).code == r.SINGLE_ACTIVE


@pytest.mark.rule("Q31")
@pytest.mark.parametrize(
    "command",
    [c.Cancel(C1, "t"), c.Cancel(C1, "t", remove=True), c.Down(C1), c.Down(C1, noconnection=True)],
)
def test_when_it_goes_the_next_one_is_activated_and_told(command: c.Command) -> None:
    queue = single()
    queue.checkout(C1)
    low, high = queue.checkout(C2), queue.checkout(C3)
    queue.enqueue("n9/p")
    queue.apply(command)
    assert active(queue) == low
    assert (low, True) in told(queue)
    assert (high, True) not in told(queue)


@pytest.mark.rule("Q31")
def test_those_who_wait_are_in_order_of_presence_priority_and_patience() -> None:
    queue = single()
    queue.checkout("n9/active", priority=9)
    away = queue.checkout(C1, priority=5)
    keys = [queue.checkout(pid, priority=number) for pid, number in ((C2, 1), (C3, 3), ("x/x", 3))]
    queue.apply(c.Down(C1, noconnection=True))
    line = [one.key for one in waiting_line(queue.queue)]
    assert line == [keys[1], keys[2], keys[0], away]


@pytest.mark.rule("Q31")
def test_a_higher_priority_takes_over_at_once_when_nothing_is_out() -> None:
    queue = single()
    low = queue.checkout(C1)
    high = queue.checkout(C2, priority=1)
    assert active(queue) == high
    assert told(queue) == [(low, False), (high, True)]


@pytest.mark.rule("Q31")
def test_a_higher_priority_waits_until_the_active_one_is_drained() -> None:
    queue = single()
    low = queue.checkout(C1, prefetch=3)
    first, second = queue.enqueue(), queue.enqueue()
    high = queue.checkout(C2, priority=1, prefetch=3)
    assert queue.queue.consumers[low].status() == "quiescing"
    third = queue.enqueue()
    assert list(queue.held(low).values()) == [first, second]
    queue.settle(low, 0)
    assert active(queue) == low
    queue.settle(low, 1)
    assert active(queue) == high
    assert told(queue) == [(low, False), (high, True)]
    assert list(queue.held(high).values()) == [third]


@pytest.mark.rule("Q31")
def test_it_goes_on_when_the_one_of_higher_priority_leaves() -> None:
    queue = single()
    low = queue.checkout(C1, prefetch=3)
    queue.enqueue()
    queue.checkout(C2, priority=1)
    queue.apply(c.Cancel(C2, "t"))
    queue.enqueue()
    assert len(queue.held(low)) == 2
    assert queue.queue.consumers[low].status() == "up"


@pytest.mark.rule("Q31")
def test_one_of_equal_priority_takes_over_nothing() -> None:
    queue = single()
    first = queue.checkout(C1)
    queue.checkout(C2)
    assert active(queue) == first


@pytest.mark.rule("Q31", "Q16")
def test_who_was_away_waits_behind_the_others() -> None:
    queue = single()
    first, second = queue.checkout(C1), queue.checkout(C2)
    queue.apply(c.Down(C1, noconnection=True))
    assert active(queue) == second
    queue.apply(c.NodeUp("n1"))
    assert active(queue) == second
    queue.apply(c.Cancel(C2, "t"))
    assert active(queue) == first


@pytest.mark.rule("Q31", "Q16")
def test_nobody_is_active_while_all_are_away() -> None:
    queue = single()
    key = queue.checkout(C1)
    queue.apply(c.Down(C1, noconnection=True))
    assert active(queue) == 0
    queue.enqueue("n2/p")
    queue.apply(c.NodeUp("n1"))
    assert active(queue) == key
    assert list(queue.held(key)) == [0]


@pytest.mark.rule("Q31", "Q23")
def test_who_holds_messages_too_long_is_replaced_until_it_settles() -> None:
    queue = single(consumer_timeout_ms=1_000)
    first = queue.checkout(C1)
    queue.enqueue()
    queue.later(500)
    second = queue.checkout(C2)
    queue.later(500)
    assert active(queue) == second
    assert list(queue.held(second)) == [0]
    queue.settle(first, 0)
    assert [one.key for one in waiting_line(queue.queue)] == [first]


@pytest.mark.rule("Q31", "section 9")
def test_the_rule_can_be_changed_while_it_runs() -> None:
    queue = Driven()
    first, second = queue.checkout(C1, prefetch=2), queue.checkout(C2, prefetch=2, priority=1)
    for _ in range(3):
        queue.enqueue()
    queue.configure(single_active_consumer=True)
    assert active(queue) == second
    queue.enqueue()
    queue.settle(first, 0)
    assert queue.held(first) == {}
    queue.configure(single_active_consumer=False)
    assert list(queue.held(first)) == [1]
    assert active(queue) == 0


@pytest.mark.rule("Q31", "Q13")
def test_a_cancelled_one_which_comes_back_gets_in_line() -> None:
    queue = single()
    first = queue.checkout(C1)
    queue.enqueue()
    second = queue.checkout(C2)
    queue.apply(c.Cancel(C1, "t"))
    assert queue.checkout(C1) == first
    assert active(queue) == second
    assert queue.queue.consumers[first].status() == "waiting"
