"""Orders from above: purge, removal, new rules; and streams, which keep what was read."""

from __future__ import annotations

import pytest

from queuelake.engine import commands as c
from queuelake.engine.policy.settings import (
    BLOCKS_KEY,
    BLOCKS_NOTHING,
    BLOCKS_PARTITION,
    NONE,
    PARTITION,
)
from queuelake.engine.state import NOT_FOUND
from tests.unit.engine_queue import DrivenQueue, policy_with

A = 5  # a key

# Purge


def test_a_purge_drops_everything_nobody_holds() -> None:
    queue = DrivenQueue(prefetch=2)
    queue.join()
    queue.publish_many(5)
    assert queue.sequences() == [1, 2]
    queue.nack(1, delay_ms=1000)
    queue.apply(c.Purge())
    assert queue.machine.purged == 4
    queue.after(1000)
    assert queue.sequences() == []
    assert queue.ack(2) == 0
    assert queue.machine.depth() == 0
    queue.publish()
    assert queue.sequences() == [6]


def test_a_purge_of_a_queue_without_a_group_drops_everything() -> None:
    queue = DrivenQueue(partitions=2)
    for partition in (0, 1, 1):
        queue.publish(partition=partition)
    queue.apply(c.Purge())
    assert queue.machine.purged == 3
    queue.join()
    assert queue.dispatch() == []


def test_a_purge_keeps_what_is_on_its_way_to_the_dead_letters() -> None:
    queue = DrivenQueue()
    queue.join()
    queue.publish_many(2)
    queue.dispatch()
    queue.reject(2)
    queue.apply(c.Purge())
    assert queue.machine.depth() == 2
    queue.bury()
    queue.ack(1)
    assert queue.machine.depth() == 0


def test_a_purge_counts_a_message_once_however_many_groups_need_it() -> None:
    queue = DrivenQueue()
    queue.join(group="a")
    queue.join(group="b")
    queue.publish_many(3)
    queue.apply(c.Purge())
    assert queue.machine.purged == 3


# Remove


@pytest.mark.parametrize("place", ["held", "waiting", "returns", "aside", "not yet seen"])
def test_a_message_is_removed_wherever_it_is(place: str) -> None:
    queue = DrivenQueue(prefetch=1)
    queue.join()
    queue.publish_many(2, key=A)
    queue.dispatch()
    removed = 1
    if place == "waiting":
        queue.nack(1, delay_ms=1000)
    elif place == "returns":
        queue.nack(1)
    elif place == "aside":
        queue.nack(1, delay_ms=1000)
        queue.dispatch()
        removed = 2
    elif place == "not yet seen":
        removed = 2
    assert queue.apply(c.Remove(0, removed)) == 0
    assert queue.machine.depth() == 1
    left = 3 - removed
    if place != "not yet seen":
        queue.after(1000)
        assert queue.sequences() == [left]
    queue.ack(left)
    assert queue.machine.depth() == 0
    assert queue.apply(c.Remove(0, removed)) == NOT_FOUND


def test_what_every_group_has_settled_cannot_be_removed() -> None:
    queue = DrivenQueue()
    queue.join()
    queue.publish_many(2)
    queue.dispatch()
    queue.ack(2)
    assert queue.apply(c.Remove(0, 2)) == NOT_FOUND
    assert queue.apply(c.Remove(0, 3)) == NOT_FOUND
    assert queue.apply(c.Remove(0, 0)) == NOT_FOUND


def test_a_message_is_removed_from_a_queue_without_a_group() -> None:
    queue = DrivenQueue()
    queue.publish_many(3)
    assert queue.apply(c.Remove(0, 2)) == 0
    assert queue.machine.depth() == 2
    queue.join()
    assert queue.sequences() == [1, 3]


# New rules while messages are out


@pytest.mark.parametrize("key_inflight", [0, 1, 2, 3])
@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_a_new_number_in_flight_leaves_no_key_stuck(before: int, key_inflight: int) -> None:
    queue = DrivenQueue(key_inflight=before)
    queue.join()
    queue.publish_many(6, key=A)
    out = queue.sequences()
    queue.apply(c.Configure(policy_with(key_inflight=key_inflight)))
    done: list[int] = []
    while out:
        queue.ack(out[0])
        done.append(out.pop(0))
        out += queue.sequences()
        assert not key_inflight or len(out) <= max(key_inflight, before or 6)
    assert done == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("after", [BLOCKS_NOTHING, BLOCKS_KEY, BLOCKS_PARTITION])
@pytest.mark.parametrize("before", [BLOCKS_NOTHING, BLOCKS_KEY, BLOCKS_PARTITION])
def test_a_new_rule_for_retries_leaves_no_key_stuck(before: int, after: int) -> None:
    queue = DrivenQueue(retry_blocks=before)
    queue.join()
    queue.publish_many(2, key=A)
    queue.dispatch()
    queue.nack(1, delay_ms=1000)
    queue.publish(A)
    queue.dispatch()
    queue.apply(c.Configure(policy_with(retry_blocks=after)))
    queue.after(1000)
    queue.dispatch()
    assert sorted(queue.machine.groups["g"].lanes[0].held) == [1, 2, 3]


