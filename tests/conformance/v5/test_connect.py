"""CONNECT (3.1) and CONNACK (3.2): what is accepted, what is refused, and with which code."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Clients
from tests.harness import packets as p
from tests.harness.packets import Will

MALFORMED, PROTOCOL_ERROR, UNSUPPORTED_VERSION = 0x81, 0x82, 0x84


@pytest.mark.conforms("MQTT-3.1.4-5", "MQTT-3.2.0-1", "MQTT-3.2.2-1", "MQTT-3.2.2-8")
def test_a_connect_is_answered_by_one_connack_with_success(clients: Clients) -> None:
    client = clients()
    assert client.connack is not None
    assert client.connack.reason_code == 0
    client.expect_nothing()


@pytest.mark.conforms("MQTT-3.1.0-1", "MQTT-3.14.0-1")
@pytest.mark.parametrize(
    "first",
    [p.PINGREQ_BYTES, p.publish("a", b"b"), p.subscribe(1, [("a", 0)]), p.auth(0x18)],
    ids=["PINGREQ", "PUBLISH", "SUBSCRIBE", "AUTH"],
)
def test_another_first_packet_than_connect_closes(dial: Clients, first: bytes) -> None:
    client = dial()
    client.send(first)
    client.expect_closed()


@pytest.mark.conforms("MQTT-3.1.0-2", "MQTT-3.2.0-2", "MQTT-4.13.1-1")
def test_a_second_connect_is_a_protocol_error(clients: Clients, name: str) -> None:
    client = clients(name)
    client.send(p.connect(name))
    client.expect_disconnect(PROTOCOL_ERROR)


@pytest.mark.conforms("MQTT-3.1.2-1", "MQTT-3.2.2-7", "MQTT-3.14.0-1")
@pytest.mark.parametrize("protocol_name", ["MQTX", "mqtt", "", "MQTTT", "MQIsdp"])
def test_another_protocol_name_is_refused(dial: Clients, protocol_name: str) -> None:
    client = dial()
    client.send(p.connect("x", protocol_name=protocol_name))
    answer = client.read_to_close()
    assert answer == b"" or (answer[0], answer[3]) in {(0x20, 0x84), (0x20, 0x81), (0x20, 1)}


@pytest.mark.conforms("MQTT-3.1.2-2", "MQTT-3.2.2-7")
@pytest.mark.parametrize("level", [0, 1, 2, 6, 127, 255])
def test_another_protocol_version_is_refused_with_unsupported_version(
    dial: Clients, level: int
) -> None:
    client = dial()
    client.send(p.connect("x", version=level, protocol_name="MQTT"))
    answer = client.read_to_close()
    assert (answer[0], answer[2]) == (0x20, 0)
    assert answer[3] in (UNSUPPORTED_VERSION, 1)


@pytest.mark.conforms("MQTT-3.1.2-3", "MQTT-3.1.4-1", "MQTT-4.13.1-1")
def test_the_reserved_connect_flag_must_be_zero(dial: Clients) -> None:
    client = dial()
    client.send(p.connect("x", flags=0b0000_0011))
    client.expect_refused(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.conforms("MQTT-2.1.3-1", "MQTT-3.1.4-1")
def test_reserved_bits_of_the_fixed_header_of_connect_must_be_zero(dial: Clients) -> None:
    client = dial()
    client.send(b"\x11" + p.connect("x")[1:])
    answer = client.read_to_close()
    assert answer == b"" or (answer[0], answer[3]) == (0x20, MALFORMED)


@pytest.mark.conforms("MQTT-3.1.2-11", "MQTT-3.1.2-13")
@pytest.mark.parametrize("flags", [0b0000_1010, 0b0001_0010, 0b0010_0010])
def test_will_qos_and_retain_without_a_will_are_refused(dial: Clients, flags: int) -> None:
    client = dial()
    client.send(p.connect("x", flags=flags))
    client.expect_refused(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.conforms("MQTT-3.1.2-12")
def test_will_qos_3_is_malformed(dial: Clients) -> None:
    client = dial()
    client.send(p.connect("x", will=Will("t"), flags=0b0001_1110))
    client.expect_refused(MALFORMED)


@pytest.mark.conforms(
    "MQTT-3.1.2-9", "MQTT-3.1.2-16", "MQTT-3.1.2-17", "MQTT-3.1.2-18", "MQTT-3.1.2-19",
    "MQTT-3.1.3-1", "MQTT-3.1.3-3", "MQTT-3.1.4-1",
)  # fmt: skip
@pytest.mark.parametrize(
    "packet",
    [
        p.connect("x", username="u", flags=0b0000_0010),
        p.connect("x", flags=0b1000_0010),
        p.connect("x", password="s", flags=0b0000_0010),
        p.connect("x", flags=0b0100_0010),
        p.connect("x", username="u", flags=0b1100_0010),
        p.connect("x", flags=0b0000_0110),
        p.frame(0x10, p.binary("MQTT") + b"\x05\x02\x00\x00\x00"),
    ],
    ids=[
        "user name without flag",
        "flag without user name",
        "password without flag",
        "flag without password",
        "password missing",
        "will missing",
        "no client identifier",
    ],
)
def test_payload_and_connect_flags_must_agree(dial: Clients, packet: bytes) -> None:
    client = dial()
    client.send(packet)
    client.expect_refused(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.conforms("MQTT-3.1.3-4", "MQTT-3.1.3-11", "MQTT-3.1.3-12", "MQTT-1.5.4-1")
@pytest.mark.parametrize(
    "packet",
    [
        p.connect(b"\xff\xfe"),
        p.connect(b"a\xed\xa0\x80"),
        p.connect("x", will=Will(b"\xc3\x28")),
        p.connect("x", username=b"\xf8\x88\x80\x80\x80"),
    ],
    ids=["client id", "surrogate in client id", "will topic", "user name"],
)
def test_strings_of_connect_must_be_utf8(dial: Clients, packet: bytes) -> None:
    client = dial()
    client.send(packet)
    client.expect_refused(MALFORMED, 0x85, 0x90)


@pytest.mark.conforms("MQTT-1.5.4-2", "MQTT-4.7.3-2")
@pytest.mark.parametrize(
    "packet",
    [p.connect("a\0b"), p.connect("x", will=Will("a\0b")), p.connect("x", username="u\0")],
    ids=["client id", "will topic", "user name"],
)
def test_strings_of_connect_must_not_hold_the_null_character(dial: Clients, packet: bytes) -> None:
    client = dial()
    client.send(packet)
    client.expect_refused(MALFORMED, 0x85, 0x90)


@pytest.mark.conforms("MQTT-3.1.3-5")
@pytest.mark.parametrize(
    "client_id",
    ["a", "Z", "0", "abcdefghijklmnopqrstuvw", "ABCDEFGHIJKLMNOPQRSTUVW", "xyzXYZ0123456789"],
)
def test_identifiers_of_letters_and_digits_up_to_23_bytes_are_accepted(
    clients: Clients, client_id: str
) -> None:
    client = clients(client_id)
    assert client.connack is not None
    assert "assigned_client_identifier" not in client.connack.properties


@pytest.mark.conforms("MQTT-3.1.3-6", "MQTT-3.1.3-7", "MQTT-3.2.2-16")
def test_an_empty_identifier_is_replaced_by_a_unique_assigned_one(clients: Clients) -> None:
    assigned = set()
    for _ in range(3):
        client = clients("")
        assert client.connack is not None
        assigned.add(client.connack.properties["assigned_client_identifier"])
    assert len(assigned) == 3
    assert "" not in assigned


@pytest.mark.conforms("MQTT-3.1.3-7", "MQTT-3.1.3-2")
def test_an_assigned_identifier_names_a_session_which_can_be_resumed(clients: Clients) -> None:
    first = clients("", properties={"session_expiry_interval": 60})
    assert first.connack is not None
    client_id = first.connack.properties["assigned_client_identifier"]
    first.disconnect()
    second = clients(client_id, clean=False)
    assert second.connack is not None
    assert second.connack.session_present


@pytest.mark.conforms("MQTT-3.1.3-6", "MQTT-3.2.2-3")
def test_an_empty_identifier_with_clean_start_0_gets_a_new_session(clients: Clients) -> None:
    client = clients("", clean=False)
    assert client.connack is not None
    assert not client.connack.session_present
    assert client.connack.properties["assigned_client_identifier"]


@pytest.mark.conforms("MQTT-3.1.4-6", "MQTT-3.2.2-6", "MQTT-3.2.2-7")
def test_nothing_behind_a_refused_connect_is_processed(
    dial: Clients, clients: Clients, name: str
) -> None:
    watcher = clients()
    watcher.subscribe(name)
    refused = dial()
    refused.send(p.connect("x", flags=3) + p.publish(name, b"never"))
    refused.expect_refused(MALFORMED, PROTOCOL_ERROR)
    watcher.expect_nothing()


@pytest.mark.conforms("MQTT-3.1.4-5", "MQTT-3.2.0-1")
def test_packets_sent_right_behind_connect_are_processed_after_it(dial: Clients, name: str) -> None:
    client = dial()
    client.send(p.connect(name) + p.subscribe(1, [(name, 0)]) + p.publish(name, b"quick"))
    client.expect(p.CONNACK, reason_code=0)
    client.expect(p.SUBACK, packet_id=1)
    client.expect_publish(name, b"quick")


@pytest.mark.conforms("MQTT-2.2.2-1")
def test_a_connect_without_a_property_length_is_malformed(dial: Clients) -> None:
    client = dial()
    client.send(p.frame(0x10, p.binary("MQTT") + b"\x05\x02\x00\x00"))
    client.expect_refused(MALFORMED, PROTOCOL_ERROR)


def test_bytes_behind_the_payload_of_connect_are_malformed(dial: Clients) -> None:
    client = dial()
    whole = p.connect("x")
    client.send(p.frame(0x10, whole[2:] + b"\x00"))
    client.expect_refused(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.conforms("MQTT-3.12.4-1")
def test_pingreq_is_answered_by_pingresp(clients: Clients) -> None:
    client = clients()
    client.send(p.PINGREQ_BYTES * 3)
    for _ in range(3):
        client.expect(p.PINGRESP)
