"""Malformed packets and protocol errors (4.13): the right code, the close, no harm to others."""

from __future__ import annotations

import random

import pytest

from tests.conformance.conftest import Clients
from tests.conftest import BrokerFactory
from tests.harness import packets as p

MALFORMED, PROTOCOL_ERROR = 0x81, 0x82

BROKEN = {
    "type 0": b"\x00\x00",
    "remaining length of 5 bytes": b"\x30\xff\xff\xff\xff\x01",
    "remaining length which never ends": b"\xc0\x80\x80\x80\x80",
    "PUBLISH without a topic": b"\x30\x00",
    "PUBLISH with a cut topic length": b"\x30\x01\x00",
    "PUBLISH with a cut topic": b"\x30\x04\x00\x05ab",
    "PUBLISH without a packet identifier": b"\x32\x03\x00\x01a",
    "PUBLISH without a property length": b"\x30\x03\x00\x01a",
    "PUBLISH with properties past its end": b"\x30\x05\x00\x01a\x05\x01",
    "PUBLISH with a cut property": b"\x30\x06\x00\x01a\x02\x02\x00",
    "PUBLISH with a property length of 5 bytes": b"\x30\x09\x00\x01a\xff\xff\xff\xff\x01x",
    "PUBACK without an identifier": b"\x40\x00",
    "PUBACK with half an identifier": b"\x40\x01\x00",
    "PUBACK with bytes behind its properties": b"\x40\x06\x00\x01\x00\x00\x00\x00",
    "PUBREC with a cut property": b"\x50\x05\x00\x01\x00\x03\x1f",
    "PUBREL with half an identifier": b"\x62\x01\x00",
    "PUBCOMP without an identifier": b"\x70\x00",
    "SUBSCRIBE without anything": b"\x82\x00",
    "SUBSCRIBE without an option byte": b"\x82\x06\x00\x01\x00\x00\x01a",
    "SUBSCRIBE with a cut filter": b"\x82\x06\x00\x01\x00\x00\x09a",
    "UNSUBSCRIBE with a cut filter": b"\xa2\x06\x00\x01\x00\x00\x09a",
    "DISCONNECT with bytes behind its properties": b"\xe0\x03\x00\x00\x00",
    "DISCONNECT with properties past its end": b"\xe0\x03\x00\x05\x11",
}


