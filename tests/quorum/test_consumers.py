"""Consumers: who gets what, how much, and that nothing is passed on twice or out of order."""

from __future__ import annotations

import pytest

from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import effects as e
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.dispatching import CHUNK_BYTES_MAX
from queuelake.engine.quorum.policy import PREFETCH_UNLIMITED
from queuelake.engine.quorum.querying import held_between, peek
from queuelake.engine.quorum.receiving import Query, Receiver
from queuelake.engine.quorum.snapshot import state_hash
from tests.quorum.driven import C1, C2, C3, Driven


def deliveries(*ids: int) -> list[e.Delivery]:
    return [e.Delivery(msg_id, 100 + msg_id, 10, 1, 0, None) for msg_id in ids]


def numbers(found: list[e.Delivery]) -> list[int]:
    return [one.msg_id for one in found]


def asked(query: Query | None) -> tuple[int, int] | None:
    return None if query is None else (query.first, query.last)


@pytest.mark.rule("Q10")
def test_deliveries_of_each_consumer_are_numbered_from_0() -> None:
    queue = Driven()
    first, second = queue.checkout(C1, prefetch=9), queue.checkout(C2, prefetch=9)
    for _ in range(4):
        queue.enqueue()
    assert queue.held(first) == {0: 3, 1: 5}
    assert queue.held(second) == {0: 4, 1: 6}


@pytest.mark.rule("Q10")
def test_a_gap_is_asked_for_before_anything_is_passed_on() -> None:
    receiver = Receiver(key=1, next_id=0)
    passed, query = receiver.receive(deliveries(0))
    assert (numbers(passed), query) == ([0], None)
    passed, query = receiver.receive(deliveries(3, 4))
    assert (numbers(passed), asked(query)) == ([], (1, 2))
    passed, more = receiver.receive(deliveries(5))
    assert (passed, more) == ([], None)  # it is asked for already
    assert query is not None
    passed, more = receiver.filled(query, deliveries(1, 2))
    assert (numbers(passed), more) == ([1, 2, 3, 4, 5], None)


@pytest.mark.rule("Q10")
def test_what_was_taken_back_meanwhile_is_skipped() -> None:
    receiver = Receiver(key=1, next_id=0)
    _, query = receiver.receive(deliveries(2, 4))
    assert query is not None
    passed, more = receiver.filled(query, deliveries(1))
    assert (numbers(passed), asked(more)) == ([1, 2], (3, 3))


@pytest.mark.rule("Q10")
def test_a_delivery_which_was_seen_is_dropped() -> None:
    receiver = Receiver(key=1, next_id=0)
    receiver.receive(deliveries(0, 1))
    assert receiver.receive(deliveries(0, 1)) == ([], None)
    assert numbers(receiver.receive(deliveries(1, 2))[0]) == [2]


@pytest.mark.rule("Q10")
def test_a_question_is_asked_again_when_its_answer_may_be_lost() -> None:
    receiver = Receiver(key=1, next_id=0)
    _, old = receiver.receive(deliveries(2))
    again = receiver.ask_again()
    assert asked(again) == (0, 1)
    assert again is not None
    assert old is not None
    assert numbers(receiver.filled(again, deliveries(0, 1))[0]) == [0, 1, 2]
    assert receiver.filled(old, deliveries(0, 1)) == ([], None)


@pytest.mark.rule("Q10")
def test_the_queue_answers_a_gap_without_a_change() -> None:
    queue = Driven()
    key = queue.checkout(prefetch=9)
    for _ in range(4):
        queue.enqueue()
    queue.settle(key, 2)
    before = state_hash(queue.queue)
    assert numbers(held_between(queue.queue, key, 1, 3)) == [1, 3]
    assert held_between(queue.queue, 99, 0, 3) == []
    assert state_hash(queue.queue) == before


@pytest.mark.rule("Q11")
def test_consumers_of_one_priority_take_turns() -> None:
    queue = Driven()
    keys = [queue.checkout(pid, prefetch=9) for pid in (C1, C2, C3)]
    got = []
    for _ in range(6):
        queue.enqueue()
        got.append(queue.delivered()[0][0])
    assert got == keys * 2


