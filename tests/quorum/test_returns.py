"""How messages come back: what counts, the delivery limit, delays and deferral."""

from __future__ import annotations

import pytest

from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import effects as e
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.policy import RETRY_ALL, RETRY_FAILED, RETRY_RETURNED
from queuelake.engine.quorum.settling import ANNOTATIONS_BYTES_MAX
from tests.quorum.driven import C1, C2, START_MS, Driven, P


@pytest.mark.rule("section 6")
@pytest.mark.parametrize(
    ("command", "failures"),
    [
        (c.Return(1, [0]), 0),
        (c.Modify(1, [0]), 0),
        (c.Requeue(1, 0, 10), 0),
        (c.Cancel(C1, "t", remove=True), 0),
        (c.PurgeNodes(["n1"]), 0),
        (c.Modify(1, [0], delivery_failed=True), 1),
        (c.Down(C1), 1),
    ],
)
def test_a_hand_out_counts_and_only_a_failure_counts_as_one(
    command: c.Command, failures: int
) -> None:
    queue = Driven()
    queue.checkout()
    queue.enqueue("n2/p")
    queue.checkout(C2)
    queue.apply(command)
    (delivery,) = queue.found(e.Deliver)[0].deliveries
    assert (delivery.acquired, delivery.failures) == (2, failures)


@pytest.mark.rule("Q19")
def test_a_limit_of_2_allows_three_deliveries() -> None:
    queue = Driven(delivery_limit=2, dead_letter_target="dead")
    key = queue.checkout()
    index = queue.enqueue()
    for number in range(2):
        queue.fail(key, number)
        assert queue.delivered() == [(key, number + 1, index)]
    queue.fail(key, 2)
    assert queue.dead() == [(index, "delivery_limit")]
    assert queue.queue.total == 0


@pytest.mark.rule("Q19")
def test_explicit_returns_and_an_absent_limit_never_end_a_message() -> None:
    queue = Driven(delivery_limit=0)
    key = queue.checkout()
    index = queue.enqueue()
    for number in range(30):
        queue.give(key, number)
    assert queue.held(key) == {30: index}
    queue.configure(delivery_limit=-1)
    for number in range(30, 60):
        queue.fail(key, number)
    assert queue.held(key) == {60: index}


@pytest.mark.rule("Q19")
def test_the_default_limit_is_20() -> None:
    queue = Driven()
    key = queue.checkout()
    queue.enqueue()
    for number in range(20):
        queue.fail(key, number)
    assert len(queue.held(key)) == 1
    queue.fail(key, 20)
    assert queue.queue.total == 0


@pytest.mark.rule("Q21")
def test_a_returned_message_keeps_neither_priority_nor_position() -> None:
    queue = Driven()
    low = queue.enqueue(priority=0)
    key = queue.checkout(prefetch=1)
    high = queue.enqueue(priority=31)
    queue.apply(c.Cancel(C1, "t"))
    queue.give(key, 0)
    assert queue.ready() == [low, high]


@pytest.mark.rule("Q22")
@pytest.mark.parametrize(
    ("kind", "returned", "failed"),
    [(RETRY_ALL, True, True), (RETRY_FAILED, False, True), (RETRY_RETURNED, True, False), (0,) * 3],
)
def test_which_returns_are_delayed(kind: int, returned: bool, failed: bool) -> None:
    queue = Driven(delayed_retry=kind)
    key = queue.checkout(prefetch=2)
    first, second = queue.enqueue(), queue.enqueue()
    queue.apply(c.Cancel(C1, "t"))
    queue.give(key, 0)
    queue.fail(key, 1)
    waiting = [first] * returned + [second] * failed
    assert sorted(queue.queue.delayed) == waiting
    queue.later(1_000)
    assert sorted(queue.ready()) == [first, second]


@pytest.mark.rule("Q22")
def test_the_delay_grows_with_the_failures_up_to_its_limit() -> None:
    queue = Driven(delayed_retry=RETRY_ALL, delayed_retry_min_ms=100, delayed_retry_max_ms=250)
    key = queue.checkout()
    index = queue.enqueue()
    queue.give(key, 0)
    for number, delay_ms in enumerate([100, 100, 200, 250, 250]):
        (due_ms,) = queue.queue.delays.due_ms.values()
        assert due_ms == queue.now_ms + delay_ms
        queue.later(delay_ms - 1)
        assert queue.held(key) == {}
        queue.later(1)
        assert queue.held(key) == {number + 1: index}
        queue.fail(key, number + 1)


@pytest.mark.rule("Q22")
def test_a_consumer_may_say_when_it_is_to_come_again() -> None:
    queue = Driven()
    key = queue.checkout()
    index = queue.enqueue()
    when = {c.DELIVERY_TIME: str(START_MS + 7_000), "why": "busy"}
    queue.apply(c.Modify(key, [0], annotations=when))
    queue.later(6_999)
    assert queue.held(key) == {}
    queue.later(1)
    assert queue.held(key) == {1: index}
    assert queue.found(e.Deliver)[0].deliveries[0].annotations == {"why": "busy"}


@pytest.mark.rule("Q22")
@pytest.mark.parametrize("when", [str(START_MS), "0", "-1", "soon", "1" * 16, "²"])
def test_a_moment_which_is_none_or_past_is_now(when: str) -> None:
    queue = Driven()
    key = queue.checkout()
    queue.enqueue()
    queue.apply(c.Modify(key, [0], annotations={c.DELIVERY_TIME: when}))
    assert list(queue.held(key)) == [1]


