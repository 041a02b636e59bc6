"""Priorities: strict, 32 levels, where messages have no order (D22)."""

from __future__ import annotations

from queuelake.engine.policy.settings import NONE, PARTITION
from tests.simulation.queue_store import Store, changes_of, rebuild
from tests.unit.engine_queue import DrivenQueue


def levels(queue: DrivenQueue) -> list[int]:
    """The priorities of what is handed out."""
    return [queue.stored[(one.partition, one.seq)].priority for one in queue.dispatch()]


def test_the_highest_priority_goes_first_and_each_level_in_order() -> None:
    queue = DrivenQueue(ordering=NONE, prefetch=100)
    queue.join()
    for priority in (0, 4, 31, 9, 4, 31, 3):
        queue.publish(priority=priority)
        queue.now_ms += 1
    assert queue.sequences() == [3, 6, 4, 2, 5, 7, 1]


def test_priorities_go_before_a_deep_backlog() -> None:
    queue = DrivenQueue(window_max=8, ordering=NONE, prefetch=2)
    queue.join()
    queue.publish_many(300)
    queue.publish(priority=0)
    queue.publish(priority=9)
    assert queue.sequences() == [302, 1]


def test_a_new_group_finds_the_priorities_of_a_deep_backlog() -> None:
    queue = DrivenQueue(window_max=8, ordering=NONE, prefetch=3)
    queue.publish_many(300)
    queue.publish(priority=9)
    queue.publish_many(300)
    queue.publish(priority=10)
    queue.join()
    assert queue.sequences() == [602, 301, 1]


def test_a_group_read_back_from_the_store_finds_them_too() -> None:
    queue = DrivenQueue(window_max=8, ordering=NONE, prefetch=2)
    queue.join()
    queue.leave()
    queue.publish_many(100)
    queue.publish(priority=9)
    store = Store()
    store.commit(changes_of(queue.machine, list(queue.stored.values()), []))
    queue.machine = rebuild(store, queue.machine.policy, queue.now_ms)
    queue.join()
    assert queue.sequences() == [101, 1]


def test_low_priorities_wait_for_everything_else_in_every_partition() -> None:
    queue = DrivenQueue(partitions=3, ordering=NONE, prefetch=1000)
    queue.join()
    queue.publish(partition=0, priority=1)
    for partition in (0, 1, 2) * 20:
        queue.publish(partition=partition)
    assert levels(queue) == [4] * 60 + [1]


def test_a_priority_which_comes_later_still_goes_first() -> None:
    queue = DrivenQueue(ordering=NONE, prefetch=1)
    queue.join()
    queue.publish_many(3)
    assert queue.sequences() == [1]
    queue.publish(priority=5)
    queue.ack(1)
    assert queue.sequences() == [4]


def test_returned_messages_go_before_every_priority() -> None:
    queue = DrivenQueue(ordering=NONE, prefetch=1)
    queue.join()
    queue.publish(priority=0)
    assert queue.sequences() == [1]
    queue.publish(priority=31)
    queue.nack(1)
    assert queue.sequences() == [1]


def test_priorities_are_off_where_messages_have_an_order() -> None:
    queue = DrivenQueue(ordering=PARTITION, prefetch=100)
    queue.join()
    for priority in (0, 31, 4, 9):
        queue.publish(priority=priority)
    assert queue.sequences() == [1, 2, 3, 4]


def test_priorities_cost_no_memory_once_they_are_settled() -> None:
    queue = DrivenQueue(ordering=NONE, prefetch=100)
    queue.join()
    for _ in range(3):
        for _ in range(50):
            queue.publish(priority=9)
        for seq in queue.sequences():
            queue.ack(seq)
    group = queue.machine.groups["g"]
    lane = group.lanes[0]
    assert (len(lane.ahead), len(lane.unseen), len(lane.tallies), len(group.ranked)) == (0, 0, 0, 0)


def test_a_key_in_hand_holds_back_its_priorities_and_no_others() -> None:
    queue = DrivenQueue(ordering=NONE, prefetch=100, key_inflight=1)
    queue.join()
    queue.publish(key=1)
    queue.dispatch()
    queue.publish(key=1, priority=31)
    queue.publish(key=2, priority=30)
    assert queue.sequences() == [3]
    queue.ack(1)
    assert queue.sequences() == [2]
