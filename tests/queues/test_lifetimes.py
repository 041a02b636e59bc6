"""What passes with time: expiry without a consumer, replies, groups, ids, delays, sleep."""

from __future__ import annotations

import pytest

from queuelake.broker.queues import upkeep
from queuelake.engine.expiry import SOON_MAX
from queuelake.engine.message import Entry
from queuelake.storage import api
from queuelake.storage import queue_tables as t
from tests.harness import packets as p
from tests.queues.node import QueueNode

HOUR_S = 3600
FAR_MS = 1 << 60
IDLE_S = 35  # longer than queues.idle_unload_s


def depth(node: QueueNode, queue: str) -> int:
    """Without waking it."""
    host = node.awake(queue)
    assert host is not None, f"{queue} sleeps"
    return host.machine.depth()


def expired(node: QueueNode, queue: str) -> int:
    return node.host(queue).machine.counters.expired


# Expiry


@pytest.mark.rule("D28")
def test_short_lives_behind_a_long_one_end_without_a_consumer_after_a_restart() -> None:
    node = QueueNode()
    queue = node.make("q", partitions=1)
    node.publish(queue, "long")
    for number in range(5):
        node.publish(queue, f"{number}", expiry_s=60)
    node.publish(queue, "other")
    node.crash()
    node.after(5)
    assert depth(node, queue) == 7
    node.after(70)
    assert node.host(queue).machine.depth() == 2
    assert expired(node, queue) == 5
    assert node.drain(queue) == ["long", "other"]


@pytest.mark.rule("D28")
def test_what_expired_while_the_broker_was_down_goes_without_a_consumer() -> None:
    node = QueueNode()
    queue = node.make("q", partitions=2)
    for number in range(10):
        node.publish(queue, "long", key=f"k{number}")
        node.publish(queue, "short", key=f"k{number}", expiry_s=10)
    node.loop.now_ns += 60 * 10**9
    node.crash()
    node.after(5)
    assert depth(node, queue) == 10
    assert expired(node, queue) == 10


@pytest.mark.rule("D28")
def test_a_queue_sleeps_until_something_in_it_expires() -> None:
    node = QueueNode()
    queue = node.make("q", partitions=1)
    node.publish(queue, "long")
    node.publish(queue, "short", expiry_s=HOUR_S)
    node.after(IDLE_S)
    assert node.awake(queue) is None
    node.leap(HOUR_S - 60)
    assert node.awake(queue) is None
    node.leap(60)
    assert depth(node, queue) == 1
    assert expired(node, queue) == 1


@pytest.mark.rule("D28")
def test_a_sleeping_queue_wakes_when_its_oldest_message_has_lived_long_enough() -> None:
    node = QueueNode()
    queue = node.make("q", limits={"message_ttl": "1h"})
    for number in range(20):
        node.publish(queue, f"{number}", key=f"k{number}")
    node.after(IDLE_S)
    assert node.awake(queue) is None
    node.leap(HOUR_S)
    assert depth(node, queue) == 0
    node.after(IDLE_S)
    assert node.awake(queue) is None


@pytest.mark.rule("D28")
def test_after_a_restart_every_queue_is_looked_at_in_turn() -> None:
    node = QueueNode()
    queues = [node.make(f"q{number}", partitions=1) for number in range(50)]
    for queue in queues:
        node.publish(queue, "short", expiry_s=10)
    node.loop.now_ns += 60 * 10**9
    node.crash()
    node.after(len(queues) / upkeep.WAKES_PER_SECOND + 3)
    assert [depth(node, queue) for queue in queues] == [0] * len(queues)


@pytest.mark.rule("D28")
def test_more_short_lives_than_can_be_remembered_end() -> None:
    node = QueueNode()
    queue = node.make("q", partitions=1)
    node.publish(queue, "long")
    soon = node.host(queue).machine.expiry.soon
    soon.extend([(FAR_MS, 0, 1, Entry(0, 1, 0, 0, FAR_MS, seq=1))] * (SOON_MAX - 5))
    for number in range(30):
        node.publish(queue, f"{number}", expiry_s=30 + number % 3)
    node.after(20)
    assert depth(node, queue) == 31
    node.after(40)
    assert node.host(queue).machine.depth() == 1


@pytest.mark.rule("D28")
def test_a_shorter_life_for_all_holds_behind_longer_ones() -> None:
    node = QueueNode()
    queue = node.make("q", partitions=1, limits={"message_ttl": "10h"})
    node.publish(queue, "old")
    node.make(queue, limits={"message_ttl": "20s"})
    node.publish(queue, "new")
    node.after(50)
    assert node.drain(queue) == ["old"]
    assert expired(node, queue) == 1


