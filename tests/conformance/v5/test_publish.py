"""PUBLISH (3.3) from a client: flags, topic, properties, and what subscribers see of them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conformance.conftest import Clients
from tests.harness import packets as p

MALFORMED, PROTOCOL_ERROR, TOPIC_NAME_INVALID = 0x81, 0x82, 0x90

PASSED_ON: dict[str, Any] = {
    "payload_format_indicator": 1,
    "content_type": "text/plain; charset=utf-8",
    "response_topic": "answers/here",
    "correlation_data": b"\x00\x01\xfe\xff",
    "user_property": [("k", "v"), ("a", "1"), ("k", "v"), ("k", "w"), ("", "")],
}


@pytest.mark.conforms("MQTT-3.3.4-1", "MQTT-2.2.1-5", "MQTT-4.3.2-4", "MQTT-4.3.3-8")
def test_a_publish_is_answered_according_to_its_qos(clients: Clients, name: str) -> None:
    client = clients()
    client.send_publish(name, b"0", qos=0)
    client.expect_nothing()
    client.send_publish(name, b"1", qos=1, packet_id=65535)
    client.expect(p.PUBACK, packet_id=65535)
    client.send_publish(name, b"2", qos=2, packet_id=7)
    client.expect(p.PUBREC, packet_id=7)
    client.acknowledge(p.PUBREL, 7)
    client.expect(p.PUBCOMP, packet_id=7, reason_code=0)


@pytest.mark.conforms("MQTT-3.4.2-1", "MQTT-3.5.2-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_the_answer_tells_whether_somebody_subscribed(
    clients: Clients, name: str, qos: int
) -> None:
    publisher = clients()
    assert publisher.publish(name, b"x", qos=qos).reason_code == 0x10
    subscriber = clients()
    subscriber.subscribe(name)
    assert publisher.publish(name, b"x", qos=qos).reason_code == 0


@pytest.mark.conforms(
    "MQTT-3.3.2-4", "MQTT-3.3.2-15", "MQTT-3.3.2-16", "MQTT-3.3.2-17", "MQTT-3.3.2-18",
    "MQTT-3.3.2-20",
)  # fmt: skip
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_properties_are_passed_on_unaltered_and_in_order(
    clients: Clients, name: str, qos: int
) -> None:
    subscriber = clients()
    subscriber.subscribe(name, qos=2)
    clients().publish(name, b"text", qos=qos, properties=PASSED_ON)
    assert subscriber.expect_publish(name, b"text").properties == PASSED_ON


@pytest.mark.conforms(
    "MQTT-3.3.2-4", "MQTT-3.3.2-15", "MQTT-3.3.2-16", "MQTT-3.3.2-17", "MQTT-3.3.2-18",
    "MQTT-3.3.2-20",
)  # fmt: skip
def test_properties_survive_storage_in_retained_and_waiting_messages(
    clients: Clients, name: str
) -> None:
    kept = {"session_expiry_interval": 60}
    offline = clients(name, properties=kept)
    offline.subscribe(name, qos=1)
    offline.disconnect()
    clients().publish(name, b"text", qos=1, retain=True, properties=PASSED_ON)
    waiting = clients(name, clean=False, properties=kept).expect_publish(name, b"text")
    assert waiting.properties == PASSED_ON
    late = clients()
    late.subscribe(name)
    assert late.expect_publish(name, b"text", retain=True).properties == PASSED_ON
    late.publish(name, b"", retain=True)


@pytest.mark.conforms("MQTT-2.2.2-1")
def test_a_message_without_properties_is_delivered_without(clients: Clients, name: str) -> None:
    subscriber = clients()
    subscriber.subscribe(name)
    clients(version=4).publish(name, b"plain", qos=1)
    assert subscriber.expect_publish(name, b"plain").properties == {}


@pytest.mark.conforms("MQTT-3.3.1-4")
def test_qos_3_is_malformed(clients: Clients, name: str) -> None:
    client = clients()
    client.send_publish(name, b"x", qos=3)
    client.expect_disconnect(MALFORMED)


@pytest.mark.conforms("MQTT-3.3.1-2")
def test_dup_on_qos_0_is_refused(clients: Clients, name: str) -> None:
    client = clients()
    client.send_publish(name, b"x", dup=True)
    client.expect_disconnect(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.conforms("MQTT-2.2.1-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_packet_identifier_0_is_refused(clients: Clients, name: str, qos: int) -> None:
    client = clients()
    client.send_publish(name, b"x", qos=qos, packet_id=0)
    client.expect_disconnect(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.conforms("MQTT-3.3.1-3", "MQTT-3.3.1-1")
def test_dup_of_the_publisher_is_not_passed_on(clients: Clients, name: str) -> None:
    subscriber = clients()
    subscriber.subscribe(name, qos=2)
    publisher = clients()
    publisher.publish(name, b"1", qos=1, dup=True)
    publisher.publish(name, b"2", qos=2, dup=True)
    subscriber.expect_publish(name, b"1", dup=False)
    subscriber.expect_publish(name, b"2", dup=False)


@pytest.mark.conforms("MQTT-3.3.2-2", "MQTT-4.7.0-1", "MQTT-4.7.3-1")
@pytest.mark.parametrize("topic", ["a/#", "#", "+", "a/+/b", ""])
def test_a_topic_name_with_wildcards_or_without_characters_is_refused(
    clients: Clients, topic: str
) -> None:
    client = clients()
    client.send_publish(topic, b"x")
    client.expect_disconnect(MALFORMED, PROTOCOL_ERROR, TOPIC_NAME_INVALID)


@pytest.mark.conforms("MQTT-3.3.2-1", "MQTT-1.5.4-1", "MQTT-1.5.4-2", "MQTT-4.7.3-2")
@pytest.mark.parametrize(
    "topic",
    [b"\xff", b"a\x00b", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xc0\xaf", b"\xf4\x90\x80\x80"],
)
def test_a_topic_name_must_be_valid_utf8(clients: Clients, topic: bytes) -> None:
    client = clients()
    client.send_publish(topic, b"x")
    client.expect_disconnect(MALFORMED, TOPIC_NAME_INVALID)


@pytest.mark.conforms("MQTT-3.3.2-13", "MQTT-3.3.2-14", "MQTT-3.3.2-19", "MQTT-1.5.7-1")
@pytest.mark.parametrize(
    ("property_name", "value"),
    [
        ("response_topic", b"\xff"),
        ("response_topic", "a/#"),
        ("response_topic", "a/+/b"),
        ("content_type", b"\xc3\x28"),
        ("user_property", (b"\xff", "v")),
        ("user_property", ("k", b"\xff")),
    ],
)
def test_strings_in_properties_must_be_valid(
    clients: Clients, name: str, property_name: str, value: Any
) -> None:
    client = clients()
    client.send_publish(name, b"x", properties={property_name: value})
    client.expect_disconnect(MALFORMED, PROTOCOL_ERROR, TOPIC_NAME_INVALID)


@pytest.mark.conforms("MQTT-3.3.4-6", "MQTT-4.13.1-1")
@pytest.mark.parametrize(
    "properties",
    [
        {"subscription_identifier": 1},
        {"session_expiry_interval": 1},
        {"reason_string": "no"},
        b"\x7f\x00",
        [("payload_format_indicator", 0), ("payload_format_indicator", 0)],
        [("message_expiry_interval", 1), ("message_expiry_interval", 1)],
        [("content_type", "a"), ("content_type", "a")],
        [("response_topic", "a"), ("response_topic", "a")],
        [("correlation_data", b""), ("correlation_data", b"")],
        [("topic_alias", 1), ("topic_alias", 1)],
    ],
)
def test_wrong_or_repeated_properties_are_refused(
    clients: Clients, name: str, properties: p.Properties
) -> None:
    client = clients()
    client.send_publish(name, b"x", properties=properties)
    client.expect_disconnect(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.conforms("MQTT-3.3.2-6")
def test_the_expiry_interval_counts_down_while_a_message_waits(clients: Clients, name: str) -> None:
    kept = {"session_expiry_interval": 60}
    subscriber = clients(name, properties=kept)
    subscriber.subscribe(name, qos=1)
    subscriber.disconnect()
    clients().publish(name, b"x", qos=1, properties={"message_expiry_interval": 100})
    time.sleep(2.1)
    message = clients(name, clean=False).expect_publish(name, b"x")
    assert message.properties["message_expiry_interval"] in (97, 98)


@pytest.mark.conforms("MQTT-3.3.2-5")
def test_a_message_which_expired_while_waiting_is_not_delivered(
    clients: Clients, name: str
) -> None:
    kept = {"session_expiry_interval": 60}
    subscriber = clients(name, properties=kept)
    subscriber.subscribe(name, qos=2)
    subscriber.disconnect()
    publisher = clients()
    for qos in (1, 2):
        publisher.publish(name, b"short", qos=qos, properties={"message_expiry_interval": 1})
    publisher.publish(name, b"long", qos=1, properties={"message_expiry_interval": 100})
    time.sleep(2.1)
    resumed = clients(name, clean=False)
    resumed.expect_publish(name, b"long")
    resumed.expect_nothing()


@pytest.mark.conforms("MQTT-3.3.2-5", "MQTT-3.3.2-6")
def test_retained_messages_expire_and_count_down(clients: Clients, name: str) -> None:
    publisher = clients()
    for topic, seconds in ((f"{name}/short", 1), (f"{name}/long", 100)):
        properties = {"message_expiry_interval": seconds}
        publisher.publish(topic, b"x", qos=1, retain=True, properties=properties)
    time.sleep(2.1)
    subscriber = clients()
    subscriber.subscribe(f"{name}/#")
    message = subscriber.expect_publish(f"{name}/long", retain=True)
    assert message.properties["message_expiry_interval"] in (97, 98)
    subscriber.expect_nothing()
    publisher.publish(f"{name}/long", b"", retain=True)


@pytest.mark.conforms("MQTT-3.3.2-6")
def test_the_expiry_interval_is_passed_on_at_once(clients: Clients, name: str) -> None:
    subscriber = clients()
    subscriber.subscribe(name)
    clients().publish(name, b"x", properties={"message_expiry_interval": 100})
    message = subscriber.expect_publish(name, b"x")
    assert message.properties["message_expiry_interval"] in (99, 100)


def test_an_empty_and_a_large_payload_arrive_whole(clients: Clients, name: str) -> None:
    subscriber = clients()
    subscriber.subscribe(name, qos=1)
    publisher = clients()
    payloads = [b"", b"\x00", bytes(range(256)) * 4096]
    for payload in payloads:
        publisher.publish(name, payload, qos=1)
    for payload in payloads:
        assert subscriber.expect_publish(name).payload == payload


@pytest.mark.conforms("MQTT-2.2.2-1", "MQTT-3.3.2-3")
def test_properties_are_left_out_for_subscribers_of_older_versions(
    clients: Clients, name: str
) -> None:
    older = [clients(version=4), clients(version=3)]
    for subscriber in older:
        subscriber.subscribe(name, qos=1)
    clients().publish(name, b"text", qos=1, properties=PASSED_ON | {"topic_alias": 1})
    for subscriber in older:
        message = subscriber.expect_publish(name, b"text", qos=1)
        assert message.raw == p.publish(
            name, b"text", qos=1, packet_id=message.packet_id, version=subscriber.version
        )
