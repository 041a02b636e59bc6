"""When a message may be seen: delays, expiry, and priorities (D19, D22, D28)."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from tests.queues.client import QUOTA_EXCEEDED, SUCCESS, QueueClient, wait_until
from tests.queues.conftest import Connect, MakeQueue

# Clocks of client and broker are read at slightly different moments.
TOLERANCE_S = 0.05


def in_ms(delay_ms: int) -> str:
    return str(int(time.time() * 1000) + delay_ms)


@pytest.mark.rule("D19", "acceptance 14")
@pytest.mark.parametrize("key", ["delay-ms", "deliver-at"])
def test_a_delayed_message_is_not_seen_before_its_time(
    connect: Connect, queue: str, key: str
) -> None:
    client = connect()
    client.subscribe(queue)
    sent_at = time.monotonic()
    value = "1200" if key == "delay-ms" else in_ms(1200)
    assert client.publish(queue, "later", user={key: value}) == SUCCESS
    delivery = client.receive()
    assert delivery.received_at - sent_at >= 1.2 - TOLERANCE_S
    assert (delivery.payload, delivery.count) == ("later", 1)
    assert client.ack(delivery) == SUCCESS


@pytest.mark.rule("acceptance 14")
def test_a_delayed_message_holds_nobody_up(connect: Connect, make_queue: MakeQueue) -> None:
    client, queue = connect(), make_queue(partitions=1)
    client.subscribe(queue)
    client.publish(queue, "later", user={"delay-ms": "1200"})
    client.publish_each(queue, "now")
    assert [one.payload for one in client.receive_and_ack(2)] == ["now", "later"]


@pytest.mark.rule("acceptance 14")
def test_delayed_messages_come_in_order_of_their_times(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1, ordering="none")
    client.subscribe(queue)
    for delay_ms in (3000, 100, 1500):
        client.publish(queue, str(delay_ms), user={"delay-ms": str(delay_ms)})
    assert client.receive_payloads(3) == ["100", "1500", "3000"]


@pytest.mark.rule("acceptance 14")
def test_a_time_in_the_past_delays_nothing(connect: Connect, queue: str) -> None:
    client = connect()
    client.subscribe(queue)
    client.publish(queue, "x", user={"deliver-at": in_ms(-60_000)})
    assert client.receive().payload == "x"


def expired_then_fresh(client: QueueClient, queue: str) -> None:
    """Let the waiting message expire, and show that only one published later is delivered."""
    time.sleep(2.5)  # the lifetime of a message is counted in time and in nothing else
    client.publish_each(queue, "fresh")
    client.subscribe(queue)
    assert client.receive().payload == "fresh"
    client.expect_silence()


@pytest.mark.rule("D28", "acceptance 11", "section 3")
def test_a_message_expires_after_its_expiry_interval(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1)
    client.publish(queue, "old", message_expiry_interval=1)
    expired_then_fresh(client, queue)


@pytest.mark.rule("D28", "acceptance 11")
def test_a_message_expires_after_the_ttl_of_its_queue(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1, limits={"message_ttl": "1s"})
    client.publish_each(queue, "old")
    expired_then_fresh(client, queue)


@pytest.mark.rule("D28", "section 3")
def test_the_ttl_of_the_queue_caps_the_expiry_interval(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1, limits={"message_ttl": "1s"})
    client.publish(queue, "old", message_expiry_interval=3600)
    expired_then_fresh(client, queue)


@pytest.mark.rule("section 3")
def test_a_delivery_carries_what_is_left_of_the_expiry_interval(
    connect: Connect, queue: str
) -> None:
    client = connect()
    client.publish(queue, "x", message_expiry_interval=3600)
    client.subscribe(queue)
    left = client.receive().packet.properties.get("message_expiry_interval")
    assert left is not None
    assert 3500 <= left <= 3600


@pytest.mark.rule("D28")
def test_expired_messages_are_removed_in_the_background(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client = connect()
    queue = make_queue(limits={"message_ttl": "1s", "max_queue_depth": 2})
    client.publish_each(queue, "a", "b")
    assert client.publish(queue, "c") == QUOTA_EXCEEDED
    wait_until(lambda: client.publish(queue, "c") == SUCCESS)


@pytest.mark.rule("D28")
def test_expired_messages_go_to_the_dead_letter_queue_when_told(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client = connect()
    queue = make_queue(limits={"message_ttl": "1s"}, expire_to_dlq=True)
    watcher = connect()
    watcher.subscribe(f"dlq/{queue}")
    client.publish_each(queue, "too old")
    letter = watcher.receive()
    assert letter.payload == "too old"
    assert letter.properties["dlq-reason"] == "expired"
    datetime.fromisoformat(letter.properties["dlq-moved-at"])


@pytest.mark.rule("D28")
def test_expired_messages_are_not_dead_lettered_unless_told(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client = connect()
    queue = make_queue(limits={"message_ttl": "500ms", "max_queue_depth": 1})
    watcher = connect()
    watcher.subscribe(f"dlq/{queue}")
    client.publish_each(queue, "gone")
    wait_until(lambda: client.publish(queue, "next") == SUCCESS)
    watcher.expect_silence()


@pytest.mark.rule("D22")
def test_higher_priorities_come_first_and_the_default_is_four(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client = connect()
    queue = make_queue(partitions=1, ordering="none")
    for payload, priority in (("low", "0"), ("three", "3"), ("five", "5"), ("top", "31")):
        client.publish(queue, payload, user={"priority": priority})
    client.publish_each(queue, "default")
    client.subscribe(queue)
    assert client.receive_payloads(5) == ["top", "five", "default", "three", "low"]


@pytest.mark.rule("D22")
def test_a_priority_is_clamped_to_0_and_31_and_equals_keep_their_order(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client = connect()
    queue = make_queue(partitions=1, ordering="none")
    for payload, priority in (("a", "31"), ("b", "1000"), ("c", "31"), ("d", "-5"), ("e", "0")):
        assert client.publish(queue, payload, user={"priority": priority}) == SUCCESS
    client.subscribe(queue)
    assert client.receive_payloads(5) == ["a", "b", "c", "d", "e"]


@pytest.mark.rule("D22")
def test_returned_messages_are_served_before_every_priority_in_return_order(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client = connect()
    queue = make_queue(partitions=1, ordering="none", performance={"prefetch": 2})
    for payload in ("first", "second"):
        client.publish(queue, payload, user={"priority": "0"})
    client.subscribe(queue)
    client.receive_each(2)
    client.publish(queue, "urgent", user={"priority": "31"})
    client.disconnect()
    again = connect(client.client_id)
    again.subscribe(queue)
    assert again.receive_payloads(2) == ["first", "second"]
    again.expect_silence()


@pytest.mark.rule("D22")
def test_a_nacked_message_comes_back_before_an_urgent_one(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client = connect()
    queue = make_queue(partitions=1, ordering="none", performance={"prefetch": 1})
    client.publish(queue, "slow", user={"priority": "0"})
    client.subscribe(queue)
    slow = client.receive()
    client.publish(queue, "urgent", user={"priority": "31"})
    assert client.nack(slow) == SUCCESS
    assert [one.payload for one in client.receive_and_ack(2)] == ["slow", "urgent"]


@pytest.mark.rule("D22")
@pytest.mark.parametrize("ordering", ["partition", "strict"])
def test_priorities_do_nothing_where_order_is_promised(
    connect: Connect, make_queue: MakeQueue, ordering: str
) -> None:
    client, queue = connect(), make_queue(partitions=1, ordering=ordering)
    for payload, priority in (("a", "0"), ("b", "31"), ("c", "9")):
        client.publish(queue, payload, user={"priority": priority})
    client.subscribe(queue)
    assert client.receive_payloads(3) == ["a", "b", "c"]
