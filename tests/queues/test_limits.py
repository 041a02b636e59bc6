"""What a queue refuses or drops (D7), and what it takes only once (D8)."""

from __future__ import annotations

import time

import pytest

from tests.queues.client import QUOTA_EXCEEDED, SUCCESS, TOO_LARGE
from tests.queues.conftest import Connect, MakeQueue


@pytest.mark.rule("D7", "acceptance 12")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_over_the_size_limit_is_refused_0x95(
    connect: Connect, make_queue: MakeQueue, qos: int
) -> None:
    client, queue = connect(), make_queue(limits={"max_message_size": 1000})
    assert client.publish(queue, b"x" * 1001, qos=qos) == TOO_LARGE
    assert client.publish(queue, b"y" * 500, qos=qos) == SUCCESS
    client.subscribe(queue)
    assert client.receive().payload == "y" * 500
    client.expect_silence()


@pytest.mark.rule("D7", "acceptance 12")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_full_queue_refuses_0x97_and_takes_again_when_there_is_room(
    connect: Connect, make_queue: MakeQueue, qos: int
) -> None:
    client, queue = connect(), make_queue(partitions=1, limits={"max_queue_depth": 3})
    client.publish_each(queue, "1", "2", "3")
    assert client.publish(queue, "4", qos=qos) == QUOTA_EXCEEDED
    client.subscribe(queue)
    first, *_ = client.receive_each(3)
    assert client.publish(queue, "4", qos=qos) == QUOTA_EXCEEDED, "held messages still count"
    assert client.ack(first) == SUCCESS
    assert client.publish(queue, "5", qos=qos) == SUCCESS
    assert client.receive().payload == "5"


@pytest.mark.rule("D7")
def test_a_refused_message_may_be_sent_again_with_the_same_message_id(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1, limits={"max_queue_depth": 1})
    client.publish_each(queue, "1")
    assert client.publish(queue, "2", user={"message-id": "m2"}) == QUOTA_EXCEEDED
    client.subscribe(queue)
    client.receive_and_ack(1)
    assert client.publish(queue, "2", user={"message-id": "m2"}) == SUCCESS
    assert client.receive().payload == "2"


@pytest.mark.rule("D7")
def test_drop_head_drops_the_oldest_message(connect: Connect, make_queue: MakeQueue) -> None:
    client = connect()
    queue = make_queue(partitions=1, overflow="drop_head", limits={"max_queue_depth": 3})
    client.publish_each(queue, "1", "2", "3", "4", "5")
    client.subscribe(queue)
    assert client.receive_payloads(3) == ["3", "4", "5"]
    client.expect_silence()


@pytest.mark.rule("D7")
def test_drop_head_spares_a_message_somebody_holds(connect: Connect, make_queue: MakeQueue) -> None:
    client = connect()
    queue = make_queue(
        partitions=1,
        overflow="drop_head",
        limits={"max_queue_depth": 3},
        performance={"prefetch": 1},
    )
    client.publish_each(queue, "1", "2", "3")
    client.subscribe(queue)
    held = client.receive()
    client.publish_each(queue, "4")
    assert client.ack(held) == SUCCESS
    assert [one.payload for one in client.receive_and_ack(2)] == ["3", "4"]
    client.expect_silence()


@pytest.mark.rule("D8", "acceptance 13")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_repeated_message_id_is_acknowledged_and_stored_once(
    connect: Connect, queue: str, qos: int
) -> None:
    client = connect()
    for _ in range(3):
        assert client.publish(queue, "once", qos=qos, user={"message-id": "m1"}) < 0x80
    client.subscribe(queue)
    assert client.receive().payload == "once"
    client.expect_silence()


@pytest.mark.rule("D8", "acceptance 13")
def test_a_message_which_is_settled_already_is_still_a_duplicate(
    connect: Connect, queue: str
) -> None:
    client = connect()
    client.subscribe(queue)
    client.publish(queue, "once", user={"message-id": "m1"})
    client.receive_and_ack(1)
    assert client.publish(queue, "once", user={"message-id": "m1"}) < 0x80
    client.expect_silence()


@pytest.mark.rule("D8", "acceptance 13")
def test_duplicates_are_known_over_a_reconnect(connect: Connect, queue: str) -> None:
    first = connect("producer-1")
    first.publish(queue, "once", user={"message-id": "m1"})
    first.abort()
    second = connect("producer-1")
    assert second.publish(queue, "once", user={"message-id": "m1"}) < 0x80
    second.subscribe(queue)
    assert second.receive().payload == "once"
    second.expect_silence()


@pytest.mark.rule("D8")
def test_the_message_id_of_another_producer_or_queue_is_another_message(
    connect: Connect, make_queue: MakeQueue
) -> None:
    one, other, consumer = connect(), connect(), connect()
    queue, second_queue = make_queue(partitions=1), make_queue(partitions=1)
    one.publish(queue, "a", user={"message-id": "m1"})
    other.publish(queue, "b", user={"message-id": "m1"})
    one.publish(second_queue, "c", user={"message-id": "m1"})
    consumer.subscribe(queue)
    assert consumer.receive_payloads(2) == ["a", "b"]
    consumer.subscribe(second_queue)
    assert consumer.receive().payload == "c"


@pytest.mark.rule("D8", "section 5")
def test_two_messages_with_one_id_are_both_settled_by_two_acks(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    for payload in ("a", "b"):
        connect().publish(queue, payload, user={"message-id": "same"})
    consumer = connect("worker-1")
    consumer.subscribe(queue)
    for delivery in consumer.receive_each(2):
        assert consumer.ack(delivery) == SUCCESS
    consumer.abort()
    successor = connect("worker-1")
    successor.subscribe(queue)
    successor.expect_silence()


@pytest.mark.rule("D8", "acceptance 13")
def test_after_the_dedupe_window_the_id_is_new(connect: Connect, make_queue: MakeQueue) -> None:
    client, queue = connect(), make_queue(dedupe_window="1s")
    client.subscribe(queue)
    client.publish(queue, "x", user={"message-id": "m1"})
    assert client.receive().payload == "x"
    time.sleep(2.2)  # the window is counted in time, and asking meanwhile might extend it
    assert client.publish(queue, "again", user={"message-id": "m1"}) == SUCCESS
    assert client.receive().payload == "again"


@pytest.mark.rule("D8")
def test_a_dedupe_window_of_zero_turns_it_off(connect: Connect, make_queue: MakeQueue) -> None:
    client, queue = connect(), make_queue(partitions=1, dedupe_window=0)
    for payload in ("a", "b"):
        client.publish(queue, payload, user={"message-id": "m1"})
    client.subscribe(queue)
    assert client.receive_payloads(2) == ["a", "b"]
