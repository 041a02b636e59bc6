"""A message queue: who gets what, what comes back, what is overwritten, what has no room."""

from __future__ import annotations

import pytest

from queuelake.engine import commands as c
from queuelake.engine.effects import Deliver
from queuelake.engine.machine import Meta
from queuelake.engine.message import Entry
from queuelake.engine.policy.settings import (
    LEAST_INFLIGHT,
    RANDOM,
    ROUND_ROBIN,
    STICKY_KEY,
    UNLIMITED,
)
from queuelake.engine.state import NOT_FOUND, NOT_HELD, TOO_LARGE
from tests.unit.engine_message_queue import DrivenMessageQueue

DAY_MS = 86_400_000


def test_what_came_before_the_first_consumer_waits_for_it() -> None:
    queue = DrivenMessageQueue()
    queue.publish_many(3)
    assert queue.machine.depth() == 3
    queue.join("x")
    assert queue.given() == [("x", 1), ("x", 2), ("x", 3)]
    for seq in (1, 2, 3):
        assert queue.ack(seq) == 0
    assert queue.machine.depth() == 0
    assert queue.machine.bytes == 0


def test_a_consumer_holds_at_most_its_number_and_another_gets_the_rest() -> None:
    queue = DrivenMessageQueue(prefetch=2)
    queue.publish_many(5)
    queue.join("x", "y")
    given = queue.given()
    assert sorted(seq for _, seq in given) == [1, 2, 3, 4]
    assert sorted(who for who, _ in given) == ["x", "x", "y", "y"]
    queue.ack(given[0][1], given[0][0])
    assert queue.given() == [(given[0][0], 5)]


def test_messages_beyond_the_window_are_loaded() -> None:
    queue = DrivenMessageQueue(window_max=2, prefetch=1000)
    queue.publish_many(300)
    queue.join("x")
    assert [seq for _, seq in queue.given()] == list(range(1, 301))
    assert queue.loads


# Rejected, lost, put back


@pytest.mark.parametrize("strategy", [RANDOM, ROUND_ROBIN, LEAST_INFLIGHT, STICKY_KEY])
def test_m20_a_rejected_message_goes_to_another_at_once(strategy: int) -> None:
    queue = DrivenMessageQueue(strategy=strategy)
    queue.join("x", "y")
    for _ in range(20):
        queue.publish(key=7)
        ((who, seq),) = queue.given()
        assert queue.reject(seq, who) == 0
        ((other, again),) = queue.given()
        assert again == seq
        assert other != who
        queue.ack(seq, other)


def test_m20_the_only_consumer_gets_a_rejected_message_again_after_a_while() -> None:
    queue = DrivenMessageQueue(redispatch_ms=100)
    queue.join("x")
    queue.publish()
    queue.dispatch()
    queue.reject(1)
    queue.after(99)
    assert queue.given() == []
    assert queue.machine.is_waiting()
    queue.after(1)
    assert queue.given() == [("x", 1)]


def test_m20_a_rejected_message_waits_a_while_for_another_who_is_full() -> None:
    queue = DrivenMessageQueue(redispatch_ms=100, prefetch=1, strategy=ROUND_ROBIN)
    queue.join("x", "y")
    queue.publish_many(3)
    assert queue.given() == [("x", 1), ("y", 2)]
    queue.reject(1, "x")
    assert queue.given() == [("x", 3)], "it stops nobody else"
    queue.ack(3, "x")
    assert queue.given() == []
    assert queue.machine.is_waiting()
    queue.after(100)
    assert queue.given() == [("x", 1)]


@pytest.mark.parametrize("strategy", [RANDOM, STICKY_KEY])
def test_m20_when_the_others_leave_the_rejecter_gets_it_after_a_while(strategy: int) -> None:
    queue = DrivenMessageQueue(redispatch_ms=100, strategy=strategy)
    queue.join("x")
    queue.publish()
    queue.dispatch()
    queue.join("y")
    queue.reject(1, "x")
    queue.leave("y")
    assert queue.given() == []
    assert queue.machine.is_waiting()
    queue.after(100)
    assert queue.given() == [("x", 1)]