@pytest.mark.rule("D28")
def test_what_somebody_held_when_it_expired_goes_when_it_comes_back() -> None:
    node = QueueNode()
    queue = node.make("q", partitions=1)
    node.publish(queue, "long")
    node.publish(queue, "short", expiry_s=10)
    consumer = node.consumer(queue, "g")
    assert consumer.payloads() == [b"long", b"short"]
    node.after(15)
    consumer.hang_up()
    node.after(20)
    assert node.host(queue).machine.depth() == 1


def test_a_look_through_a_deep_queue_takes_many_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "RECORDS_PER_SLOT", 1)
    node = QueueNode()
    queue = node.make("q", partitions=1)
    node.consumer(queue, "g").hang_up()
    node.publish(queue, "long")
    for _ in range(20):
        node.publish(queue, "x" * 30_000)  # each in a chunk of its own
    node.publish(queue, "short", expiry_s=1)
    node.loop.now_ns += 2 * 10**9
    node.crash()
    node.after(3)
    assert depth(node, queue) == 22
    node.after(10)
    assert depth(node, queue) == 21


@pytest.mark.rule("D28", "D24")
def test_expired_messages_in_the_middle_become_dead_letters_where_that_is_wanted() -> None:
    node = QueueNode()
    queue = node.make("q", partitions=1, expire_to_dlq=True)
    node.publish(queue, "long")
    node.publish(queue, "short", expiry_s=10)
    node.crash()
    node.after(30)
    assert node.host(queue).machine.depth() == 1
    assert node.drain("dlq/q") == ["short"]


# Replies


@pytest.mark.rule("section 9")
def test_a_reply_queue_goes_a_minute_after_its_requester_unsubscribed() -> None:
    node = QueueNode()
    requester = node.consumer("responses/1", None)
    node.after(300)
    assert node.awake("responses/1") is not None
    requester.transport.send(p.unsubscribe(7, ["$queue/responses/1"]))
    node.work()
    node.after(55)
    assert node.awake("responses/1") is not None
    node.after(10)
    assert node.awake("responses/1") is None
    assert not node.broker.queues.exists("responses/1")


@pytest.mark.rule("section 9")
def test_a_reply_queue_goes_a_minute_after_its_requester_was_lost() -> None:
    node = QueueNode()
    requester = node.consumer("responses/1", None)
    requester.hang_up()
    node.after(65)
    assert not node.broker.queues.exists("responses/1")


@pytest.mark.rule("section 9")
def test_a_reply_queue_goes_a_minute_after_the_first_reply_was_acked() -> None:
    node = QueueNode()
    requester = node.consumer("responses/1", None)
    node.publish("responses/1", "reply")
    assert node.settle_all(requester) == ["reply"]
    node.after(65)
    assert not node.broker.queues.exists("responses/1")


@pytest.mark.rule("section 9")
def test_a_reply_nobody_asks_for_goes_too() -> None:
    node = QueueNode()
    node.publish("responses/1", "reply")
    node.after(55)
    assert node.broker.queues.exists("responses/1")
    node.after(10)
    assert not node.broker.queues.exists("responses/1")


@pytest.mark.rule("section 9")
def test_a_reply_waits_for_its_requester_within_its_time() -> None:
    node = QueueNode()
    node.publish("responses/1", "reply")
    node.after(50)
    assert node.settle_all(node.consumer("responses/1", None)) == ["reply"]


# Groups


@pytest.mark.rule("section 1")
def test_a_group_named_after_a_client_is_forgotten_after_an_hour() -> None:
    node = QueueNode()
    queue = node.make("q", partitions=1)
    node.consumer(queue, None, client_id="worker-1").leave()
    node.publish(queue, "1")
    node.leap(HOUR_S - 10)
    assert list(node.host(queue).machine.groups) == ["worker"]
    node.leap(10)
    assert list(node.host(queue).machine.groups) == []


@pytest.mark.rule("section 1")
@pytest.mark.parametrize("sleeps", [True, False])
def test_a_group_is_forgotten_when_its_expiry_is_over(sleeps: bool) -> None:
    node = QueueNode()
    queue = node.make("q", partitions=1, group_expiry="2h")
    node.consumer(queue, "g").leave()
    node.consumer(queue, "other").leave()
    other = node.consumer(queue, "other") if not sleeps else None
    node.publish(queue, "1")
    if other is not None:
        assert node.settle_all(other) == ["1"]
    node.after(IDLE_S)
    assert (node.awake(queue) is None) == sleeps
    node.leap(2 * HOUR_S)
    host = node.awake(queue)
    assert host is not None
    assert list(host.machine.groups) == ([] if sleeps else ["other"])
    # What only the forgotten group needed is gone with it.
    assert host.machine.depth() == (1 if sleeps else 0)
    if not sleeps:
        assert host.machine.partitions[0].stored() == 0


