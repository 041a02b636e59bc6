"""What becomes of a delivery: answers, returns, dead letters (sections 5 and 6)."""

from __future__ import annotations

import pytest

from queuelake.engine import commands as c
from queuelake.engine.policy.settings import UNLIMITED
from queuelake.engine.state import NOT_FOUND, NOT_HELD
from tests.unit.engine_queue import DrivenQueue


def delivered(count: int = 1, **settings: int) -> DrivenQueue:
    """A queue whose consumer x holds everything."""
    queue = DrivenQueue(**settings)
    queue.join()
    queue.publish_many(count)
    assert len(queue.dispatch()) == count
    return queue


def test_an_acknowledged_message_is_deleted() -> None:
    queue = delivered()
    assert queue.ack(1) == 0
    assert queue.machine.depth() == 0
    assert queue.machine.partitions[0].stored() == 0


def test_an_acknowledgement_may_be_repeated_by_anyone() -> None:
    queue = delivered()
    queue.ack(1)
    assert queue.ack(1) == 0
    assert queue.ack(1, "y") == 0


@pytest.mark.parametrize("outcome", [c.NACK, c.REJECT])
def test_what_is_settled_cannot_be_settled_otherwise(outcome: int) -> None:
    queue = delivered()
    queue.ack(1)
    assert queue.settle(outcome, 1) == NOT_FOUND


@pytest.mark.parametrize("outcome", [c.ACK, c.NACK, c.REJECT])
def test_an_unknown_message_is_not_found(outcome: int) -> None:
    queue = delivered()
    assert queue.settle(outcome, 0) == NOT_FOUND
    assert queue.settle(outcome, 2) == NOT_FOUND
    assert queue.settle(outcome, 1, partition=5) == NOT_FOUND
    assert queue.settle(outcome, 1, group="nobody") == NOT_FOUND


@pytest.mark.parametrize("outcome", [c.ACK, c.NACK, c.REJECT])
def test_only_the_holder_may_settle(outcome: int) -> None:
    queue = delivered()
    assert queue.settle(outcome, 1, "y") == NOT_HELD
    queue.nack(1, delay_ms=1000)
    assert queue.settle(outcome, 1) == NOT_HELD


def test_a_refused_message_comes_again_at_once_with_its_count() -> None:
    queue = delivered()
    assert queue.nack(1) == 0
    assert [one.attempt for one in queue.dispatch()] == [2]


def test_a_refused_message_comes_again_after_the_delay_it_was_given() -> None:
    queue = delivered()
    queue.nack(1, delay_ms=700)
    queue.after(699)
    assert queue.dispatch() == []
    queue.after(1)
    assert [one.attempt for one in queue.dispatch()] == [2]


def test_a_delivery_times_out_and_comes_again_after_the_backoff() -> None:
    queue = delivered()
    queue.after(29_999)
    assert queue.dispatch() == []
    queue.after(1)
    assert queue.dispatch() == []
    queue.after(4_999)
    assert queue.dispatch() == []
    queue.after(1)
    assert [one.attempt for one in queue.dispatch()] == [2]
    queue.after(30_000)
    queue.after(9_999)
    assert queue.dispatch() == []
    queue.after(1)
    assert [one.attempt for one in queue.dispatch()] == [3]


def test_who_times_out_may_not_settle_any_more() -> None:
    queue = delivered()
    queue.after(30_000)
    assert queue.ack(1) == NOT_HELD


def test_a_disconnect_returns_everything_at_once_with_one_more_on_the_count() -> None:
    queue = delivered(3)
    queue.leave()
    queue.join()
    assert [(one.seq, one.attempt) for one in queue.dispatch()] == [(1, 2), (2, 2), (3, 2)]


# Dead letters


def test_a_rejected_message_is_a_dead_letter_with_the_words_of_the_consumer() -> None:
    queue = delivered()
    assert queue.reject(1, reason="not a picture") == 0
    (dead,) = queue.dead
    assert (dead.reason, dead.words, dead.attempts) == ("rejected", "not a picture", 1)
    assert (dead.group, dead.entry.seq, dead.first_ms) == ("g", 1, queue.now_ms)