def test_m20_the_rejecter_is_not_asked_when_the_strategy_changes() -> None:
    queue = DrivenMessageQueue(strategy=STICKY_KEY, prefetch=1)
    queue.join("x", "y")
    for _ in range(2):
        queue.publish(key=7)
    ((who, _),) = queue.given()
    other = "y" if who == "x" else "x"
    for key in range(20):
        queue.publish(key)
    assert [one for one, _ in queue.given()] == [other]
    queue.reject(1, who)
    queue.dispatch()  # it waits for the other
    queue.configure(strategy=ROUND_ROBIN)
    held = {one.consumer.name: seq for seq, one in queue.lane.held.items()}
    queue.ack(held[who], who)
    assert [seq for _, seq in queue.given()] != [1]
    queue.ack(held[other], other)
    assert queue.given() == [(other, 1)]


def test_a_message_rejected_too_often_is_a_dead_letter() -> None:
    queue = DrivenMessageQueue(retries_max=2, redispatch_ms=0)
    queue.join("x")
    queue.publish()
    for attempt in (1, 2, 3):
        assert [one.attempt for one in queue.dispatch()] == [attempt]
        queue.reject(1)
        queue.after(1)
    assert [(one.entry.seq, one.reason) for one in queue.dead] == [(1, "max_retries")]
    assert queue.machine.bytes == 100
    queue.bury()
    assert queue.machine.depth() == 0
    assert queue.machine.bytes == 0


def test_without_dead_letters_it_is_gone() -> None:
    queue = DrivenMessageQueue(retries_max=0, dlq_enabled=False, is_last_value=True)
    queue.join("x")
    queue.publish(key=5)
    queue.dispatch()
    queue.reject(1)
    assert queue.dead == []
    assert queue.machine.bytes == 0
    assert queue.index == {}


def test_m21_what_a_consumer_had_goes_to_others_at_once_and_in_order() -> None:
    queue = DrivenMessageQueue(retries_max=0, prefetch=5)
    queue.join("x")
    queue.publish_many(3)
    queue.dispatch()
    for _ in range(4):
        queue.leave("x")
        queue.join("x")
        assert [(one.seq, one.attempt) for one in queue.dispatch()] == [(1, 1), (2, 1), (3, 1)]
    queue.leave("x")
    queue.join("y")
    assert queue.given() == [("y", 1), ("y", 2), ("y", 3)]
    assert queue.machine.counters.nacked == 0


def test_a_message_put_back_may_go_to_the_same_consumer() -> None:
    queue = DrivenMessageQueue(retries_max=0)
    queue.join("x")
    queue.publish()
    queue.dispatch()
    queue.nack(1)
    assert queue.given() == [("x", 1)]
    queue.nack(1, delay_ms=50)
    assert queue.given() == []
    queue.after(50)
    assert queue.given() == [("x", 1)]


def test_m22_nobody_is_hurried_without_a_timeout() -> None:
    queue = DrivenMessageQueue()
    queue.join("x", "y")
    queue.publish()
    ((who, _),) = queue.given()
    queue.after(DAY_MS)
    assert queue.given() == []
    assert queue.ack(1, who) == 0


def test_m22_with_a_timeout_another_consumer_gets_it() -> None:
    queue = DrivenMessageQueue(delivery_timeout_ms=1000)
    queue.join("x", "y")
    queue.publish()
    ((who, _),) = queue.given()
    queue.after(999)
    assert queue.given() == []
    queue.after(1)
    ((other, _),) = queue.given()
    assert other != who
    assert queue.ack(1, who) == NOT_HELD
    assert queue.machine.counters.timed_out == 1


# Last values