@pytest.mark.rule("Q11")
def test_a_consumer_of_higher_priority_is_served_while_it_has_credit() -> None:
    queue = Driven()
    low, high = queue.checkout(C1, prefetch=9), queue.checkout(C2, prefetch=2, priority=5)
    got = []
    for _ in range(4):
        queue.enqueue()
        got.append(queue.delivered()[0][0])
    assert got == [high, high, low, low]
    queue.settle(high, 0)
    queue.enqueue()
    assert queue.delivered()[0][0] == high


@pytest.mark.rule("Q11", "Q21")
def test_what_returned_goes_first_in_order_of_return() -> None:
    queue = Driven()
    key = queue.checkout(prefetch=3)
    first, second, third = (queue.enqueue(priority=9) for _ in range(3))
    fourth = queue.enqueue(priority=31)
    queue.apply(c.Cancel(C1, "t"))
    queue.give(key, 1)
    queue.give(key, 0, 2)
    assert queue.ready() == [second, first, third, fourth]


@pytest.mark.rule("Q12")
def test_a_prefetch_limits_what_is_held() -> None:
    queue = Driven()
    key = queue.checkout(prefetch=2)
    indexes = [queue.enqueue() for _ in range(3)]
    assert list(queue.held(key).values()) == indexes[:2]
    queue.settle(key, 0, 1)
    assert queue.held(key) == {2: indexes[2]}
    assert queue.queue.consumers[key].credit == 1


@pytest.mark.rule("Q12")
def test_a_prefetch_of_0_is_2000() -> None:
    queue = Driven()
    key = queue.checkout(prefetch=0)
    assert queue.queue.consumers[key].credit == PREFETCH_UNLIMITED == 2_000


@pytest.mark.rule("Q12")
def test_a_lower_prefetch_counts_what_is_held() -> None:
    queue = Driven()
    key = queue.checkout(prefetch=3)
    for _ in range(4):
        queue.enqueue()
    assert queue.checkout(prefetch=1) == key
    queue.settle(key, 0, 1)
    assert list(queue.held(key)) == [2]
    queue.settle(key, 2)
    assert list(queue.held(key)) == [3]


@pytest.mark.rule("Q12")
def test_a_credited_consumer_gets_what_it_asked_for() -> None:
    queue = Driven()
    key = queue.checkout(prefetch=0, credited=True)
    for _ in range(5):
        queue.enqueue()
    assert queue.held(key) == {}
    reply = queue.apply(c.Credit(key, 2, delivery_count=0))
    assert isinstance(reply, r.Credited)
    assert (reply.credit, reply.delivery_count, reply.available) == (0, 2, 3)
    queue.settle(key, 0, 1)
    assert queue.held(key) == {}
    # What it has got since it counted is no part of the new credit.
    reply = queue.apply(c.Credit(key, 3, delivery_count=1))
    assert isinstance(reply, r.Credited)
    assert reply.delivery_count == 4
    assert len(queue.held(key)) == 2


@pytest.mark.rule("Q12")
def test_a_drain_sends_what_is_there_and_voids_the_rest() -> None:
    queue = Driven()
    key = queue.checkout(prefetch=0, credited=True)
    queue.enqueue()
    reply = queue.apply(c.Credit(key, 5, delivery_count=0, drain=True))
    assert isinstance(reply, r.Credited)
    assert (reply.credit, reply.delivery_count, reply.drained) == (0, 5, 4)
    queue.enqueue()
    assert queue.delivered() == []


@pytest.mark.rule("Q12")
def test_credit_is_for_those_who_count_it() -> None:
    queue = Driven()
    key = queue.checkout()
    assert queue.apply(c.Credit(key, 5, 0)).code == r.NOT_CREDITED
    assert queue.apply(c.Credit(99, 5, 0)).code == r.NOT_FOUND


@pytest.mark.rule("Q13")
def test_a_cancelled_consumer_settles_what_it_holds_and_is_forgotten_then() -> None:
    queue = Driven()
    key = queue.checkout(prefetch=2)
    queue.enqueue()
    queue.enqueue()
    queue.apply(c.Cancel(C1, "t"))
    queue.enqueue()
    assert len(queue.held(key)) == 2
    queue.settle(key, 0)
    assert key in queue.queue.consumers
    queue.settle(key, 1)
    assert not queue.queue.consumers
    assert queue.ready() == [5]