def test_a_dead_letter_is_kept_until_its_copy_is_stored() -> None:
    queue = delivered()
    queue.reject(1)
    assert queue.machine.depth() == 1
    assert queue.dispatch() == []
    queue.bury()
    assert queue.machine.depth() == 0


def test_a_copy_which_is_stored_twice_settles_once() -> None:
    queue = delivered(2)
    queue.reject(1)
    queue.bury()
    assert queue.settle(c.BURIED, 1, "") == 0
    assert queue.settle(c.BURIED, 2, "") == NOT_HELD  # in hand, not dead
    assert queue.machine.depth() == 1


def test_after_its_last_retry_a_message_is_a_dead_letter() -> None:
    queue = delivered(retries_max=2)
    for attempt in (1, 2):
        queue.nack(1)
        assert [one.attempt for one in queue.dispatch()] == [attempt + 1]
    queue.nack(1)
    assert queue.dispatch() == []
    assert [(dead.reason, dead.attempts) for dead in queue.dead] == [("max_retries", 3)]


def test_timeouts_and_disconnects_count_as_retries() -> None:
    queue = delivered(retries_max=2)
    queue.after(30_000)
    queue.after(5_000)
    assert len(queue.dispatch()) == 1
    queue.leave()
    queue.join()
    assert len(queue.dispatch()) == 1
    queue.leave()
    assert [dead.reason for dead in queue.dead] == ["max_retries"]


def test_without_retries_the_first_failure_is_the_last() -> None:
    queue = delivered(retries_max=0)
    queue.nack(1)
    assert [dead.reason for dead in queue.dead] == ["max_retries"]


def test_a_message_which_is_tried_for_too_long_is_a_dead_letter() -> None:
    queue = delivered(total_timeout_ms=10_000, delivery_timeout_ms=60_000)
    first_ms = queue.now_ms
    queue.after(10_000)
    queue.nack(1)
    assert queue.dead == []
    queue.dispatch()
    queue.after(1)
    queue.nack(1)
    assert [(dead.reason, dead.first_ms) for dead in queue.dead] == [("timeout", first_ms)]


def test_without_dead_letters_the_message_is_deleted_and_counted() -> None:
    queue = delivered(dlq_enabled=False)
    queue.reject(1)
    assert queue.dead == []
    assert queue.machine.depth() == 0
    assert queue.machine.counters.dead == {"rejected": 1}


def test_a_dead_letter_queue_retries_without_end_and_has_no_dead_letters_of_its_own() -> None:
    queue = delivered(is_dead_letter_queue=True, retries_max=UNLIMITED, total_timeout_ms=0)
    for attempt in range(2, 40):
        queue.nack(1)
        assert [one.attempt for one in queue.dispatch()] == [attempt]
    queue.reject(1)
    assert queue.dead == []
    assert queue.machine.depth() == 0


def test_a_dead_letter_unblocks_its_key() -> None:
    queue = DrivenQueue(key_inflight=1, retries_max=1)
    queue.join()
    queue.publish_many(2, key=5)
    queue.dispatch()
    queue.nack(1)
    queue.dispatch()
    queue.nack(1)
    assert queue.sequences() == [2]


# Each group for itself


def test_a_message_is_deleted_when_every_group_has_settled_it() -> None:
    queue = DrivenQueue()
    queue.join(group="a")
    queue.join(group="b")
    queue.publish()
    assert {one.group for one in queue.dispatch()} == {"a", "b"}
    queue.ack(1, group="a")
    assert queue.machine.depth() == 1
    assert queue.machine.partitions[0].stored() == 1
    queue.ack(1, group="b")
    assert queue.machine.depth() == 0
    assert queue.machine.partitions[0].stored() == 0


def test_a_stuck_message_keeps_what_others_settled_behind_it_settled() -> None:
    queue = delivered(5, prefetch=10)
    for seq in (5, 3, 2, 4):
        queue.ack(seq)
    assert queue.machine.depth() == 1
    queue.leave()
    queue.join()
    assert queue.sequences() == [1]
    queue.ack(1)
    assert queue.machine.partitions[0].gone.upto == 5