def test_m9_a_value_takes_the_place_of_the_last_one_of_its_key_at_the_tail() -> None:
    queue = DrivenMessageQueue(is_last_value=True)
    for key in (1, 2, 1, 3, 1):
        queue.publish(key)
    assert queue.live() == [2, 4, 5]
    assert queue.machine.bytes == 300
    assert queue.machine.counters.overwritten == 2
    queue.join("x")
    assert queue.given() == [("x", 2), ("x", 4), ("x", 5)]


def test_an_overwrite_says_what_left() -> None:
    queue = DrivenMessageQueue(is_last_value=True)
    queue.publish(key=7)
    entry = Entry(0, 10, 7, queue.now_ms, 0)
    queue.apply(c.Enqueue(entry, replaces=1))
    assert queue.machine.freed == [(7, 1)]


def test_m23_what_is_in_hand_stays_there_when_it_is_overwritten() -> None:
    queue = DrivenMessageQueue(is_last_value=True, prefetch=2)
    queue.join("x")
    queue.publish(key=7)
    assert queue.given() == [("x", 1)]
    queue.publish(key=7)
    assert queue.live() == [2]
    assert queue.given() == [("x", 2)]
    queue.publish(key=8)
    assert queue.given() == [], "what it has in hand counts"
    assert queue.ack(1) == 0
    assert queue.given() == [("x", 3)]
    assert queue.live() == [2, 3]


@pytest.mark.parametrize("outcome", [c.ACK, c.NACK, c.REJECT])
def test_m23_an_overwritten_value_never_comes_back(outcome: int) -> None:
    queue = DrivenMessageQueue(is_last_value=True, retries_max=0)
    queue.join("x", "y")
    queue.publish(key=7)
    ((who, _),) = queue.given()
    queue.publish(key=7)
    ((_, newer),) = queue.given()
    assert newer == 2
    assert queue.settle(outcome, 1, who) == 0
    queue.after(1000)
    assert queue.given() == []
    assert queue.dead == []


def test_m23_an_overwritten_value_does_not_come_back_when_its_consumer_is_lost() -> None:
    queue = DrivenMessageQueue(is_last_value=True)
    queue.join("x")
    queue.publish(key=7)
    queue.dispatch()
    queue.publish(key=7)
    queue.leave("x")
    queue.join("y")
    assert queue.given() == [("y", 2)]


def test_an_overwritten_value_leaves_whatever_line_it_is_in() -> None:
    for outcome, delay_ms in ((c.NACK, 0), (c.NACK, 500), (c.REJECT, 0)):
        queue = DrivenMessageQueue(is_last_value=True)
        queue.join("x")
        queue.publish(key=7)
        queue.dispatch()
        queue.settle(outcome, 1, "x", delay_ms=delay_ms)
        queue.publish(key=7)
        queue.after(1000)
        assert queue.given() == [("x", 2)]


def test_a_value_which_was_acknowledged_is_not_overwritten() -> None:
    queue = DrivenMessageQueue(is_last_value=True)
    queue.join("x")
    queue.publish(key=7)
    queue.dispatch()
    queue.ack(1)
    queue.apply(c.Enqueue(Entry(0, 10, 7, queue.now_ms, 0), replaces=1))
    assert queue.machine.counters.overwritten == 0
    assert queue.machine.bytes == 10


def test_a_value_the_machine_has_forgotten_is_overwritten_by_its_size() -> None:
    queue = DrivenMessageQueue(is_last_value=True, window_max=2)
    for key in range(1, 21):
        queue.publish(key, size=key)
    assert 1 not in queue.machine.partitions[0].window
    queue.publish(1, size=5)
    assert queue.machine.bytes == queue.live_bytes()


# Limits and age


def test_m26_the_oldest_leave_when_there_are_too_many() -> None:
    queue = DrivenMessageQueue(count_max=3, window_max=2)
    queue.publish_many(30)
    assert queue.live() == [28, 29, 30]
    assert queue.machine.counters.dropped == 27
    assert queue.machine.bytes == 300