def test_priorities_which_were_switched_off_are_delivered_in_order() -> None:
    queue = DrivenQueue(ordering=NONE, prefetch=1)
    queue.join()
    for priority in (4, 4, 9, 0, 4, 31):
        queue.publish(priority=priority)
    assert queue.sequences() == [6]
    queue.apply(c.Configure(policy_with(ordering=PARTITION)))
    queue.join(prefetch=10)
    assert queue.sequences() == [1, 2, 3, 4, 5]


def test_priorities_which_were_switched_on_are_found() -> None:
    queue = DrivenQueue(window_max=2, prefetch=1)
    queue.join()
    for priority in (4, 4, 4, 4, 9, 0, 31):
        queue.publish(priority=priority)
    assert queue.sequences() == [1]
    queue.apply(c.Configure(policy_with(ordering=NONE)))
    queue.join(prefetch=10)
    assert queue.sequences() == [7, 5, 2, 3, 4, 6]


# Streams


def test_a_stream_keeps_what_was_acknowledged_for_the_next_group() -> None:
    queue = DrivenQueue(is_stream=True)
    queue.join(group="a")
    queue.publish_many(2)
    queue.dispatch()
    for seq in (1, 2):
        queue.ack(seq, group="a")
    queue.join(group="b")
    assert queue.sequences() == [1, 2]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (c.FROM_EARLIEST, [1, 2, 3, 4]),
        (c.FROM_LATEST, []),
        (c.FROM_LAST, [4]),
        (3, [3, 4]),
        (99, []),
    ],
)
def test_a_stream_is_read_from_where_one_wants(start: int, expected: list[int]) -> None:
    queue = DrivenQueue(is_stream=True)
    queue.publish_many(4)
    queue.join(starts=[start])
    assert queue.sequences() == expected


def test_each_partition_of_a_stream_may_start_elsewhere() -> None:
    queue = DrivenQueue(partitions=2, is_stream=True)
    for partition in (0, 0, 1, 1):
        queue.publish(partition=partition)
    queue.join(starts=[2, c.FROM_LATEST])
    assert [(one.partition, one.seq) for one in queue.dispatch()] == [(0, 2)]


def test_a_stream_can_be_replayed() -> None:
    queue = DrivenQueue(is_stream=True)
    queue.join()
    queue.publish_many(3)
    assert queue.sequences() == [1, 2, 3]
    queue.ack(1)
    queue.nack(2, delay_ms=1000)
    queue.join(starts=[c.FROM_EARLIEST])
    assert [(one.seq, one.attempt) for one in queue.dispatch()] == [(1, 1), (2, 1), (3, 1)]


def test_a_stream_goes_on_where_it_was_when_nobody_asks_for_a_replay() -> None:
    queue = DrivenQueue(is_stream=True)
    queue.join("x", starts=[1])
    queue.publish_many(3)
    assert queue.sequences() == [1, 2, 3]
    for seq in (1, 2):
        queue.ack(seq)
    queue.leave("x")
    queue.apply(c.Join("g", "y", 0, starts=[1]))
    assert queue.sequences() == [3]


def test_a_truncated_stream_forgets_its_oldest_messages_for_everybody() -> None:
    queue = DrivenQueue(is_stream=True, prefetch=2)
    queue.join()
    queue.publish_many(5)
    assert queue.sequences() == [1, 2]
    queue.ack(1)
    queue.apply(c.Truncate(0, 3))
    assert queue.machine.depth() == 2
    assert queue.sequences() == [4, 5]
    queue.join(group="late")
    assert [one.seq for one in queue.dispatch()] == [4, 5]


def test_a_stream_nobody_reads_is_truncated_too() -> None:
    queue = DrivenQueue(is_stream=True)
    queue.publish_many(5)
    queue.apply(c.Truncate(0, 99))
    assert queue.machine.depth() == 0


def test_messages_of_a_stream_expire_though_all_have_read_them() -> None:
    queue = DrivenQueue(is_stream=True, ttl_ms=1000)
    queue.join()
    queue.publish(ttl_ms=1000)
    queue.dispatch()
    queue.ack(1)
    queue.after(1000)
    assert queue.machine.partitions[0].stored() == 0
    assert queue.machine.counters.expired == 1
    queue.after(1000)
    assert queue.machine.counters.expired == 1


def test_an_expired_message_of_a_stream_is_there_until_its_copy_is_stored() -> None:
    queue = DrivenQueue(is_stream=True, ttl_ms=1000, expire_to_dlq=True)
    queue.join()
    queue.leave()
    queue.publish(ttl_ms=1000)
    queue.after(1000)
    assert len(queue.dead) == 1
    assert queue.machine.partitions[0].stored() == 1
    queue.bury()
    queue.after(1)
    assert queue.machine.partitions[0].stored() == 0
