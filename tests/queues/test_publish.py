"""Publishing to a queue (section 3): partitions, properties, and who may say what."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.client import RESERVED, SUCCESS, fnv1a
from tests.queues.conftest import Connect, MakeQueue

VECTORS = [
    ("user-123", 0x8C93CC93, 3, 2),
    ("user-124", 0x9193D472, 8, 0),
    ("tenant-a", 0x93332D7B, 1, 0),
    ("a", 0xE40C292C, 0, 1),
]


@pytest.mark.rule("section 1")
def test_the_first_publish_creates_the_queue_and_it_keeps_the_message(
    connect: Connect, queue: str
) -> None:
    assert connect().publish(queue, "early") == SUCCESS
    consumer = connect()
    assert consumer.subscribe(queue) == 1
    assert consumer.receive().payload == "early"


@pytest.mark.rule("section 1")
def test_the_first_subscribe_creates_the_queue(connect: Connect, queue: str) -> None:
    consumer = connect()
    assert consumer.subscribe(queue) == 1
    assert connect().publish(queue, "late") == SUCCESS
    assert consumer.receive().payload == "late"


@pytest.mark.rule("D5", "acceptance 1")
@pytest.mark.parametrize(("key", "hashed", "of_ten", "of_three"), VECTORS)
def test_the_partition_is_fnv_1a_of_the_key_modulo_the_partitions(
    connect: Connect, make_queue: MakeQueue, key: str, hashed: int, of_ten: int, of_three: int
) -> None:
    assert fnv1a(key) == hashed
    client = connect()
    for partitions, expected in ((10, of_ten), (3, of_three)):
        queue = make_queue(partitions=partitions)
        client.publish_each(queue, "x", key=key)
        client.subscribe(queue)
        assert client.receive().partition == expected


@pytest.mark.rule("D5", "section 8")
def test_a_queue_has_ten_partitions_unless_told_otherwise(connect: Connect, queue: str) -> None:
    client = connect()
    client.subscribe(queue)
    for key, _, of_ten, _ in VECTORS:
        client.publish_each(queue, key, key=key)
        assert client.receive_and_ack(1)[0].partition == of_ten


@pytest.mark.rule("D5")
def test_a_key_is_hashed_as_utf_8(connect: Connect, make_queue: MakeQueue) -> None:
    client, queue = connect(), make_queue(partitions=1000)
    client.publish_each(queue, "x", key="Zürich-東京")
    client.subscribe(queue)
    assert client.receive().partition == fnv1a("Zürich-東京") % 1000


@pytest.mark.rule("D5", "section 3")
@pytest.mark.parametrize("user", [{}, {"partition-key": ""}], ids=["absent", "empty"])
def test_without_a_key_messages_spread_over_all_partitions(
    connect: Connect, make_queue: MakeQueue, user: dict[str, str]
) -> None:
    client, queue = connect(), make_queue(partitions=3)
    for number in range(60):
        assert client.publish(queue, str(number), user=user) == SUCCESS
    client.subscribe(queue)
    received = client.receive_and_ack(60)
    assert {delivery.partition for delivery in received} == {0, 1, 2}
    assert sorted(int(delivery.payload) for delivery in received) == list(range(60))


@pytest.mark.rule("acceptance 1")
def test_messages_of_one_key_come_from_one_partition_in_order(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=4)
    for number in range(15):
        client.publish_each(queue, f"a{number}", key="a")
        client.publish_each(queue, f"b{number}", key="b")
    client.subscribe(queue)
    received = client.receive_and_ack(30)
    for key in ("a", "b"):
        mine = [delivery for delivery in received if delivery.payload.startswith(key)]
        assert [delivery.payload for delivery in mine] == [f"{key}{n}" for n in range(15)]
        assert {delivery.partition for delivery in mine} == {fnv1a(key) % 4}


@pytest.mark.rule("section 1", "section 4")
def test_the_sequence_of_each_partition_starts_at_one(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=3)
    for number in range(3):
        client.publish_each(queue, f"{number}", key="user-123")
        client.publish_each(queue, f"{number}", key="tenant-a")
    client.subscribe(queue)
    received = client.receive_and_ack(6)
    for partition in (0, 2):
        offsets = [delivery.offset for delivery in received if delivery.partition == partition]
        assert offsets == [1, 2, 3]


@pytest.mark.rule("section 4")
def test_a_delivery_says_where_it_comes_from(connect: Connect, make_queue: MakeQueue) -> None:
    client, queue = connect("worker-7"), make_queue(partitions=3)
    client.publish_each(queue, "x", key="user-123")
    client.subscribe(queue)
    delivery = client.receive()
    assert delivery.packet.topic == f"$queue/{queue}"
    assert not delivery.packet.retain
    assert delivery.properties["queue"] in (queue, f"$queue/{queue}")
    assert (delivery.group, delivery.partition, delivery.offset) == ("worker", 2, 1)
    assert delivery.count == 1
    assert "x-source-topic" not in delivery.properties


@pytest.mark.rule("section 4")
def test_an_assigned_message_id_is_queue_partition_and_sequence(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=3)
    client.publish_each(queue, "x", "y", key="user-123")
    client.subscribe(queue)
    for delivery, sequence in zip(client.receive_each(2), (1, 2), strict=True):
        name = delivery.properties["queue"]
        assert delivery.message_id == f"{name}:2:{sequence}"


@pytest.mark.rule("section 3", "section 4")
def test_the_producers_message_id_is_delivered(connect: Connect, queue: str) -> None:
    client = connect()
    client.publish(queue, "x", user={"message-id": "order-4711"})
    client.subscribe(queue)
    assert client.receive().message_id == "order-4711"


@pytest.mark.rule("section 4")
def test_reserved_keys_of_a_producer_are_dropped_and_its_own_are_kept(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect("honest"), make_queue(partitions=1)
    forged = {
        "group-id": "evil",
        "queue": "evil",
        "partition": "99",
        "offset": "77",
        "delivery-count": "50",
        "x-source-topic": "evil",
    }
    client.publish(queue, "x", user={"colour": "red", **forged, "shape": "round"})
    client.subscribe(queue)
    delivery = client.receive()
    keys = [key for key, _ in delivery.packet.user_properties]
    assert all(keys.count(key) == 1 for key in RESERVED)
    assert "x-source-topic" not in keys
    assert (delivery.group, delivery.partition, delivery.offset) == ("honest", 0, 1)
    assert delivery.count == 1
    assert delivery.properties["colour"] == "red"
    assert delivery.properties["shape"] == "round"
    assert "evil" not in delivery.properties.values()


@pytest.mark.rule("section 3")
def test_mqtt_properties_are_carried_as_they_are(connect: Connect, queue: str) -> None:
    client = connect()
    sent: dict[str, Any] = {
        "payload_format_indicator": 1,
        "content_type": "application/json",
        "response_topic": "answers/here",
        "correlation_data": b"\x00\xff42",
    }
    client.publish(queue, "{}", **sent)
    client.subscribe(queue)
    received = client.receive().packet.properties
    assert {name: received.get(name) for name in sent} == sent


@pytest.mark.rule("section 3")
def test_repeated_user_properties_of_a_producer_keep_their_order(
    connect: Connect, queue: str
) -> None:
    client = connect()
    pairs = [("tag", "one"), ("tag", "two"), ("other", "x"), ("tag", "three")]
    properties = [("user_property", pair) for pair in pairs]
    client.wire.publish(f"$queue/{queue}", b"x", qos=1, properties=properties)
    client.subscribe(queue)
    received = client.receive().packet.user_properties
    assert [pair for pair in received if pair[0] in ("tag", "other")] == pairs


@pytest.mark.rule("section 4")
@pytest.mark.parametrize("size", [0, 1, 40_000, 300_000])
def test_any_payload_arrives_unchanged(connect: Connect, queue: str, size: int) -> None:
    client = connect()
    payload = bytes(number * 7 % 251 for number in range(size))
    assert client.publish(queue, payload) == SUCCESS
    client.subscribe(queue)
    assert client.receive().packet.payload == payload


@pytest.mark.rule("section 4")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("subscribed", [1, 2])
def test_whatever_the_publishers_qos_delivery_is_at_least_qos_1(
    connect: Connect, queue: str, published: int, subscribed: int
) -> None:
    client = connect()
    assert client.publish(queue, "x", qos=published) == SUCCESS
    granted = client.subscribe(queue, qos=subscribed)
    assert granted in (1, 2)
    assert granted <= subscribed
    delivery = client.receive()
    assert 1 <= delivery.packet.qos <= granted
    assert client.ack(delivery) == SUCCESS


@pytest.mark.rule("D9")
def test_a_3_1_1_publisher_fills_random_partitions_with_assigned_ids(
    connect: Connect, make_queue: MakeQueue
) -> None:
    publisher, consumer = connect(version=4), connect()
    queue = make_queue(partitions=3)
    for number in range(40):
        publisher.publish(queue, str(number))
    consumer.subscribe(queue)
    received = consumer.receive_and_ack(40)
    assert {delivery.partition for delivery in received} == {0, 1, 2}
    for delivery in received:
        suffix = f":{delivery.partition}:{delivery.offset}"
        assert delivery.message_id == delivery.properties["queue"] + suffix
