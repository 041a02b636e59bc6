"""What is stored and what is refused: limits, repeated messages, numbered publishers."""

from __future__ import annotations

from queuelake.engine import commands as c
from queuelake.engine.message import Entry
from queuelake.engine.publishers import PARKED_MAX, PublisherSession
from queuelake.engine.snapshot import restore, snapshot
from queuelake.engine.state import DUPLICATE, FULL, OUT_OF_ORDER, PUBLISHERS_MAX, TOO_LARGE
from tests.unit.engine_queue import DrivenQueue

# Limits


def test_a_message_over_the_size_limit_is_refused() -> None:
    queue = DrivenQueue(message_bytes_max=100)
    assert queue.publish(size=100) == 0
    assert queue.publish(size=101) == TOO_LARGE


def test_a_full_queue_refuses_until_a_message_is_settled() -> None:
    queue = DrivenQueue(depth_max=2)
    queue.join()
    queue.publish_many(2)
    assert queue.publish() == FULL
    queue.dispatch()
    assert queue.publish() == FULL
    queue.ack(1)
    assert queue.publish() == 0


def test_the_group_furthest_behind_decides_whether_there_is_room() -> None:
    queue = DrivenQueue(depth_max=1)
    queue.join(group="a")
    queue.join(group="b")
    queue.publish()
    queue.dispatch()
    queue.ack(1, group="a")
    assert queue.publish() == FULL
    queue.ack(1, group="b")
    assert queue.publish() == 0


def test_a_queue_nobody_reads_has_its_limit_too() -> None:
    queue = DrivenQueue(depth_max=2)
    queue.publish_many(2)
    assert queue.publish() == FULL


def test_messages_which_are_not_due_yet_count() -> None:
    queue = DrivenQueue(depth_max=1)
    assert queue.apply(c.Accept(10, b"")) == 0
    assert queue.publish() == FULL
    assert queue.apply(c.Accept(10, b"")) == FULL


def test_what_was_accepted_is_never_refused_when_it_is_due() -> None:
    queue = DrivenQueue(depth_max=1)
    queue.apply(c.Accept(10, b""))
    queue.machine.policy.message_bytes_max = 5
    assert queue.apply(c.Enqueue(new_entry(10), cause=c.DUE)) == 0
    assert (queue.machine.delayed, queue.machine.depth()) == (0, 1)
    assert queue.apply(c.Enqueue(new_entry(10), cause=c.ACCEPTED)) == 0


def new_entry(size: int) -> Entry:
    return Entry(0, size, 0, 1_000_000, 0)


# Dropping the oldest


def test_the_oldest_message_makes_room() -> None:
    queue = DrivenQueue(depth_max=3, drop_head=True)
    queue.publish_many(5)
    queue.join()
    assert queue.sequences() == [3, 4, 5]
    assert queue.machine.counters.dropped == 2


def test_the_oldest_of_all_partitions_makes_room() -> None:
    queue = DrivenQueue(partitions=2, depth_max=2, drop_head=True)
    for partition in (1, 0, 0):
        queue.publish(partition=partition)
        queue.now_ms += 1
    queue.join()
    assert [(one.partition, one.seq) for one in queue.dispatch()] == [(0, 1), (0, 2)]


def test_what_somebody_holds_is_not_dropped() -> None:
    queue = DrivenQueue(depth_max=3, drop_head=True, prefetch=2)
    queue.join()
    queue.publish_many(3)
    assert queue.sequences() == [1, 2]
    assert queue.publish() == 0
    queue.ack(1)
    queue.ack(2)
    assert queue.sequences() == [4]


def test_what_was_held_and_came_back_is_the_oldest_again() -> None:
    queue = DrivenQueue(depth_max=3, drop_head=True, prefetch=2)
    queue.join()
    queue.publish_many(3)
    assert queue.sequences() == [1, 2]
    queue.publish()  # drops 3
    queue.nack(1, delay_ms=1000)
    queue.publish()  # drops 1
    queue.ack(2)
    assert queue.sequences() == [4, 5]


def test_a_queue_whose_messages_are_all_held_refuses() -> None:
    queue = DrivenQueue(depth_max=2, drop_head=True)
    queue.join()
    queue.publish_many(2)
    queue.dispatch()
    before = snapshot(queue.machine)
    assert queue.publish() == FULL
    assert snapshot(queue.machine) == before


def test_a_drop_makes_room_in_every_group_which_has_none() -> None:
    queue = DrivenQueue(depth_max=2, drop_head=True, prefetch=1)
    queue.join(group="a")
    queue.publish_many(2)
    queue.dispatch()
    queue.ack(1, group="a")
    queue.join(group="b")
    queue.publish()
    for _ in range(5):
        assert queue.publish() == 0
        assert queue.machine.depth() <= 2


def test_the_same_oldest_message_of_two_groups_is_dropped_once() -> None:
    queue = DrivenQueue(depth_max=9, drop_head=True)
    for group in "ab":
        queue.join(group=group)
    queue.publish_many(5)
    queue.machine.policy.depth_max = 2
    assert queue.publish(publisher="p", number=2) == OUT_OF_ORDER
    assert queue.publish(publisher="p", number=1) == 0
    assert queue.machine.counters.dropped == 2


def test_a_head_which_is_not_in_memory_is_loaded_to_be_dropped() -> None:
    queue = DrivenQueue(window_max=2, depth_max=10, drop_head=True)
    queue.publish_many(12)
    assert queue.loads
    queue.join()
    assert queue.sequences() == list(range(3, 13))


# The same again, by its id


def test_a_repeated_id_is_acknowledged_and_not_stored() -> None:
    queue = DrivenQueue()
    assert queue.publish(dedupe=b"id") == 0
    assert queue.publish(dedupe=b"id") == DUPLICATE
    assert queue.publish(dedupe=b"other") == 0
    assert queue.machine.depth() == 2


