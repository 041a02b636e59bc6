"""Corners of the contract: long and strange keys, repeats, mixed subscriptions, full pages."""

from __future__ import annotations

import pytest

from tests.harness import packets as p
from tests.mq.client import SUCCESS
from tests.mq.conftest import Connect, MakeQueue
from tests.mq.rest import QUEUES, MqRest


@pytest.mark.rule("M9", "M10")
def test_keys_of_any_length_are_told_apart(connect: Connect, last_value: MakeQueue) -> None:
    queue, client = last_value(), connect()
    long = "k" * 5000
    client.publish_keyed(queue.topic(), f"{long}a=1", f"{long}b=2", f"{long}=3", f"{long}a=4")
    client.subscribe(queue.address)
    assert client.drain(at_least=3) == ["2", "3", "4"]


@pytest.mark.rule("M10")
def test_a_payload_which_is_no_text_as_key_does_no_harm(
    connect: Connect, last_value: MakeQueue
) -> None:
    queue, client = last_value(key_expression="message.payload"), connect()
    for payload in (b"\xff\xfe", b"\x00", b"\xff\xfe", b"text"):
        assert client.publish(queue.topic(), payload) < 0x80
    client.subscribe(queue.address)
    received = [client.take().packet.payload]
    while (delivery := client.poll(0.3)) is not None:
        received.append(delivery.packet.payload)
    assert received[-1] == b"text"
    assert len(set(received)) == len(received)


@pytest.mark.rule("M10")
def test_a_client_with_an_assigned_id_has_a_key_of_its_own(
    connect: Connect, last_value: MakeQueue
) -> None:
    queue, consumer = last_value(key_expression="message.from"), connect()
    for number in range(3):
        connect("").publish_each(queue.topic(), f"{number}a", f"{number}b")
    consumer.subscribe(queue.address)
    assert consumer.drain(at_least=3) == ["0b", "1b", "2b"]


@pytest.mark.rule("section 3")
def test_a_repeated_qos_2_publish_is_stored_once(connect: Connect, regular: MakeQueue) -> None:
    queue, client = regular(), connect()
    for dup in (False, True, True):
        client.wire.send_publish(queue.topic(), "x", qos=2, packet_id=77, dup=dup)
        assert client.wire.wait_for(p.PUBREC, 77).reason_code == SUCCESS
    client.wire.acknowledge(p.PUBREL, 77)
    client.wire.wait_for(p.PUBCOMP, 77)
    client.subscribe(queue.address)
    assert client.drain(at_least=1) == ["x"]


@pytest.mark.rule("M11", "M5")
def test_one_subscribe_may_name_topics_and_queues_of_all_kinds(
    rest: MqRest, connect: Connect, regular: MakeQueue, root: str
) -> None:
    named, client = regular(), connect()
    legacy = rest.create(f"{root}/#", is_lastvalue=False)
    suback = client.wire.subscribe(
        (named.address, 1), (f"plain/{root}", 2), (legacy.address, 0), (f"$queue/{root}/jobs", 1)
    )
    assert suback.reason_codes == [1, 2, 0, 1]
    producer = connect()
    topics = [named.topic(), f"plain/{root}", f"{root}/x", f"$queue/{root}/jobs"]
    for topic in topics:
        producer.publish_each(topic, topic)
        assert client.take().payload == topic
    unsuback = client.wire.unsubscribe(named.address, f"plain/{root}", legacy.address)
    assert unsuback.reason_codes == [0, 0, 0]
    for topic in topics[:3]:
        producer.publish(topic, "late")
    client.expect_silence(0.2)


@pytest.mark.rule("section 8")
def test_a_page_has_a_hundred_queues_unless_told(rest: MqRest, root: str) -> None:
    for number in range(101):
        rest.create(f"{root}/{number}")
    page = rest.call("GET", QUEUES).json
    assert len(page["data"]) == 100
    assert page["meta"]["hasnext"] is True
    assert sum(root in name for name in rest.names()) == 101


@pytest.mark.rule("M20")
def test_dead_letters_of_a_legacy_queue_have_its_filter_as_name(
    rest: MqRest, connect: Connect, root: str
) -> None:
    """Wildcards are no part of a name, so they are written as REST has them."""
    queue = rest.create(
        f"{root}/+/#", is_lastvalue=False, redispatch_interval="20ms", max_redeliveries=1
    )
    client = connect()
    client.subscribe(queue.address)
    client.publish_each(f"{root}/x", "bad")
    for _ in range(2):
        client.reject(client.hold())
    client.expect_silence(0.2)
    client.subscribe(f"$queue/dlq/{root}/%2B/%23")
    assert client.take().payload == "bad"


@pytest.mark.rule("M6", "M18")
def test_a_subscriber_which_does_not_read_for_a_while_gets_everything(
    connect: Connect, regular: MakeQueue
) -> None:
    """More than fits into the buffers between: a QoS 0 subscriber is only limited by these."""
    queue, producer, consumer = regular(), connect(), connect()
    consumer.subscribe(queue.address, qos=0)
    payloads = [bytes([number]) * 200_000 for number in range(100)]
    for payload in payloads:
        assert producer.publish(queue.topic(), payload) == SUCCESS
    assert [consumer.hold().packet.payload for _ in payloads] == payloads