def test_m26_the_oldest_leave_until_the_bytes_fit() -> None:
    queue = DrivenMessageQueue(bytes_max=1000)
    for size in (300, 300, 300, 50):
        queue.publish(size=size)
    assert queue.live() == [1, 2, 3, 4]
    queue.publish(size=700)
    assert queue.live() == [4, 5]
    assert queue.machine.bytes == 750
    assert queue.publish(size=1001) == TOO_LARGE
    assert queue.live() == [4, 5]


def test_m26_what_is_in_hand_leaves_too_and_is_settled_without_harm() -> None:
    queue = DrivenMessageQueue(count_max=2)
    queue.join("x")
    queue.publish_many(2)
    queue.dispatch()
    queue.publish()
    assert queue.live() == [2, 3]
    assert queue.ack(1) == 0
    queue.leave("x")
    queue.join("y")
    assert queue.given() == [("y", 2), ("y", 3)]


def test_m30_smaller_limits_act_on_what_is_there() -> None:
    queue = DrivenMessageQueue(window_max=2)
    queue.publish_many(500)
    queue.configure(count_max=10)
    queue.after(1)
    assert queue.live() == list(range(491, 501))
    assert queue.machine.bytes == 1000


def test_m28_what_is_too_old_is_never_handed_out() -> None:
    queue = DrivenMessageQueue(retention_age_ms=1000, is_last_value=True)
    queue.publish(key=1)
    queue.now_ms += 500
    queue.publish(key=2)
    queue.now_ms += 500
    queue.join("x")
    assert queue.given() == [("x", 2)]
    assert queue.machine.counters.expired == 1
    assert queue.take_freed() == [(1, 1)]
    queue.now_ms += 500
    queue.leave("x")
    queue.join("y")
    assert queue.given() == []
    assert queue.machine.bytes == 0


def test_m28_what_is_too_old_leaves_without_a_consumer() -> None:
    queue = DrivenMessageQueue(retention_age_ms=1000, window_max=2)
    queue.publish_many(300)
    queue.now_ms += 500
    queue.publish_many(3)
    queue.after(500)
    assert queue.live() == [301, 302, 303]
    assert queue.machine.counters.expired == 300
    loads = len(queue.loads)
    queue.after(1)
    queue.after(1)
    assert len(queue.loads) <= loads + 1, "the oldest is looked at once"


def test_m30_a_shorter_age_acts_on_what_is_there() -> None:
    queue = DrivenMessageQueue(retention_age_ms=DAY_MS)
    queue.publish_many(2)
    queue.after(1000)
    assert queue.live() == [1, 2]
    queue.configure(retention_age_ms=1000)
    queue.after(0)
    assert queue.live() == []


def test_one_large_message_takes_the_place_of_many_the_machine_has_forgotten() -> None:
    queue = DrivenMessageQueue(bytes_max=2000, window_max=2)
    queue.publish_many(20)
    queue.publish(size=1500)
    assert queue.live() == [16, 17, 18, 19, 20, 21]
    assert queue.machine.bytes == 2000


@pytest.mark.parametrize("strategy", [ROUND_ROBIN, STICKY_KEY])
def test_a_queue_forgets_everything_up_to_a_sequence(strategy: int) -> None:
    queue = DrivenMessageQueue(prefetch=2, strategy=strategy)
    queue.join("x", "y")
    for key in range(12):
        queue.publish(key)
    given = queue.given()
    lost, kept = given[0], given[-1]
    queue.reject(lost[1], lost[0])
    queue.apply(c.Truncate(0, 8, size=100 * sum(seq <= 8 for seq in queue.live())))
    assert queue.live() == [9, 10, 11, 12]
    assert queue.machine.bytes == 400
    assert queue.ack(kept[1], kept[0]) == 0
    queue.apply(c.Truncate(0, 99))
    assert queue.machine.bytes == 0
    assert queue.given() == []


