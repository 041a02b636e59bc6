"""In which order messages are handed out, and what has to wait (D12, D13)."""

from __future__ import annotations

import pytest

from queuelake.engine import commands as c
from queuelake.engine.policy.settings import (
    BLOCKS_KEY,
    BLOCKS_NOTHING,
    BLOCKS_PARTITION,
    NONE,
    PARTITION,
    STRICT,
)
from tests.unit.engine_queue import DrivenQueue

A, B = 7, 8  # keys


@pytest.mark.parametrize("ordering", [NONE, PARTITION, STRICT])
def test_one_consumer_gets_a_partition_in_order(ordering: int) -> None:
    queue = DrivenQueue(ordering=ordering)
    queue.join()
    queue.publish_many(5)
    assert queue.sequences() == [1, 2, 3, 4, 5]


def test_without_order_the_consumers_of_a_group_take_turns() -> None:
    queue = DrivenQueue(ordering=NONE)
    queue.join("x")
    queue.join("y")
    queue.publish_many(4)
    assert [delivery.consumer for delivery in queue.dispatch()] == ["x", "y", "x", "y"]


def test_a_batch_goes_to_one_consumer() -> None:
    queue = DrivenQueue(ordering=NONE, batch_size=2)
    queue.join("x")
    queue.join("y")
    queue.publish_many(4)
    assert [delivery.consumer for delivery in queue.dispatch()] == ["x", "x", "y", "y"]


def test_with_order_a_partition_belongs_to_one_consumer() -> None:
    queue = DrivenQueue(partitions=2)
    queue.join("x")
    queue.join("y")
    for partition in (0, 1, 0, 1):
        queue.publish(partition=partition)
    owners = {delivery.partition: delivery.consumer for delivery in queue.dispatch()}
    assert owners == {0: "x", 1: "y"}


def test_the_partitions_of_one_consumer_take_turns() -> None:
    queue = DrivenQueue(partitions=2, prefetch=4)
    queue.join()
    for partition in (0, 0, 0, 0, 1, 1):
        queue.publish(partition=partition)
    assert [delivery.partition for delivery in queue.dispatch()] == [0, 1, 0, 1]


def test_a_consumer_never_holds_more_than_its_prefetch() -> None:
    queue = DrivenQueue(prefetch=2)
    queue.join()
    queue.publish_many(5)
    assert queue.sequences() == [1, 2]
    assert queue.sequences() == []
    queue.ack(2)
    assert queue.sequences() == [3]


def test_a_consumer_may_ask_for_a_prefetch_of_its_own() -> None:
    queue = DrivenQueue(prefetch=2)
    queue.join(prefetch=3)
    queue.publish_many(5)
    assert queue.sequences() == [1, 2, 3]


def test_without_order_messages_return_in_the_order_in_which_they_came_back() -> None:
    queue = DrivenQueue(partitions=3, ordering=NONE)
    queue.join()
    for partition in (0, 1, 2, 0):
        queue.publish(partition=partition)
    queue.dispatch()
    came_back = [(1, 1), (2, 1), (0, 2), (0, 1)]
    for partition, seq in came_back:
        queue.settle(c.NACK, seq, partition=partition)
    assert [(one.partition, one.seq) for one in queue.dispatch()] == came_back


# A message which waits for its retry


def waiting_first(retry_blocks: int) -> DrivenQueue:
    """Message 1 of key A waits for its retry; 2 of A and 3 of B were never out."""
    queue = DrivenQueue(retry_blocks=retry_blocks, prefetch=1)
    queue.join()
    for key in (A, A, B):
        queue.publish(key)
    assert queue.sequences() == [1]
    queue.nack(1, delay_ms=1000)
    return queue


def test_a_retry_blocks_its_partition() -> None:
    queue = waiting_first(BLOCKS_PARTITION)
    assert queue.sequences() == []
    queue.after(1000)
    assert queue.sequences() == [1]


def test_a_retry_blocks_its_key_only() -> None:
    queue = waiting_first(BLOCKS_KEY)
    assert queue.sequences() == [3]
    queue.ack(3)
    assert queue.sequences() == []
    queue.after(1000)
    assert queue.sequences() == [1]
    queue.ack(1)
    assert queue.sequences() == [2]


def test_a_retry_blocks_nothing() -> None:
    queue = waiting_first(BLOCKS_NOTHING)
    assert queue.sequences() == [2]


def test_messages_without_a_key_do_not_wait_for_each_other() -> None:
    queue = DrivenQueue(prefetch=1)
    queue.join()
    queue.publish_many(2)
    assert queue.sequences() == [1]
    queue.nack(1, delay_ms=1000)
    assert queue.sequences() == [2]


def test_what_returns_goes_out_before_what_is_new() -> None:
    queue = DrivenQueue(prefetch=3)
    queue.join()
    queue.publish_many(5)
    assert queue.sequences() == [1, 2, 3]
    queue.nack(2)
    queue.nack(1)
    assert queue.sequences() == [1, 2]


def test_a_returned_message_waits_behind_an_earlier_one_of_its_key() -> None:
    queue = DrivenQueue(prefetch=2)
    queue.join()
    queue.publish_many(2, key=A)
    assert queue.sequences() == [1, 2]
    queue.nack(1, delay_ms=1000)
    queue.nack(2)
    assert queue.sequences() == []
    queue.after(1000)
    assert queue.sequences() == [1, 2]