def test_an_id_is_forgotten_when_its_window_ends() -> None:
    queue = DrivenQueue(dedupe_window_ms=1000)
    queue.publish(dedupe=b"id")
    queue.now_ms += 999
    assert queue.publish(dedupe=b"id") == DUPLICATE
    queue.now_ms += 1
    assert queue.publish(dedupe=b"id") == 0


def test_a_repeated_id_is_known_after_its_message_is_gone() -> None:
    queue = DrivenQueue()
    queue.join()
    queue.publish(dedupe=b"id")
    queue.dispatch()
    queue.ack(1)
    assert queue.publish(dedupe=b"id") == DUPLICATE


def test_without_a_window_nothing_is_a_repetition() -> None:
    queue = DrivenQueue(dedupe_window_ms=0)
    assert queue.publish(dedupe=b"id") == 0
    assert queue.publish(dedupe=b"id") == 0


def test_a_refused_message_does_not_use_up_its_id() -> None:
    queue = DrivenQueue(depth_max=1)
    queue.join()
    queue.publish()
    assert queue.publish(dedupe=b"id") == FULL
    queue.dispatch()
    queue.ack(1)
    assert queue.publish(dedupe=b"id") == 0


def test_an_accepted_message_uses_up_its_id() -> None:
    queue = DrivenQueue()
    assert queue.apply(c.Accept(10, b"id")) == 0
    assert queue.publish(dedupe=b"id") == DUPLICATE


# The same again, by its number


def test_a_number_which_was_stored_is_not_stored_again() -> None:
    queue = DrivenQueue()
    assert queue.publish(publisher="p", number=1) == 0
    assert queue.publish(publisher="p", number=2) == 0
    assert queue.publish(publisher="p", number=1) == DUPLICATE
    assert queue.publish(publisher="p", number=2) == DUPLICATE
    assert queue.machine.depth() == 2


def test_publishers_number_their_messages_each_for_itself() -> None:
    queue = DrivenQueue()
    assert queue.publish(publisher="p", number=1) == 0
    assert queue.publish(publisher="q", number=1) == 0


def test_of_too_many_publishers_the_longest_silent_is_forgotten() -> None:
    queue = DrivenQueue()
    for name in ("silent", "busy"):
        assert queue.publish(publisher=name, number=1) == 0
    for number in range(PUBLISHERS_MAX - 2):
        queue.machine.remember(str(number), PublisherSession())
    assert queue.publish(publisher="busy", number=2) == 0
    assert queue.publish(publisher="one more", number=1) == 0
    assert len(queue.machine.publishers) == PUBLISHERS_MAX
    assert queue.publish(publisher="busy", number=2) == DUPLICATE
    assert queue.publish(publisher="silent", number=1) == 0


def test_a_number_which_comes_too_early_is_parked_until_the_gap_is_filled() -> None:
    queue = DrivenQueue()
    queue.join()
    assert queue.publish(key=3, publisher="p", number=3) == OUT_OF_ORDER
    assert queue.publish(key=2, publisher="p", number=2) == OUT_OF_ORDER
    assert queue.machine.depth() == 0
    assert queue.publish(key=1, publisher="p", number=1) == 0
    assert queue.sequences() == [1, 2, 3]
    assert [queue.stored[(0, seq)].key for seq in (1, 2, 3)] == [1, 2, 3]
    assert queue.publish(publisher="p", number=4) == 0


def test_a_parked_message_which_comes_again_is_not_confirmed_before_it_is_stored() -> None:
    queue = DrivenQueue()
    assert queue.publish(publisher="p", number=2) == OUT_OF_ORDER
    assert queue.publish(publisher="p", number=2) == OUT_OF_ORDER
    queue.publish(publisher="p", number=1)
    assert queue.publish(publisher="p", number=2) == DUPLICATE
    assert queue.machine.depth() == 2


def test_more_than_the_limit_is_not_parked() -> None:
    queue = DrivenQueue()
    for number in range(2, PARKED_MAX + 2):
        assert queue.publish(publisher="p", number=number) == OUT_OF_ORDER
    before = snapshot(queue.machine)
    assert queue.publish(publisher="p", number=PARKED_MAX + 2) == OUT_OF_ORDER
    assert snapshot(queue.machine) == before
    assert queue.publish(publisher="p", number=1) == 0
    assert queue.machine.depth() == PARKED_MAX + 1


def test_a_parked_message_for_which_there_is_no_room_has_to_come_again() -> None:
    queue = DrivenQueue(depth_max=1)
    queue.join()
    assert queue.publish(publisher="p", number=2) == OUT_OF_ORDER
    assert queue.publish(publisher="p", number=1) == 0
    queue.dispatch()
    queue.ack(1)
    assert queue.publish(publisher="p", number=2) == 0


def test_a_number_with_a_repeated_id_leaves_no_gap() -> None:
    queue = DrivenQueue()
    queue.publish(dedupe=b"id")
    assert queue.publish(dedupe=b"id", publisher="p", number=1) == DUPLICATE
    assert queue.publish(publisher="p", number=2) == 0


def test_a_refused_number_may_come_again() -> None:
    queue = DrivenQueue(depth_max=1)
    queue.join()
    queue.publish()
    assert queue.publish(publisher="p", number=1) == FULL
    queue.dispatch()
    queue.ack(1)
    assert queue.publish(publisher="p", number=1) == 0


def test_parked_messages_are_part_of_a_snapshot() -> None:
    queue = DrivenQueue()
    queue.publish(publisher="p", number=2)
    queue.machine = restore(snapshot(queue.machine))
    assert queue.publish(publisher="p", number=1) == 0
    assert queue.machine.depth() == 2