@pytest.mark.rule("section 1")
def test_a_group_which_had_a_consumer_at_a_crash_is_absent_from_then_on() -> None:
    node = QueueNode()
    queue = node.make("q", partitions=1, group_expiry="2h")
    node.consumer(queue, "g")
    node.publish(queue, "1")
    node.crash()
    node.after(IDLE_S + 5)
    assert node.awake(queue) is None
    node.leap(HOUR_S)
    assert list(node.host(queue).machine.groups) == ["g"]
    node.after(IDLE_S + 5)
    node.leap(HOUR_S)
    assert list(node.host(queue).machine.groups) == []


@pytest.mark.rule("section 1")
def test_a_group_with_a_consumer_stays() -> None:
    node = QueueNode()
    queue = node.make("q", partitions=1, group_expiry="1h")
    node.consumer(queue, "g")
    node.leap(5 * HOUR_S)
    assert list(node.host(queue).machine.groups) == ["g"]


# Sleep


def test_a_queue_wakes_with_the_state_it_had() -> None:
    node = QueueNode()
    queue = node.make("q", partitions=1)
    for number in range(6):
        node.publish(queue, f"{number}")
    consumer = node.consumer(queue, "g", prefetch="4")
    packets = consumer.take_all()
    for number in (0, 2):
        consumer.acknowledge(p.PUBACK, packets[number].packet_id)
    node.work()
    consumer.hang_up()
    node.after(IDLE_S)
    assert node.awake(queue) is None
    assert sorted(node.drain(queue)) == ["1", "3", "4", "5"]


def test_a_queue_with_a_consumer_does_not_sleep() -> None:
    node = QueueNode()
    queue = node.make("q")
    node.consumer(queue, "g")
    node.after(3 * IDLE_S)
    assert node.awake(queue) is not None


def test_a_queue_which_woke_by_itself_sleeps_again() -> None:
    node = QueueNode()
    queues = [node.make(f"q{number}") for number in range(5)]
    node.crash()
    node.after(3)
    assert all(node.awake(queue) for queue in queues)
    node.after(IDLE_S + 5)
    assert not any(node.awake(queue) for queue in queues)


# Message ids and delays


@pytest.mark.rule("D8")
def test_rows_of_message_ids_go_when_their_window_is_over() -> None:
    node = QueueNode()
    queue = node.make("q", partitions=1, dedupe_window="30s")
    for number in range(5):
        node.publish(queue, "x", user={"message-id": f"{number}"})
    prefix = t.queue_key(node.host(queue).id)

    def id_rows() -> int:
        return len([key for key in node.store.tables[api.DEDUPE] if key[:8] == prefix])

    node.publish(queue, "x", user={"message-id": "1"})
    assert depth(node, queue) == 5
    assert id_rows() > 0
    node.after(45)
    assert id_rows() == 0
    node.publish(queue, "x", user={"message-id": "1"})
    assert node.host(queue).machine.depth() == 6


@pytest.mark.rule("D8")
def test_rows_of_message_ids_go_though_the_queue_sleeps_or_the_broker_restarts() -> None:
    node = QueueNode()
    queue = node.make("q", partitions=1, dedupe_window="1h")
    node.publish(queue, "x", user={"message-id": "1"})
    node.after(IDLE_S)
    assert node.awake(queue) is None
    node.leap(HOUR_S)
    node.after(15)
    assert not node.store.tables[api.DEDUPE]


@pytest.mark.rule("section 3", "acceptance 14")
def test_a_delayed_message_is_seen_after_a_restart_though_nobody_touches_the_queue() -> None:
    node = QueueNode()
    queue = node.make("q", partitions=1)
    node.publish(queue, "later", user={"delay-ms": str(2 * HOUR_S * 1000)})
    node.crash()
    node.leap(2 * HOUR_S - 10)
    host = node.awake(queue)
    assert host is not None
    assert (host.machine.depth(), host.machine.delayed) == (1, 1)
    node.leap(10)
    assert (host.machine.depth(), host.machine.delayed) == (1, 0)
    assert node.drain(queue) == ["later"]


@pytest.mark.rule("section 3")
def test_a_consumer_which_waits_gets_a_delayed_message_after_a_restart() -> None:
    node = QueueNode()
    queue = node.make("q", partitions=1)
    node.publish(queue, "later", user={"delay-ms": "60000"})
    node.crash()
    consumer = node.consumer(queue, "g")
    node.after(55)
    assert consumer.payloads() == []
    node.after(7)
    assert consumer.payloads() == [b"later"]
