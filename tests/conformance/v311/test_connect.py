"""Sections 3.1 (CONNECT) and 3.2 (CONNACK), without sessions and wills."""

from __future__ import annotations

import pytest

from tests.conformance.v311.conftest import Client, Raw
from tests.harness import packets as p
from tests.harness.packets import Will

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
USER_NAME, PASSWORD, WILL_RETAIN, WILL, CLEAN = 0x80, 0x40, 0x20, 0x04, 0x02


@pytest.mark.conforms311("MQTT-3.1.0-1", "MQTT-3.2.0-1")
@pytest.mark.parametrize(
    "first",
    [p.PINGREQ_BYTES, p.publish("t", version=4), p.subscribe(1, [("t", 0)], version=4)],
    ids=["PINGREQ", "PUBLISH", "SUBSCRIBE"],
)
def test_a_first_packet_which_is_not_connect_closes_the_connection(raw: Raw, first: bytes) -> None:
    wire = raw()
    wire.send(first)
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.1.0-2", "MQTT-4.8.0-1")
def test_a_second_connect_closes_the_connection(client: Client, level: int, name: str) -> None:
    wire = client()
    wire.send(p.connect(name, version=level))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.1.2-1")
@pytest.mark.parametrize("protocol_name", ["MQTTX", "mqtt", "MQISDP", "", "HTTP"])
def test_a_wrong_protocol_name_is_not_accepted(
    raw: Raw, level: int, name: str, protocol_name: str
) -> None:
    wire = raw()
    wire.send(p.connect(name, version=level, protocol_name=protocol_name))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.1.2-2", "MQTT-3.2.2-4", "MQTT-3.2.2-5")
@pytest.mark.parametrize("unknown", [0, 1, 2, 6, 127, 255])
def test_an_unknown_protocol_level_gets_connack_1_and_a_close(
    raw: Raw, name: str, unknown: int
) -> None:
    wire = raw()
    wire.send(p.connect(name, version=unknown, protocol_name="MQTT"))
    wire.expect(p.CONNACK, reason_code=1, session_present=False)
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.1.2-3", "MQTT-3.1.4-1")
def test_the_reserved_connect_flag_closes_the_connection(raw: Raw, level: int, name: str) -> None:
    wire = raw()
    wire.send(p.connect(name, version=level, flags=CLEAN | 1))
    wire.expect_closed()


def _body(level: int, flags: int, *fields: str) -> bytes:
    protocol_name = "MQIsdp" if level == 3 else "MQTT"
    head = p.binary(protocol_name) + bytes([level, flags]) + p.u16(0)
    return p.frame(p.CONNECT << 4, head + b"".join(p.binary(one) for one in fields))


@pytest.mark.conforms311("MQTT-3.1.4-1", "MQTT-3.2.2-6")
@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        pytest.param(CLEAN, [], id="MQTT-3.1.3-3: no client id"),
        pytest.param(CLEAN | WILL, ["id"], id="MQTT-3.1.2-9: will flag, no will"),
        pytest.param(CLEAN | WILL, ["id", "topic"], id="MQTT-3.1.2-9: no will message"),
        pytest.param(CLEAN, ["id", "t", "m"], id="MQTT-3.1.2-11: will without flag"),
        pytest.param(CLEAN | 0x08, ["id"], id="MQTT-3.1.2-13: will QoS 1 without will"),
        pytest.param(CLEAN | 0x10, ["id"], id="MQTT-3.1.2-13: will QoS 2 without will"),
        pytest.param(CLEAN | WILL | 0x18, ["id", "t", "m"], id="MQTT-3.1.2-14: will QoS 3"),
        pytest.param(CLEAN | WILL_RETAIN, ["id"], id="MQTT-3.1.2-15: will retain without will"),
        pytest.param(CLEAN, ["id", "user"], id="MQTT-3.1.2-18: user name without flag"),
        pytest.param(CLEAN | USER_NAME, ["id"], id="MQTT-3.1.2-19: no user name"),
        pytest.param(
            CLEAN | USER_NAME, ["id", "user", "pw"], id="MQTT-3.1.2-20: password without flag"
        ),
        pytest.param(CLEAN | USER_NAME | PASSWORD, ["id", "u"], id="MQTT-3.1.2-21: no password"),
        pytest.param(CLEAN | PASSWORD, ["id", "pw"], id="MQTT-3.1.2-22: password alone"),
    ],
)
def test_a_connect_against_its_flags_is_closed_without_connack(
    raw: Raw, level: int, flags: int, fields: list[str]
) -> None:
    wire = raw()
    wire.send(_body(level, flags, *fields))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.1.3-1", "MQTT-3.1.2-9")