@pytest.mark.rule("Q13")
def test_a_consumer_which_comes_back_keeps_its_key_and_its_numbers() -> None:
    queue = Driven()
    key = queue.checkout(prefetch=2)
    queue.enqueue()
    queue.apply(c.Cancel(C1, "t"))
    reply = queue.apply(c.Checkout(C1, "t", 2))
    assert isinstance(reply, r.CheckedOut)
    assert (reply.key, reply.next_id) == (key, 1)
    queue.enqueue()
    assert list(queue.held(key)) == [0, 1]


@pytest.mark.rule("Q13")
def test_a_removed_consumer_leaves_what_it_holds_uncounted() -> None:
    queue = Driven()
    queue.checkout(prefetch=2)
    index = queue.enqueue()
    queue.apply(c.Cancel(C1, "t", remove=True))
    assert queue.ready() == [index]
    assert queue.queue.lines.returns[0].failures == 0
    assert queue.apply(c.Cancel(C1, "t")).code == r.NOT_FOUND


@pytest.mark.rule("Q14")
def test_deliveries_are_sent_in_chunks() -> None:
    queue = Driven()
    for size in (CHUNK_BYTES_MAX // 2, CHUNK_BYTES_MAX // 2, 1, CHUNK_BYTES_MAX + 1, 1):
        queue.enqueue(size=size)
    queue.checkout(prefetch=9)
    chunks = [[one.index for one in found.deliveries] for found in queue.found(e.Deliver)]
    assert chunks == [[1, 2], [3], [4], [5]]


@pytest.mark.rule("section 2")
def test_one_message_can_be_taken_and_is_settled_with_that() -> None:
    queue = Driven()
    assert queue.apply(c.Dequeue(C1, "once", settled=True)).code == r.EMPTY
    queue.enqueue()
    queue.enqueue()
    reply = queue.apply(c.Dequeue(C1, "once", settled=True))
    assert isinstance(reply, r.Dequeued)
    assert (reply.delivery.index, reply.left, reply.delivery.acquired) == (2, 1, 1)
    assert not queue.queue.consumers
    assert queue.ready() == [3]


@pytest.mark.rule("section 2")
def test_one_message_can_be_taken_and_settled_later() -> None:
    queue = Driven()
    for _ in range(2):
        queue.enqueue()
    reply = queue.apply(c.Dequeue(C1, "once", settled=False))
    assert isinstance(reply, r.Dequeued)
    assert queue.apply(c.Dequeue(C1, "once", settled=False)).code == r.TAG_IN_USE
    queue.give(reply.key, reply.delivery.msg_id)
    assert not queue.queue.consumers
    assert queue.ready() == [1, 2]


@pytest.mark.rule("section 12")
def test_a_peek_shows_every_message_in_its_turn_and_changes_nothing() -> None:
    queue = Driven()
    low = queue.enqueue(priority=1)
    high = queue.enqueue(priority=9)
    back = queue.enqueue(priority=10)
    key = queue.checkout(prefetch=1)
    queue.apply(c.Cancel(C1, "t"))
    queue.give(key, 0)
    before = state_hash(queue.queue)
    seen = [peek(queue.queue, position) for position in range(5)]
    assert [one.index if one else None for one in seen] == [None, back, high, low, None]
    assert state_hash(queue.queue) == before


@pytest.mark.rule("Q20")
def test_a_delivery_tells_how_often_it_was_handed_out_and_failed() -> None:
    queue = Driven()
    key = queue.checkout()
    queue.enqueue()
    first = queue.found(e.Deliver)[0].deliveries[0]
    queue.give(key, 0)
    second = queue.found(e.Deliver)[0].deliveries[0]
    queue.fail(key, 1)
    third = queue.found(e.Deliver)[0].deliveries[0]
    assert first.properties() == [("x-acquired-count", "1")]
    assert second.properties() == [("x-acquired-count", "2")]
    assert third.properties() == [("x-acquired-count", "3"), ("x-delivery-count", "1")]


@pytest.mark.rule("section 2")
def test_a_settlement_of_what_is_not_held_changes_nothing() -> None:
    queue = Driven()
    key = queue.checkout()
    queue.enqueue()
    for command in (
        c.Settle(key, [7]),
        c.Return(key, [7]),
        c.Discard(key, [7]),
        c.Modify(key, [7]),
        c.Settle(99, [0]),
        c.Return(99, [0]),
        c.Discard(99, [0]),
        c.Modify(99, [0]),
    ):
        assert queue.apply(command).code == r.ACCEPTED
        assert queue.held(key) == {0: 2}