def test_a_new_message_may_wait_for_its_time_and_is_served_then() -> None:
    queue = Driven()
    key = queue.checkout(prefetch=9)
    late = queue.enqueue(due_ms=queue.now_ms + 5_000)
    soon = queue.enqueue(due_ms=queue.now_ms + 1_000)
    now = queue.enqueue(due_ms=queue.now_ms)
    assert list(queue.held(key).values()) == [now]
    queue.later(1_000)
    assert list(queue.held(key).values()) == [now, soon]
    queue.later(4_000)
    assert list(queue.held(key).values()) == [now, soon, late]


def test_a_new_message_which_waits_is_not_parked_behind_a_gap() -> None:
    queue = Driven()
    reply = queue.apply(c.Enqueue(P, 2, 10, due_ms=queue.now_ms + 5_000))
    assert reply.code == r.NOT_ENQUEUED  # it is sent again when the gap is filled
    queue.enqueue()
    queue.enqueue(due_ms=queue.now_ms + 5_000)
    assert len(queue.queue.delayed) == 1


@pytest.mark.rule("Q22")
def test_deferred_messages_are_fetched_by_their_token() -> None:
    queue = Driven()
    key = queue.checkout(prefetch=3)
    first, second, third = (queue.enqueue() for _ in range(3))
    queue.apply(c.Modify(key, [0, 2], annotations={c.DEFERRAL_TOKEN: "a"}))
    queue.later(10_000_000)
    queue.apply(c.Cancel(C1, "t", remove=True))
    assert queue.ready() == [second]
    other = queue.checkout(C2, prefetch=0, credited=True)
    assert queue.apply(c.AssignDeferred(99, ["a"])).code == r.NOT_FOUND
    assert counted(queue.apply(c.AssignDeferred(other, ["a"]))) == 0  # it has no credit
    queue.apply(c.Dequeue("n1/x", "x", settled=True))
    queue.apply(c.Credit(other, 1, 0))
    assert counted(queue.apply(c.AssignDeferred(other, ["b", "a"]))) == 1
    queue.apply(c.Credit(other, 1, 1))
    assert counted(queue.apply(c.AssignDeferred(other, ["a"]))) == 1
    assert queue.held(other) == {0: first, 1: third}
    assert queue.queue.tokens == {}


@pytest.mark.rule("Q22")
def test_a_deferred_message_with_a_moment_comes_then_if_nobody_asked() -> None:
    queue = Driven()
    key = queue.checkout()
    index = queue.enqueue()
    notes = {c.DEFERRAL_TOKEN: "a", c.DELIVERY_TIME: str(START_MS + 500)}
    queue.apply(c.Modify(key, [0], annotations=notes))
    queue.later(500)
    assert queue.held(key) == {1: index}
    assert queue.queue.tokens == {}


@pytest.mark.rule("Q22", "Q25")
def test_a_deferred_message_which_has_expired_is_not_assigned() -> None:
    queue = Driven(dead_letter_target="dead")
    key = queue.checkout()
    index = queue.enqueue(ttl_ms=100)
    queue.apply(c.Modify(key, [0], annotations={c.DEFERRAL_TOKEN: "a"}))
    queue.later(100)
    assert counted(queue.apply(c.AssignDeferred(key, ["a"]))) == 0
    assert queue.dead() == [(index, "expired")]


@pytest.mark.rule("section 2", "Q22")
def test_delayed_messages_can_be_made_due_the_next_ones_first() -> None:
    queue = Driven()
    key = queue.checkout(prefetch=3)
    first, second, third = (queue.enqueue() for _ in range(3))
    queue.apply(c.Cancel(C1, "t"))
    queue.apply(c.Modify(key, [0], annotations={c.DEFERRAL_TOKEN: "a"}))
    for number, delay_ms in ((1, 9_000), (2, 5_000)):
        when = {c.DELIVERY_TIME: str(START_MS + delay_ms)}
        queue.apply(c.Modify(key, [number], annotations=when))
    assert counted(queue.apply(c.DelayedRetry(1))) == 1
    assert queue.ready() == [third]
    assert counted(queue.apply(c.DelayedRetry(9))) == 2
    assert queue.ready() == [third, second, first]


@pytest.mark.rule("section 2")
def test_a_note_which_is_too_long_is_refused() -> None:
    queue = Driven()
    key = queue.checkout()
    queue.enqueue()
    notes = {"note": "x" * (ANNOTATIONS_BYTES_MAX - 4)}
    assert queue.apply(c.Modify(key, [0], annotations=notes)).code == r.ACCEPTED
    notes["y"] = "z"
    assert queue.apply(c.Modify(key, [1], annotations=notes)).code == r.TOO_LARGE
    assert list(queue.held(key)) == [1]


@pytest.mark.rule("section 2")
def test_a_requeued_message_is_at_its_new_place_in_the_log() -> None:
    queue = Driven()
    key = queue.checkout()
    old = queue.enqueue()
    queue.apply(c.Requeue(key, 0, 12))
    assert queue.held(key) == {1: queue.index}
    assert [one.indexes for one in queue.found(e.Release)] == [[old]]
    assert queue.apply(c.Requeue(key, 0, 12)).code == r.NOT_FOUND
    assert queue.queue.held_bytes == 12


def counted(reply: r.Reply) -> int:
    assert isinstance(reply, r.Counted)
    return reply.count