@pytest.mark.conforms("MQTT-4.13.1-1", "MQTT-4.13.2-1", "MQTT-3.14.2-1", "MQTT-3.14.4-2")
@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
def test_a_malformed_packet_ends_the_connection_with_its_code(
    clients: Clients, data: bytes
) -> None:
    client = clients()
    client.send(data)
    client.expect_disconnect(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.conforms("MQTT-4.13.1-1")
@pytest.mark.parametrize(
    "data",
    [
        p.frame(0x20, b"\0\0\0"),
        p.frame(0x90, b"\0\1\0\0"),
        p.frame(0xB0, b"\0\1\0\0"),
        p.frame(0xD0),
    ],
    ids=["CONNACK", "SUBACK", "UNSUBACK", "PINGRESP"],
)
def test_packets_which_only_servers_send_are_refused(clients: Clients, data: bytes) -> None:
    client = clients()
    client.send(data)
    client.expect_disconnect(PROTOCOL_ERROR, MALFORMED)


@pytest.mark.conforms("MQTT-2.1.3-1")
@pytest.mark.parametrize("first_byte", [0x41, 0x52, 0x78, 0xC1, 0xCF, 0xF1])
def test_reserved_flags_of_the_fixed_header_are_malformed(
    clients: Clients, first_byte: int
) -> None:
    client = clients()
    body = b"\x00\x01" if first_byte < 0x80 else b""
    client.send(p.frame(first_byte, body))
    client.expect_disconnect(MALFORMED)


@pytest.mark.conforms("MQTT-4.13.1-1")
def test_a_pingreq_with_a_body_is_malformed(clients: Clients) -> None:
    client = clients()
    client.send(b"\xc0\x01\x00")
    client.expect_disconnect(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.conforms("MQTT-1.5.5-1")
@pytest.mark.parametrize("size", [127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_lengths_use_as_few_bytes_as_they_can(clients: Clients, name: str, size: int) -> None:
    subscriber = clients()
    subscriber.subscribe(name)
    head = len(p.publish(name)) - 2
    clients().publish(name, b"x" * (size - head))
    message = subscriber.expect_publish(name)
    assert len(message.raw) == 1 + len(p.varint(size)) + size


@pytest.mark.conforms("MQTT-1.5.5-1")
def test_a_length_with_a_needless_byte_does_no_harm(clients: Clients) -> None:
    client = clients()
    client.send(b"\xc0\x80\x00")
    answer = client.receive()
    assert answer.type == p.PINGRESP or (answer.type, answer.reason_code) == (14, MALFORMED)


@pytest.mark.conforms("MQTT-3.14.4-1", "MQTT-4.13.2-1")
def test_nothing_behind_a_malformed_packet_is_processed(clients: Clients, name: str) -> None:
    watcher, client = clients(), clients()
    watcher.subscribe(name)
    client.send(b"\x00\x00" + p.publish(name, b"never") + p.PINGREQ_BYTES)
    client.expect_disconnect(MALFORMED, PROTOCOL_ERROR)
    watcher.expect_nothing()


@pytest.mark.conforms("MQTT-4.13.1-1")
def test_what_came_before_a_malformed_packet_is_processed(clients: Clients, name: str) -> None:
    watcher, client = clients(), clients()
    watcher.subscribe(name)
    client.send(p.publish(name, b"before") + b"\x00\x00")
    client.expect_disconnect(MALFORMED, PROTOCOL_ERROR)
    watcher.expect_publish(name, b"before")


def test_packets_may_come_byte_by_byte(dial: Clients, name: str) -> None:
    client = dial()
    data = p.connect(name) + p.subscribe(1, [(name, 1)]) + p.publish(name, b"slow")
    for index in range(len(data)):
        client.send(data[index : index + 1])
    client.expect(p.CONNACK)
    client.expect(p.SUBACK)
    client.expect_publish(name, b"slow")


def test_many_packets_may_come_at_once(clients: Clients, name: str) -> None:
    client = clients()
    client.subscribe(name)
    client.send(b"".join(p.publish(name, str(number)) for number in range(1000)))
    assert [int(client.expect_publish().payload) for _ in range(1000)] == list(range(1000))


def test_a_connection_which_ends_inside_a_packet_does_no_harm(
    dial: Clients, clients: Clients, name: str
) -> None:
    whole = p.connect(name) + p.publish(name, b"x" * 100, qos=1, packet_id=1)
    for length in range(0, len(whole), 7):
        client = dial()
        client.send(whole[:length])
        client.close()
    clients(name).expect_nothing()


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_end_only_their_own_connection(clients: Clients, seed: int) -> None:
    bystander, client = clients(), clients()
    client.send(b"\x00\x00" + random.Random(seed).randbytes(400))
    client.expect_disconnect(MALFORMED, PROTOCOL_ERROR)
    bystander.expect_nothing()


@pytest.mark.conforms("MQTT-3.1.4-1", "MQTT-3.14.0-1")
@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_before_connect_end_the_connection(dial: Clients, seed: int) -> None:
    client = dial()
    client.send(b"\x00\x00" + random.Random(seed).randbytes(400))
    client.expect_closed()


@pytest.mark.conforms("MQTT-3.1.4-1", "MQTT-3.14.0-1")
def test_a_client_which_sends_no_connect_in_time_is_closed(
    fresh_broker: BrokerFactory, dial: Clients
) -> None:
    broker = fresh_broker({"mqtt.connect_timeout_s": 0.3})
    silent, half = dial(of=broker), dial(of=broker)
    half.send(p.connect("x")[:5])
    silent.expect_closed()
    half.expect_closed()


@pytest.mark.conforms("MQTT-3.1.2-29", "MQTT-3.14.2-1")
def test_a_reason_string_is_short_text(clients: Clients) -> None:
    client = clients()
    client.send(b"\x00\x00")
    reason = client.expect_disconnect().properties.get("reason_string", "")
    assert len(reason) < 500
