"""Sections 1.5.3 (strings), 2.2.2 (flags) and 2.3.1 (packet identifiers)."""

from __future__ import annotations

import pytest

from tests.conformance.v311.conftest import Client, Raw
from tests.harness import packets as p
from tests.harness.packets import Will

pytestmark = pytest.mark.smoke

ILL_FORMED = [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xc0\xaf", b"\xf5\x80\x80\x80"]
RESERVED_FLAGS = [(p.PUBACK, 0), (p.PUBREC, 0), (p.PUBREL, 2), (p.PUBCOMP, 0)]


@pytest.mark.conforms311("MQTT-1.5.3-1", "MQTT-3.3.2-1")
@pytest.mark.parametrize("bad", ILL_FORMED, ids=lambda bad: bad.hex())
def test_an_ill_formed_topic_name_closes_the_connection(client: Client, bad: bytes) -> None:
    wire = client()
    wire.send(p.publish(b"t/" + bad, version=4))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-1.5.3-1", "MQTT-3.8.3-1")
@pytest.mark.parametrize("bad", ILL_FORMED, ids=lambda bad: bad.hex())
def test_an_ill_formed_topic_filter_closes_the_connection(client: Client, bad: bytes) -> None:
    wire = client()
    wire.send(p.subscribe(1, [(b"t/" + bad, 0)], version=4))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-1.5.3-1", "MQTT-3.10.3-1")
def test_an_ill_formed_filter_to_unsubscribe_closes_the_connection(client: Client) -> None:
    wire = client()
    wire.send(p.unsubscribe(1, [b"t/\xff"], version=4))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-1.5.3-1", "MQTT-3.1.3-4")
def test_an_ill_formed_client_id_closes_the_connection(raw: Raw, level: int) -> None:
    wire = raw()
    wire.send(p.connect(b"id\xed\xa0\x80", version=level))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-1.5.3-1", "MQTT-3.1.3-10")
def test_an_ill_formed_will_topic_closes_the_connection(raw: Raw, level: int, name: str) -> None:
    wire = raw()
    wire.send(p.connect(name, version=level, will=Will(b"w\xff")))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-1.5.3-1", "MQTT-3.1.3-11")
def test_an_ill_formed_user_name_closes_the_connection(raw: Raw, level: int, name: str) -> None:
    wire = raw()
    wire.send(p.connect(name, version=level, username=b"u\xff"))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-1.5.3-2", "MQTT-4.7.3-2")
def test_a_null_character_in_a_topic_name_closes_the_connection(client: Client) -> None:
    wire = client()
    wire.send(p.publish(b"a\x00b", version=4))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-1.5.3-2", "MQTT-4.7.3-2")
def test_a_null_character_in_a_topic_filter_closes_the_connection(client: Client) -> None:
    wire = client()
    wire.send(p.subscribe(1, [(b"a\x00b", 0)], version=4))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-1.5.3-2")
def test_a_null_character_in_the_client_id_closes_the_connection(raw: Raw, level: int) -> None:
    wire = raw()
    wire.send(p.connect(b"a\x00b", version=level))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-1.5.3-3")
def test_a_byte_order_mark_in_a_topic_is_kept(client: Client, name: str) -> None:
    wire = client()
    wire.subscribe(f"{name}/+")
    wire.publish(f"{name}/\ufeffx", b"marked")
    assert wire.expect_publish().topic == f"{name}/\ufeffx"


@pytest.mark.conforms311("MQTT-1.5.3-3")
def test_a_byte_order_mark_distinguishes_topics(client: Client, name: str) -> None:
    wire = client()
    wire.subscribe(f"{name}/x")
    wire.publish(f"{name}/\ufeffx")
    wire.expect_nothing()


@pytest.mark.conforms311("MQTT-2.2.2-1", "MQTT-2.2.2-2")
@pytest.mark.parametrize(("packet_type", "right"), RESERVED_FLAGS)
def test_wrong_flags_of_an_acknowledgement_close_the_connection(
    client: Client, packet_type: int, right: int
) -> None:
    for flags in {0, 1, 2, 4, 8, 15} - {right}:
        wire = client()
        wire.send(p.frame(packet_type << 4 | flags, p.u16(1)))
        wire.expect_closed()


@pytest.mark.conforms311("MQTT-2.2.2-2")
def test_wrong_flags_of_connect_close_the_connection(raw: Raw, level: int, name: str) -> None:
    wire = raw()
    right = p.connect(name, version=level)
    wire.send(bytes([right[0] | 1]) + right[1:])
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-2.2.2-2", "MQTT-4.8.0-1")
def test_wrong_flags_of_pingreq_close_the_connection(client: Client) -> None:
    wire = client()
    wire.send(b"\xc1\x00")
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-4.8.0-1")
@pytest.mark.parametrize("packet_type", [0, p.CONNACK, p.SUBACK, p.UNSUBACK, p.PINGRESP, p.AUTH])
def test_a_packet_only_a_server_or_nobody_may_send_closes_the_connection(
    client: Client, packet_type: int
) -> None:
    wire = client()
    wire.send(p.frame(packet_type << 4, b"\x00\x00"))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-4.8.0-1")
def test_a_remaining_length_of_five_bytes_closes_the_connection(client: Client) -> None:
    wire = client()
    wire.send(b"\x30\xff\xff\xff\xff\x01")
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-4.8.0-1")
def test_a_violation_harms_no_other_connection(client: Client, name: str) -> None:
    witness = client("witness")
    witness.subscribe(f"{name}/t")
    offender = client("offender")
    offender.send(b"\xf0\x00")
    offender.expect_closed()
    witness.publish(f"{name}/t", b"alive")
    witness.expect_publish(payload=b"alive")


@pytest.mark.conforms311("MQTT-2.3.1-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_publish_with_packet_id_zero_closes_the_connection(client: Client, qos: int) -> None:
    wire = client()
    wire.send(p.publish("t", qos=qos, packet_id=0, version=4))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-2.3.1-1")
def test_a_subscribe_with_packet_id_zero_closes_the_connection(client: Client) -> None:
    wire = client()
    wire.send(p.subscribe(0, [("t", 0)], version=4))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-2.3.1-1")
def test_an_unsubscribe_with_packet_id_zero_closes_the_connection(client: Client) -> None:
    wire = client()
    wire.send(p.unsubscribe(0, ["t"], version=4))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-2.3.1-1", "MQTT-2.3.1-4", "MQTT-4.3.2-1", "MQTT-4.3.3-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_deliveries_have_different_packet_ids(
    client: Client, name: str, qos: int
) -> None:
    subscriber, publisher = client("s"), client("p")
    subscriber.subscribe(f"{name}/t", qos=qos)
    for _ in range(20):
        publisher.publish(f"{name}/t", qos=qos)
    messages = [subscriber.expect_publish(ack=False) for _ in range(20)]
    identifiers = {message.packet_id for message in messages}
    assert len(identifiers) == 20
    assert 0 not in identifiers
    assert not any(message.dup for message in messages)


@pytest.mark.conforms311("MQTT-2.3.1-5", "MQTT-4.3.1-1", "MQTT-3.3.1-2")
def test_a_qos_0_delivery_has_no_packet_id_and_no_dup(client: Client, name: str) -> None:
    wire = client()
    wire.subscribe(f"{name}/t", qos=2)
    wire.publish(f"{name}/t", b"\x00\x01payload")
    message = wire.expect_publish(payload=b"\x00\x01payload")
    assert message.qos == 0
    assert not message.dup


@pytest.mark.conforms311("MQTT-2.3.1-6", "MQTT-3.3.4-1", "MQTT-4.3.2-2")
def test_puback_carries_the_packet_id_of_the_publish(client: Client, name: str) -> None:
    wire = client()
    for packet_id in (1, 257, 65535):
        wire.send(p.publish(f"{name}/t", qos=1, packet_id=packet_id, version=4))
        wire.expect(p.PUBACK, packet_id=packet_id)


@pytest.mark.conforms311("MQTT-2.3.1-6", "MQTT-3.3.4-1", "MQTT-4.3.3-2")
def test_pubrec_and_pubcomp_carry_the_packet_id_of_the_publish(client: Client, name: str) -> None:
    wire = client()
    for packet_id in (1, 257, 65535):
        wire.send(p.publish(f"{name}/t", qos=2, packet_id=packet_id, version=4))
        wire.expect(p.PUBREC, packet_id=packet_id)
        wire.acknowledge(p.PUBREL, packet_id)
        wire.expect(p.PUBCOMP, packet_id=packet_id)


@pytest.mark.conforms311("MQTT-2.3.1-7", "MQTT-3.8.4-2", "MQTT-3.10.4-4")
def test_suback_and_unsuback_carry_the_packet_id_of_the_request(client: Client, name: str) -> None:
    wire = client()
    for packet_id in (1, 4660, 65535):
        wire.send(p.subscribe(packet_id, [(f"{name}/t", 0)], version=4))
        wire.expect(p.SUBACK, packet_id=packet_id)
        wire.send(p.unsubscribe(packet_id, [f"{name}/t"], version=4))
        wire.expect(p.UNSUBACK, packet_id=packet_id)
