"""Sections 3.8 (SUBSCRIBE) and 3.9 (SUBACK)."""

from __future__ import annotations

import threading

import pytest

from tests.conformance.v311.conftest import Client
from tests.conformance.v311.reading import drain, only_level_4
from tests.conftest import BrokerFactory
from tests.harness import packets as p

DENY = """
[[acl]]
permission = "deny"
action = "subscribe"
topics = ["forbidden/#"]
"""


@pytest.mark.conforms311("MQTT-3.8.1-1", "MQTT-2.2.2-2")
@only_level_4
@pytest.mark.parametrize("flags", [0, 1, 3, 6, 10, 15])
def test_wrong_flags_of_subscribe_close_the_connection(client: Client, flags: int) -> None:
    wire = client()
    right = p.subscribe(1, [("t", 0)], version=4)
    wire.send(bytes([p.SUBSCRIBE << 4 | flags]) + right[1:])
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.8.3-2", "MQTT-3.8.4-5", "MQTT-3.9.3-2")
def test_a_server_without_wildcards_rejects_filters_with_them(
    fresh_broker: BrokerFactory, level: int
) -> None:
    broker = fresh_broker({"mqtt.wildcard_available": False})
    with broker.client(level) as wire:
        wire.connect("me")
        suback = wire.subscribe(("a/#", 1), ("a/+", 1), ("a/b", 1))
        assert suback.reason_codes == [0x80, 0x80, 1]
        wire.publish("a/c")
        wire.expect_nothing()


@pytest.mark.conforms311("MQTT-3.8.3-3", "MQTT-4.8.0-1")
def test_a_subscribe_without_filters_closes_the_connection(client: Client) -> None:
    wire = client()
    wire.send(p.subscribe(1, [], version=4))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.8.3-4")
@pytest.mark.parametrize("options", [3, 4, 8, 0x10, 0x40, 0x80, 0xFF])
def test_reserved_bits_or_qos_3_in_subscribe_close_the_connection(
    client: Client, options: int
) -> None:
    wire = client()
    wire.send(p.subscribe(1, [("t", options)], version=4))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.8.3-3")
def test_a_filter_without_its_qos_byte_closes_the_connection(client: Client) -> None:
    wire = client()
    wire.send(p.frame(p.SUBSCRIBE << 4 | 2, p.u16(1) + p.binary("t")))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-3.8.4-5", "MQTT-3.9.3-2")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_subscribe_is_answered_with_suback_and_the_granted_qos(
    client: Client, name: str, qos: int
) -> None:
    wire = client()
    wire.send(p.subscribe(77, [(f"{name}/t", qos)], version=4))
    assert wire.expect(p.SUBACK).raw == bytes([0x90, 3, 0, 77, qos])


@pytest.mark.conforms311("MQTT-3.8.4-3")
def test_the_same_filter_replaces_the_subscription(client: Client, name: str) -> None:
    wire = client("s")
    publisher = client("p")
    wire.subscribe(f"{name}/t", qos=2)
    wire.subscribe(f"{name}/t", qos=0)
    publisher.publish(f"{name}/t", b"lower", qos=2)
    wire.expect_publish(payload=b"lower", qos=0)
    wire.subscribe(f"{name}/t", qos=1)
    publisher.publish(f"{name}/t", b"higher", qos=2)
    wire.expect_publish(payload=b"higher", qos=1)
    wire.expect_nothing()
    wire.unsubscribe(f"{name}/t")
    publisher.publish(f"{name}/t", b"gone", qos=2)
    wire.expect_nothing()


@pytest.mark.conforms311("MQTT-3.8.4-3", "MQTT-3.3.1-8")
def test_the_same_filter_gets_retained_messages_again(client: Client, name: str) -> None:
    wire = client()
    wire.publish(f"{name}/t", b"kept", qos=1, retain=True)
    for _ in range(3):
        wire.subscribe(f"{name}/t", qos=1)
        wire.expect_publish(payload=b"kept", retain=True)
    wire.expect_nothing()
    wire.publish(f"{name}/t", b"", retain=True)


@pytest.mark.conforms311("MQTT-3.8.4-3")
def test_replacing_a_subscription_does_not_interrupt_the_flow(client: Client, name: str) -> None:
    wire, publisher = client("s"), client("p")
    wire.subscribe(f"{name}/t", qos=1)

    def publish_all() -> None:
        for number in range(100):
            publisher.publish(f"{name}/t", b"%d" % number, qos=1)

    thread = threading.Thread(target=publish_all)
    thread.start()
    got: list[bytes] = []
    while len(got) < 100:
        if len(got) % 10 == 0:
            wire.subscribe(f"{name}/t", qos=1)
        got.append(wire.expect_publish().payload)
    thread.join()
    assert got == [b"%d" % number for number in range(100)]


@pytest.mark.conforms311("MQTT-3.8.4-4", "MQTT-3.8.4-5", "MQTT-3.9.3-1")
def test_several_filters_get_one_suback_with_codes_in_their_order(
    client: Client, name: str
) -> None:
    wire = client()
    wanted = [2, 0, 1, 1, 0, 2]
    pairs: list[p.Subscription] = [(f"{name}/{i}", qos) for i, qos in enumerate(wanted)]
    wire.send(p.subscribe(9, pairs, version=4))
    wire.expect(p.SUBACK, packet_id=9, reason_codes=wanted)
    wire.expect_nothing()
    for index, qos in enumerate(wanted):
        wire.publish(f"{name}/{index}", qos=2)
        wire.expect_publish(f"{name}/{index}", qos=qos)


@pytest.mark.conforms311("MQTT-3.8.4-4", "MQTT-3.8.4-3")
def test_a_filter_twice_in_one_packet_counts_as_the_last(client: Client, name: str) -> None:
    wire = client("s")
    assert wire.subscribe((f"{name}/t", 2), (f"{name}/t", 0)).reason_codes == [2, 0]
    client("p").publish(f"{name}/t", b"x", qos=2)
    messages = drain(wire)
    assert [message.qos for message in messages] == [0]


@pytest.mark.conforms311("MQTT-3.8.4-5", "MQTT-3.9.3-1", "MQTT-3.9.3-2")
def test_a_forbidden_filter_gets_0x80_in_its_place(fresh_broker: BrokerFactory, level: int) -> None:
    broker = fresh_broker(config=DENY)
    with broker.client(level) as wire:
        wire.connect("me")
        assert wire.subscribe(("a", 1), ("forbidden/t", 2), ("b", 0)).reason_codes == [1, 0x80, 0]
        wire.publish("forbidden/t", b"unseen")
        wire.expect_nothing()
        wire.publish("b", b"seen")
        wire.expect_publish("b", b"seen")


@pytest.mark.conforms311("MQTT-3.8.4-6", "MQTT-3.3.5-1")
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_the_delivery_qos_is_the_lower_of_published_and_granted(
    client: Client, name: str, published: int, granted: int
) -> None:
    wire = client("s")
    wire.subscribe(f"{name}/t", qos=granted)
    client("p").publish(f"{name}/t", b"x", qos=published)
    wire.expect_publish(payload=b"x", qos=min(published, granted))
    wire.expect_nothing()


@pytest.mark.conforms311("MQTT-3.8.4-4")
def test_a_thousand_filters_fit_into_one_subscribe(client: Client, name: str) -> None:
    wire = client()
    suback = wire.subscribe(*[(f"{name}/{index}", 1) for index in range(1000)])
    assert suback.reason_codes == [1] * 1000
    wire.publish(f"{name}/999", qos=1)
    wire.expect_publish(f"{name}/999")