def test_the_payload_fields_are_read_in_their_order(raw: Raw, client: Client, name: str) -> None:
    watcher = client("watcher")
    watcher.subscribe(f"{name}/will", qos=1)
    wire = raw()
    wire.connect(
        name, will=Will(f"{name}/will", b"message", qos=1), username="user", password="secret"
    )
    wire.close()
    watcher.expect_publish(f"{name}/will", b"message")


@pytest.mark.conforms311("MQTT-3.1.3-5")
def test_client_ids_of_one_to_23_letters_and_digits_are_accepted(raw: Raw, name: str) -> None:
    ids = [name[0], (name + "x" * 23)[:23]]
    ids += [ALPHABET[start : start + 21] + name[:2] for start in (0, 21, 42)]
    for client_id in ids:
        assert len(client_id) <= 23
        wire = raw()
        wire.connect(client_id)
        wire.disconnect()


@pytest.mark.conforms311("MQTT-3.1.3-6", "MQTT-3.1.2-18", "MQTT-3.1.2-20")
def test_empty_client_ids_with_clean_session_get_different_sessions(raw: Raw, name: str) -> None:
    first, second = raw(), raw()
    for wire in (first, second):
        assert not wire.connect("").session_present
        wire.subscribe(f"{name}/t")
    first.publish(f"{name}/t", b"both are here")
    first.expect_publish(payload=b"both are here")
    second.expect_publish(payload=b"both are here")


@pytest.mark.conforms311(
    "MQTT-3.1.3-7", "MQTT-3.1.3-8", "MQTT-3.1.3-9", "MQTT-3.2.2-4", "MQTT-3.2.2-5"
)
def test_an_empty_client_id_without_clean_session_gets_connack_2(raw: Raw) -> None:
    wire = raw()
    connack = wire.connect("", clean=False, expect_code=2)
    assert not connack.session_present
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.1.4-2", "MQTT-3.1.3-2")
@pytest.mark.parametrize("clean", [True, False])
def test_a_second_connection_with_one_client_id_disconnects_the_first(
    client: Client, clean: bool
) -> None:
    first = client("", clean=clean)
    second = client("", clean=clean)
    first.expect_closed()
    second.ping()


@pytest.mark.conforms311("MQTT-3.1.3-2")
def test_client_ids_which_differ_in_case_are_different_clients(raw: Raw, name: str) -> None:
    lower, upper = raw(), raw()
    lower.connect(f"{name}x")
    upper.connect(f"{name}X")
    lower.ping()
    upper.ping()


@pytest.mark.conforms311("MQTT-3.1.4-4", "MQTT-3.2.0-1", "MQTT-3.2.2-1", "MQTT-3.2.2-3")
@pytest.mark.parametrize("clean", [True, False])
def test_a_new_client_gets_connack_0_without_session_present(
    raw: Raw, name: str, clean: bool
) -> None:
    wire = raw()
    connack = wire.connect(name, clean=clean)
    assert connack.raw == b"\x20\x02\x00\x00"
    wire.disconnect()
    raw().connect(name, clean=True)


@pytest.mark.conforms311("MQTT-3.1.4-5")
def test_nothing_after_a_rejected_connect_is_processed(raw: Raw, client: Client, name: str) -> None:
    watcher = client("watcher")
    watcher.subscribe(f"{name}/t")
    wire = raw()
    rejected = p.connect(f"{name}r", version=9, protocol_name="MQTT")
    wire.send(rejected + p.publish(f"{name}/t", b"never", version=4))
    wire.expect(p.CONNACK, reason_code=1)
    wire.expect_closed()
    watcher.expect_nothing()


@pytest.mark.conforms311("MQTT-3.1.4-4")
def test_packets_sent_before_connack_arrives_are_processed(raw: Raw, level: int, name: str) -> None:
    wire = raw()
    wire.send(
        p.connect(name, version=level)
        + p.subscribe(7, [(f"{name}/t", 1)], version=level)
        + p.publish(f"{name}/t", b"early", qos=1, packet_id=8, version=level)
    )
    wire.expect(p.CONNACK, reason_code=0)
    wire.expect(p.SUBACK, packet_id=7, reason_codes=[1])
    kinds = {wire.receive().type, wire.receive().type}
    assert kinds == {p.PUBACK, p.PUBLISH}


@pytest.mark.conforms311("MQTT-7.1.1-1", "MQTT-7.0.0-2")
def test_packets_may_arrive_byte_by_byte(raw: Raw, level: int, name: str) -> None:
    wire = raw()
    packets = p.connect(name, version=level) + p.subscribe(1, [(f"{name}/t", 0)], version=level)
    for byte in packets + p.publish(f"{name}/t", b"slow", version=level):
        wire.send(bytes([byte]))
    wire.expect(p.CONNACK, reason_code=0)
    wire.expect(p.SUBACK, packet_id=1)
    wire.expect_publish(f"{name}/t", b"slow")
