"""Section 3.3 (PUBLISH) without retained messages; 3.6.1 (PUBREL flags)."""

from __future__ import annotations

import pytest

from tests.conformance.v311.conftest import Client
from tests.conformance.v311.reading import answer_or_close, drain, only_level_4
from tests.conftest import BrokerFactory
from tests.harness import packets as p

DENY = """
[[acl]]
permission = "deny"
action = "publish"
topics = ["forbidden/#"]
"""


@pytest.mark.conforms311("MQTT-3.3.1-2", "MQTT-4.8.0-1")
def test_dup_on_a_qos_0_publish_closes_or_is_ignored(client: Client, name: str) -> None:
    watcher = client("w")
    watcher.subscribe(f"{name}/t")
    wire = client()
    wire.send(p.publish(f"{name}/t", b"dup", dup=True, version=4) + p.PINGREQ_BYTES)
    assert not any(message.dup for message in drain(watcher))


@pytest.mark.conforms311("MQTT-3.3.1-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_dup_of_the_publisher_is_not_passed_on(client: Client, name: str, qos: int) -> None:
    watcher = client("w")
    watcher.subscribe(f"{name}/t", qos=2)
    client("p").publish(f"{name}/t", b"again", qos=qos, dup=True)
    watcher.expect_publish(payload=b"again", qos=qos, dup=False)


@pytest.mark.conforms311("MQTT-3.3.1-4")
def test_a_publish_with_qos_3_closes_the_connection(client: Client, name: str) -> None:
    watcher = client("w")
    watcher.subscribe(f"{name}/t", qos=2)
    wire = client()
    wire.send(p.publish(f"{name}/t", b"bad", qos=3, packet_id=1, version=4))
    wire.expect_closed()
    watcher.expect_nothing()


@pytest.mark.conforms311("MQTT-3.3.2-1")
@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00\x05abc"])
def test_a_publish_without_a_whole_topic_closes_the_connection(client: Client, body: bytes) -> None:
    wire = client()
    wire.send(p.frame(p.PUBLISH << 4, body))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.3.2-2", "MQTT-4.7.1-1")
@pytest.mark.parametrize("topic", ["#", "+", "a/#", "a/+/b", "a+", "a#b"])
def test_wildcards_in_a_topic_name_close_the_connection(client: Client, topic: str) -> None:
    wire = client()
    wire.send(p.publish(topic, version=4))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.3.2-3")
def test_a_delivered_topic_name_is_the_published_one(client: Client, name: str) -> None:
    wire = client()
    wire.subscribe(f"{name}/+/c", f"{name}/x/#")
    for topic in (f"{name}/b/c", f"{name}/x", f"{name}/x/y/z"):
        wire.publish(topic)
        wire.expect_publish(topic)


@pytest.mark.conforms311("MQTT-3.3.4-1")
def test_a_qos_0_publish_is_not_answered(client: Client, name: str) -> None:
    wire = client()
    wire.send_publish(f"{name}/t", b"quiet")
    wire.expect_nothing()


@pytest.mark.conforms311("MQTT-3.3.4-1")
def test_a_qos_1_publish_is_answered_with_one_puback(client: Client, name: str) -> None:
    wire = client()
    wire.send_publish(f"{name}/t", b"one", qos=1, packet_id=5)
    assert wire.expect(p.PUBACK).raw == b"\x40\x02\x00\x05"
    wire.expect_nothing()


@pytest.mark.conforms311("MQTT-3.3.4-1")
def test_a_qos_2_publish_is_answered_with_pubrec_and_pubcomp(client: Client, name: str) -> None:
    wire = client()
    wire.send_publish(f"{name}/t", b"two", qos=2, packet_id=5)
    assert wire.expect(p.PUBREC).raw == b"\x50\x02\x00\x05"
    wire.acknowledge(p.PUBREL, 5)
    assert wire.expect(p.PUBCOMP).raw == b"\x70\x02\x00\x05"
    wire.expect_nothing()


@pytest.mark.conforms311("MQTT-3.3.5-1")
def test_overlapping_subscriptions_deliver_with_their_highest_qos(
    client: Client, name: str
) -> None:
    wire = client("s")
    wire.subscribe((f"{name}/a", 0), (f"{name}/+", 2), (f"{name}/#", 1))
    client("p").publish(f"{name}/a", b"overlap", qos=2)
    messages = drain(wire)
    assert 1 <= len(messages) <= 3
    assert max(message.qos for message in messages) == 2
    assert {message.payload for message in messages} == {b"overlap"}


@pytest.mark.conforms311("MQTT-3.3.5-2", "MQTT-4.8.0-1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_forbidden_publish_is_acknowledged_or_closed_and_not_delivered(
    fresh_broker: BrokerFactory, level: int, qos: int
) -> None:
    broker = fresh_broker(config=DENY)
    with broker.client(level) as watcher, broker.client(level) as wire:
        watcher.connect("watcher")
        watcher.subscribe("#")
        wire.connect("offender")
        wire.send_publish("forbidden/t", b"secret", qos=qos)
        wire.send(p.PINGREQ_BYTES)
        answer = answer_or_close(wire)
        allowed = {0: (p.PINGRESP,), 1: (p.PUBACK,), 2: (p.PUBREC,)}[qos]
        assert answer is None or answer.type in allowed
        watcher.expect_nothing()


@pytest.mark.conforms311("MQTT-3.6.1-1", "MQTT-2.2.2-2")
@only_level_4
@pytest.mark.parametrize("flags", [0, 1, 3, 6, 10, 15])
def test_wrong_flags_of_pubrel_close_the_connection(client: Client, name: str, flags: int) -> None:
    wire = client()
    wire.send_publish(f"{name}/t", qos=2, packet_id=5)
    wire.expect(p.PUBREC, packet_id=5)
    wire.send(p.frame(p.PUBREL << 4 | flags, p.u16(5)))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-4.8.0-1")
def test_an_acknowledgement_for_nothing_harms_nobody(client: Client) -> None:
    wire = client()
    for packet_type in (p.PUBACK, p.PUBREC, p.PUBCOMP):
        wire.acknowledge(packet_type, 4242)
    # A server may close or ignore; when it stays, it still answers.
    wire.send(p.PINGREQ_BYTES)
    packet = answer_or_close(wire)
    while packet is not None and packet.type == p.PUBREL:
        packet = answer_or_close(wire)
    assert packet is None or packet.type == p.PINGRESP


@pytest.mark.conforms311("MQTT-7.0.0-2")
@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_payloads_around_the_length_boundaries_arrive_whole(
    client: Client, name: str, size: int
) -> None:
    wire = client()
    wire.subscribe(f"{name}/t", qos=1)
    payload = bytes(range(256)) * (size // 256 + 1)
    wire.publish(f"{name}/t", payload[:size], qos=1)
    wire.expect_publish(payload=payload[:size])