def test_a_purge_leaves_what_is_in_hand() -> None:
    queue = DrivenMessageQueue(prefetch=2, is_last_value=True)
    queue.join("x")
    for key in (1, 2, 3, 4):
        queue.publish(key)
    queue.dispatch()
    queue.publish(1)
    queue.apply(c.Purge())
    assert queue.machine.purged == 3
    assert queue.live() == [2]
    assert queue.machine.bytes == 100
    assert queue.ack(1) == 0
    assert queue.ack(2) == 0
    assert queue.machine.bytes == 0


def test_one_message_is_removed() -> None:
    queue = DrivenMessageQueue()
    queue.publish_many(3)
    assert queue.apply(c.Remove(0, 2)) == 0
    assert queue.apply(c.Remove(0, 2)) == NOT_FOUND
    assert queue.live() == [1, 3]
    assert queue.machine.bytes == 200


def test_entries_found_to_be_too_old_leave() -> None:
    queue = DrivenMessageQueue(retention_age_ms=1000, window_max=2)
    queue.publish_many(20)
    queue.now_ms += 1000
    queue.apply(c.Expire([queue.stored[3], queue.stored[4]]))
    assert queue.live() == [1, 2, *range(5, 21)]
    assert queue.machine.bytes == 1800


# Settings


def test_m30_settings_act_while_consumers_are_attached() -> None:
    queue = DrivenMessageQueue(prefetch=1)
    queue.join("x")
    queue.publish_many(5)
    assert len(queue.given()) == 1
    queue.configure(prefetch=3, delivery_timeout_ms=1000)
    assert len(queue.given()) == 2
    queue.after(1000)
    assert queue.machine.counters.timed_out == 3


def test_an_answer_for_another_group_or_an_unknown_message_is_not_found() -> None:
    queue = DrivenMessageQueue()
    queue.join("x")
    queue.publish()
    queue.dispatch()
    assert queue.apply(c.Settle("g", "x", 0, 1, c.ACK)) == NOT_FOUND
    assert queue.apply(c.Settle("", "x", 1, 1, c.ACK)) == NOT_FOUND
    assert queue.apply(c.Join("g", "x", 0)) == NOT_FOUND
    assert queue.ack(99) == NOT_FOUND
    assert queue.ack(1, "y") == NOT_HELD
    assert queue.machine.policy.retries_max == UNLIMITED


# What may leave before a commit


def test_only_what_the_store_knows_of_leaves_before_a_commit() -> None:
    queue = DrivenMessageQueue(prefetch=10)
    queue.join("x")
    queue.publish_many(30)
    queue.dispatch()
    for seq in range(1, 11):
        queue.ack(seq)
    queue.lane.claimed = queue.lane.claim(queue.machine.partitions[0].last, is_consumed=True)
    queue.publish()
    effects = queue.machine.apply(Meta(0, queue.now_ms), c.Dispatch())
    delivered = [one for one in effects if isinstance(one, Deliver)]
    assert [one.entry.seq for one in delivered] == list(range(11, 21))
    assert all(one.is_claimed() for one in delivered)
    queue.nack(11)
    (again,) = queue.machine.apply(Meta(0, queue.now_ms), c.Dispatch())
    assert isinstance(again, Deliver)
    assert not again.is_claimed(), "what came back waits for its own commit"


def test_few_messages_wait_for_the_commit_when_consumers_have_half_of_theirs() -> None:
    queue = DrivenMessageQueue(prefetch=4)
    queue.join("x", "y")
    queue.publish_many(8)
    assert len(queue.dispatch(in_bulk=True)) == 8
    queue.publish_many(2)
    for seq, held in list(queue.lane.held.items())[:2]:
        queue.ack(seq, held.consumer.name)
    assert queue.dispatch(in_bulk=True) == []
    assert len(queue.dispatch()) == 2