def test_a_returned_message_steps_back_when_an_earlier_one_of_its_key_waits() -> None:
    queue = DrivenQueue(prefetch=2)
    queue.join()
    queue.publish_many(2, key=A)
    assert queue.sequences() == [1, 2]
    queue.nack(2)
    queue.nack(1, delay_ms=1000)
    assert queue.sequences() == []
    queue.after(1000)
    assert queue.sequences() == [1, 2]


# Messages of one key at a time


def test_one_message_of_a_key_is_out_at_a_time() -> None:
    queue = DrivenQueue(key_inflight=1)
    queue.join()
    for key in (A, A, B, 0, 0):
        queue.publish(key)
    assert queue.sequences() == [1, 3, 4, 5]
    queue.ack(1)
    assert queue.sequences() == [2]


def test_two_messages_of_a_key_are_out_at_a_time() -> None:
    queue = DrivenQueue(key_inflight=2)
    queue.join()
    queue.publish_many(4, key=A)
    assert queue.sequences() == [1, 2]
    queue.ack(2)
    assert queue.sequences() == [3]


def test_one_at_a_time_keeps_the_exact_order_through_retries() -> None:
    queue = DrivenQueue(key_inflight=1)
    queue.join()
    queue.publish_many(3, key=A)
    order: list[int] = []
    for number in range(9):
        (seq,) = queue.sequences()
        order.append(seq)
        if number % 3 == 2:
            queue.ack(seq)
        else:
            queue.nack(seq, delay_ms=500 * (number % 2))
            queue.after(500)
    assert order == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_a_long_line_of_one_key_needs_no_step_for_each_who_waits() -> None:
    queue = DrivenQueue(window_max=4096, key_inflight=1)
    queue.join()
    queue.publish_many(300, key=A)
    for seq in range(1, 301):
        assert queue.sequences() == [seq]
        lane = queue.machine.groups["g"].lanes[0]
        assert len(lane.ready) <= 1 + 16 + 2 * len(lane.aside)
        queue.ack(seq)


# Rebalance


def test_a_new_owner_gets_nothing_before_the_old_one_has_settled() -> None:
    queue = DrivenQueue(partitions=2)
    queue.join("b")
    for partition in (0, 0, 1):
        queue.publish(partition=partition)
    assert len(queue.dispatch()) == 3
    queue.join("a")  # partition 0 is its own now
    queue.publish(partition=0)
    assert queue.dispatch() == []
    assert queue.ack(1, "b") == 0
    assert queue.dispatch() == []
    assert queue.ack(2, "b") == 0
    assert [(one.consumer, one.seq) for one in queue.dispatch()] == [("a", 3)]


def test_a_new_owner_waits_no_longer_than_the_delivery_timeout() -> None:
    queue = DrivenQueue(partitions=2)
    queue.join("b")
    queue.publish(partition=0)
    queue.dispatch()
    queue.join("a")
    queue.after(30_000)
    queue.after(5_000)
    assert [(one.consumer, one.attempt) for one in queue.dispatch()] == [("a", 2)]


def test_what_a_dead_consumer_held_goes_to_the_new_owner_in_order() -> None:
    queue = DrivenQueue(partitions=1)
    queue.join("a")
    queue.join("b")
    queue.publish_many(4, key=A)
    assert {one.consumer for one in queue.dispatch()} == {"a"}
    queue.ack(2, "a")
    queue.leave("a")
    queue.publish(A)
    found = [(one.consumer, one.seq, one.attempt) for one in queue.dispatch()]
    assert found == [("b", 1, 2), ("b", 3, 2), ("b", 4, 2), ("b", 5, 1)]


def test_who_leaves_without_dying_may_still_settle() -> None:
    queue = DrivenQueue()
    queue.join("a")
    queue.publish_many(2)
    queue.dispatch()
    queue.leave("a", gone=False)
    queue.join("b")
    assert queue.dispatch() == []
    assert queue.ack(1, "a") == 0
    assert queue.nack(2, "a") == 0
    assert [(one.consumer, one.seq, one.attempt) for one in queue.dispatch()] == [("b", 2, 2)]


def test_who_comes_back_still_has_what_it_held() -> None:
    queue = DrivenQueue(prefetch=2)
    queue.join()
    queue.publish_many(3)
    queue.dispatch()
    queue.leave(gone=False)
    queue.join()
    assert queue.dispatch() == []
    assert queue.ack(1) == 0
    assert queue.sequences() == [3]


def test_a_surplus_consumer_is_idle_until_another_leaves() -> None:
    queue = DrivenQueue()
    queue.join("a")
    queue.join("b")
    queue.publish()
    queue.leave("a")
    assert [one.consumer for one in queue.dispatch()] == ["b"]


# Entries which are not in memory


def test_a_deep_backlog_is_read_back_in_order() -> None:
    queue = DrivenQueue(window_max=10, prefetch=1000)
    queue.publish_many(500)
    queue.join()
    assert queue.sequences() == list(range(1, 501))
    assert [first for _, first in queue.loads] == [1, 101, 201, 301, 401]


def test_more_entries_than_the_window_takes_do_not_push_out_the_one_asked_for() -> None:
    queue = DrivenQueue(window_max=2)
    queue.publish_many(20)
    queue.join()
    assert queue.sequences() == list(range(1, 11))
    assert queue.loads == [(0, 1)]
