"""Consumers of each kind: QoS 0 refused (D15), 3.1.1 (D16), v5 with and without PUBACK (D17)."""

from __future__ import annotations

import pytest

from tests.harness import packets as p
from tests.queues.client import NOT_AUTHORIZED, SUCCESS, UNSPECIFIED, QueueClient
from tests.queues.conftest import Connect, MakeQueue


def successor_finds(connect: Connect, queue: str, *payloads: str) -> None:
    """What is left for another consumer of group `w`, after the first one is gone."""
    successor = connect("w-successor")
    successor.subscribe(queue)
    assert successor.receive_payloads(len(payloads)) == list(payloads)
    successor.expect_silence()


def settle_exactly_once(client: QueueClient) -> None:
    """PUBREC, PUBREL, PUBCOMP for one QoS 2 delivery."""
    packet = client.wire.expect_publish(qos=2, ack=True)
    assert packet.topic.startswith("$queue/")
    client.wire.ping()


@pytest.mark.rule("D15", "acceptance 16")
@pytest.mark.parametrize("version", [4, 5])
def test_a_qos_0_subscription_is_refused(connect: Connect, queue: str, version: int) -> None:
    client = connect(version=version)
    assert client.subscribe(queue, qos=0) in (UNSPECIFIED, NOT_AUTHORIZED)
    connect().publish_each(queue, "x")
    client.expect_silence()


@pytest.mark.rule("D15")
def test_one_refused_filter_does_not_spoil_the_others(connect: Connect, queue: str) -> None:
    client = connect()
    filters = [(f"$queue/{queue}/a", 0), (f"$queue/{queue}/b", 1), (f"{queue}/plain", 0)]
    codes = client.wire.subscribe(*filters).reason_codes
    assert codes[0] in (UNSPECIFIED, NOT_AUTHORIZED)
    assert codes[1:] == [1, 0]


@pytest.mark.rule("D16", "acceptance 15")
@pytest.mark.parametrize("version", [3, 4])
def test_a_puback_of_a_3_1_1_consumer_settles(
    connect: Connect, make_queue: MakeQueue, version: int
) -> None:
    queue = make_queue(partitions=1, performance={"prefetch": 2})
    client = connect("w-old", version=version)
    assert client.subscribe(queue) == 1
    connect().publish_each(queue, "1", "2", "3", "4")
    assert client.receive_payloads(3) == ["1", "2", "3"]
    client.receive(puback=False)
    client.disconnect()
    successor_finds(connect, queue, "4")


@pytest.mark.rule("D16", "acceptance 15")
def test_the_pubacks_of_a_3_1_1_consumer_bring_the_next_messages(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(version=4), make_queue(partitions=1, performance={"prefetch": 1})
    client.subscribe(queue)
    connect().publish_each(queue, "1", "2")
    first = client.receive(puback=False)
    client.expect_silence()
    client.puback(first)
    assert client.receive().payload == "2"


@pytest.mark.rule("D16", "acceptance 15")
def test_a_pubcomp_of_a_3_1_1_consumer_settles_a_qos_2_delivery(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    client, producer = connect("w-old", version=4), connect()
    assert client.subscribe(queue, qos=2) == 2
    for payload in ("1", "2"):
        assert producer.publish(queue, payload, qos=2) == SUCCESS
    settle_exactly_once(client)
    client.abort()
    successor_finds(connect, queue, "2")


@pytest.mark.rule("D16")
def test_a_pubrec_alone_does_not_settle(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(partitions=1)
    client, producer = connect("w-old", version=4), connect()
    client.subscribe(queue, qos=2)
    producer.publish(queue, "1", qos=2)
    packet = client.wire.expect_publish(qos=2, ack=False)
    client.wire.acknowledge(p.PUBREC, packet.packet_id)
    client.wire.wait_for(p.PUBREL, packet.packet_id)
    client.abort()
    successor_finds(connect, queue, "1")


@pytest.mark.rule("D16")
def test_3_1_1_and_5_consumers_share_a_group(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(partitions=1)
    old = connect("w-a", version=4)
    old.subscribe(queue)
    connect().publish_each(queue, "1")
    old.receive(puback=False)
    new = connect("w-b")
    new.subscribe(queue)
    new.expect_silence()
    old.abort()
    delivery = new.receive()
    assert (delivery.payload, delivery.count, delivery.group) == ("1", 2, "w")


@pytest.mark.rule("D17")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_puback_of_a_version_5_consumer_does_not_settle(
    connect: Connect, make_queue: MakeQueue, qos: int
) -> None:
    queue = make_queue(partitions=1, performance={"prefetch": 1})
    client = connect("w-a")
    client.subscribe(queue, qos=qos)
    producer = connect()
    for payload in ("1", "2"):
        producer.publish(queue, payload, qos=qos)
    assert client.receive().payload == "1"
    client.expect_silence()
    client.abort()
    successor = connect("w-b")
    successor.subscribe(queue)
    delivery = successor.receive()
    assert (delivery.payload, delivery.count) == ("1", 2)


@pytest.mark.rule("D17")
@pytest.mark.parametrize("qos", [1, 2])
def test_in_puback_mode_a_version_5_consumer_settles_with_its_acknowledgement(
    connect: Connect, make_queue: MakeQueue, qos: int
) -> None:
    queue = make_queue(partitions=1, performance={"prefetch": 1})
    client, producer = connect("w-a"), connect()
    client.subscribe(queue, qos=qos, ack_mode="puback")
    for payload in ("1", "2", "3"):
        producer.publish(queue, payload, qos=qos)
    assert client.receive_payloads(2) == ["1", "2"]
    third = client.receive(puback=False)
    assert (third.payload, third.count) == ("3", 1)
    client.abort()
    successor_finds(connect, queue, "3")


@pytest.mark.rule("D17", "section 5")
def test_in_puback_mode_a_nack_before_the_puback_still_counts(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1)
    client.subscribe(queue, ack_mode="puback")
    client.publish_each(queue, "1")
    first = client.receive(puback=False)
    assert client.nack(first) == SUCCESS
    client.puback(first)
    again = client.receive(puback=False)
    assert (again.payload, again.count) == ("1", 2)


@pytest.mark.rule("section 4")
def test_a_subscription_identifier_comes_with_each_delivery(connect: Connect, queue: str) -> None:
    client = connect()
    properties = {"subscription_identifier": 77}
    client.wire.subscribe(f"$queue/{queue}", qos=1, properties=properties)
    client.publish_each(queue, "x")
    assert client.receive().packet.subscription_identifiers == [77]


@pytest.mark.rule("section 4", "D6")
def test_an_exactly_once_publish_is_stored_once_though_it_is_sent_twice(
    connect: Connect, queue: str
) -> None:
    client = connect()
    for dup in (False, True):
        packet = p.publish(f"$queue/{queue}", b"x", qos=2, packet_id=9, dup=dup)
        client.wire.send(packet)
        client.wire.wait_for(p.PUBREC, 9)
    client.wire.acknowledge(p.PUBREL, 9)
    client.wire.wait_for(p.PUBCOMP, 9)
    client.subscribe(queue)
    assert client.receive().payload == "x"
    client.expect_silence()
