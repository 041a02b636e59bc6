"""Which messages a group sees, and how long it is known (section 1, D2)."""

from __future__ import annotations

from queuelake.engine import commands as c
from queuelake.engine.state import NOT_FOUND
from tests.unit.engine_queue import DrivenQueue, policy_with

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def test_a_queue_without_a_group_keeps_its_messages() -> None:
    queue = DrivenQueue()
    queue.publish_many(3)
    queue.after(DAY_MS)
    queue.join()
    assert queue.sequences() == [1, 2, 3]


def test_a_new_group_starts_at_the_oldest_message_still_stored() -> None:
    queue = DrivenQueue(prefetch=1)
    queue.join(group="a")
    queue.publish_many(3)
    queue.dispatch()
    queue.ack(1, group="a")
    queue.join(group="b", prefetch=10)
    assert [one.seq for one in queue.dispatch() if one.group == "b"] == [2, 3]


def test_a_new_group_does_not_see_what_every_other_has_settled_out_of_order() -> None:
    queue = DrivenQueue()
    for group in "ab":
        queue.join(group=group)
    queue.publish_many(4)
    queue.dispatch()
    for seq in (2, 3):
        queue.ack(seq, group="a")
    for seq in (3, 4):
        queue.ack(seq, group="b")
    queue.join(group="c")
    assert [one.seq for one in queue.dispatch() if one.group == "c"] == [1, 2, 4]


def test_a_group_may_start_at_what_comes_next() -> None:
    queue = DrivenQueue()
    queue.publish_many(3)
    queue.join(starts=[c.FROM_LATEST])
    assert queue.machine.partitions[0].stored() == 0
    queue.publish()
    assert queue.sequences() == [4]


def test_a_known_group_goes_on_whatever_start_is_asked() -> None:
    queue = DrivenQueue()
    queue.join()
    queue.publish_many(2)
    queue.leave()
    queue.join(starts=[c.FROM_LATEST])
    assert queue.sequences() == [1, 2]


def test_a_group_keeps_its_messages_while_nobody_is_there() -> None:
    queue = DrivenQueue()
    queue.join()
    queue.leave()
    queue.publish_many(2)
    queue.join(group="other")
    queue.dispatch()
    for seq in (1, 2):
        queue.ack(seq, group="other")
    queue.join()
    assert queue.sequences() == [1, 2]


# Forgotten


def test_a_group_without_consumers_expires() -> None:
    queue = DrivenQueue()
    queue.join()
    queue.leave()
    queue.after(7 * DAY_MS - 1)
    assert "g" in queue.machine.groups
    queue.after(1)
    assert queue.gone_groups == ["g"]
    assert not queue.machine.groups


def test_a_group_named_after_a_client_expires_after_an_hour() -> None:
    queue = DrivenQueue()
    queue.join(derived=True)
    queue.leave()
    queue.after(HOUR_MS - 1)
    assert queue.gone_groups == []
    queue.after(1)
    assert queue.gone_groups == ["g"]


def test_a_group_named_after_a_client_expires_even_where_others_never_do() -> None:
    queue = DrivenQueue(group_expiry_ms=0)
    queue.join(group="named")
    queue.join(group="derived", derived=True)
    queue.leave(group="named")
    queue.leave(group="derived")
    queue.after(100 * DAY_MS)
    assert queue.gone_groups == ["derived"]


def test_a_shorter_expiry_holds_for_groups_named_after_a_client_too() -> None:
    queue = DrivenQueue(group_expiry_ms=1000)
    queue.join(derived=True)
    queue.leave()
    queue.after(1000)
    assert queue.gone_groups == ["g"]


def test_a_group_with_a_consumer_never_expires() -> None:
    queue = DrivenQueue()
    queue.join()
    queue.after(100 * DAY_MS)
    assert queue.gone_groups == []


def test_leaving_a_group_nobody_is_in_does_not_make_it_younger() -> None:
    queue = DrivenQueue()
    queue.join()
    queue.leave(gone=False)
    queue.after(6 * DAY_MS)
    queue.leave(gone=True)
    queue.after(DAY_MS)
    assert queue.gone_groups == ["g"]


def test_what_only_a_forgotten_group_needed_is_deleted() -> None:
    queue = DrivenQueue()
    queue.join(group="a")
    queue.join(group="b")
    queue.publish_many(2)
    queue.dispatch()
    queue.ack(1, group="a")
    assert queue.apply(c.ForgetGroup("b")) == 0
    assert queue.machine.partitions[0].stored() == 1
    assert queue.machine.depth() == 1


def test_what_the_last_group_has_settled_stays_deleted_when_it_is_forgotten() -> None:
    queue = DrivenQueue()
    queue.join()
    queue.publish_many(3)
    queue.dispatch()
    queue.ack(2)
    queue.apply(c.ForgetGroup("g"))
    assert queue.machine.depth() == 2
    queue.join(group="next")
    assert queue.sequences() == [1, 3]


def test_an_unknown_group_cannot_be_forgotten() -> None:
    assert DrivenQueue().apply(c.ForgetGroup("g")) == NOT_FOUND


# Patterns


def test_a_group_with_a_pattern_sees_only_what_matches() -> None:
    queue = DrivenQueue()
    queue.join(group="g@eu/+", pattern=b"eu/+")
    queue.join(group="all")
    for rest in (b"eu/de", b"us/ny", b"eu/fr", b"eu"):
        queue.publish(rest=rest)
    seen = queue.dispatch()
    assert [one.seq for one in seen if one.group == "g@eu/+"] == [1, 3]
    assert [one.seq for one in seen if one.group == "all"] == [1, 2, 3, 4]


def test_what_no_pattern_matches_is_deleted() -> None:
    queue = DrivenQueue()
    queue.join(group="g@eu/+", pattern=b"eu/+")
    for _ in range(3):
        queue.publish(rest=b"us/ny")
    queue.dispatch()
    assert queue.machine.depth() == 0
    assert queue.machine.partitions[0].gone.upto == 3


# New settings


def test_new_partitions_are_shared_out_at_once() -> None:
    queue = DrivenQueue(partitions=1)
    queue.join("x")
    queue.join("y")
    queue.publish()
    assert queue.apply(c.Configure(policy_with(partitions=4))) == 0
    for partition in range(1, 4):
        queue.publish(partition=partition)
    owners = {one.partition: one.consumer for one in queue.dispatch()}
    assert owners == {0: "x", 1: "x", 2: "y", 3: "y"}


def test_a_new_delivery_timeout_holds_for_what_is_out() -> None:
    queue = DrivenQueue()
    queue.join()
    queue.publish()
    queue.dispatch()
    queue.apply(c.Configure(policy_with(delivery_timeout_ms=1000)))
    queue.after(1000)
    assert not queue.machine.groups["g"].lanes[0].held
