"""Properties of CONNECT and CONNACK: what the two sides announce, and what is refused."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conformance.conftest import Clients
from tests.conftest import BrokerFactory
from tests.harness import packets as p
from tests.harness.packets import Will

MALFORMED, PROTOCOL_ERROR = 0x81, 0x82

ONCE = [
    ("session_expiry_interval", 1),
    ("receive_maximum", 5),
    ("maximum_packet_size", 500),
    ("topic_alias_maximum", 3),
    ("request_response_information", 0),
    ("request_problem_information", 1),
    ("authentication_method", "X"),
]


@pytest.mark.conforms("MQTT-3.1.4-1", "MQTT-4.13.1-1")
@pytest.mark.parametrize(("property_name", "value"), ONCE, ids=[name for name, _ in ONCE])
def test_a_repeated_property_is_a_protocol_error(
    dial: Clients, property_name: str, value: Any
) -> None:
    client = dial()
    client.send(p.connect("x", properties=[(property_name, value), (property_name, value)]))
    client.expect_refused(PROTOCOL_ERROR, MALFORMED)


@pytest.mark.conforms("MQTT-3.1.4-1")
@pytest.mark.parametrize(
    ("property_name", "value"),
    [
        ("receive_maximum", 0),
        ("maximum_packet_size", 0),
        ("request_response_information", 2),
        ("request_problem_information", 2),
        ("authentication_data", b"without a method"),
    ],
)
def test_values_which_the_standard_forbids_are_protocol_errors(
    dial: Clients, property_name: str, value: Any
) -> None:
    client = dial()
    client.send(p.connect("x", properties={property_name: value}))
    client.expect_refused(PROTOCOL_ERROR, MALFORMED)


@pytest.mark.conforms("MQTT-3.1.4-1")
@pytest.mark.parametrize(
    "properties",
    [
        {"topic_alias": 1},
        {"server_keep_alive": 5},
        {"subscription_identifier": 1},
        {"will_delay_interval": 5},
        b"\x7f\x00",
        b"\x80\x01\x00",
        b"\x21\x00",
        b"\x26\x00\x01a",
    ],
    ids=[
        "topic alias",
        "server keep alive",
        "subscription id",
        "will delay outside the will",
        "unknown id",
        "unknown two-byte id",
        "cut value",
        "cut pair",
    ],
)
def test_a_property_which_is_no_property_of_connect_is_refused(
    dial: Clients, properties: p.Properties
) -> None:
    client = dial()
    client.send(p.connect("x", properties=properties))
    client.expect_refused(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.conforms("MQTT-1.5.7-1", "MQTT-1.5.4-1", "MQTT-1.5.4-2")
@pytest.mark.parametrize("pair", [(b"\xff", "v"), ("k", b"\xff"), ("k\0", "v"), ("k", "\0")])
def test_both_halves_of_a_user_property_must_be_valid_strings(
    dial: Clients, pair: tuple[str | bytes, str | bytes]
) -> None:
    client = dial()
    client.send(p.connect("x", properties=[("user_property", pair)]))
    client.expect_refused(MALFORMED)


@pytest.mark.conforms("MQTT-3.1.2-28")
def test_no_response_information_unless_it_was_requested(
    fresh_broker: BrokerFactory, clients: Clients
) -> None:
    broker = fresh_broker({"mqtt.response_information": "answers/"})
    for properties in (None, {"request_response_information": 0}):
        client = clients(of=broker, properties=properties)
        assert client.connack is not None
        assert "response_information" not in client.connack.properties
    asking = clients(of=broker, properties={"request_response_information": 1})
    assert asking.connack is not None
    assert asking.connack.properties["response_information"].startswith("answers/")


@pytest.mark.conforms("MQTT-3.1.2-29")
def test_without_problem_information_acknowledgements_carry_no_reasons(
    clients: Clients, name: str
) -> None:
    client = clients(properties={"request_problem_information": 0})
    answers = [
        client.subscribe(name, qos=1),
        client.unsubscribe("never/subscribed"),
        client.publish(f"{name}/nobody", b"", qos=1),
        client.publish(f"{name}/nobody", b"", qos=2),
    ]
    for answer in answers:
        assert "reason_string" not in answer.properties
        assert answer.user_properties == []


@pytest.mark.conforms("MQTT-3.2.2-9", "MQTT-3.2.2-10", "MQTT-3.2.2-11", "MQTT-3.2.2-12")
def test_a_server_with_a_maximum_qos_says_so_and_holds_to_it(
    fresh_broker: BrokerFactory, dial: Clients, clients: Clients, name: str
) -> None:
    broker = fresh_broker({"mqtt.qos_max": 1})
    client = clients(of=broker)
    assert client.connack is not None
    assert client.connack.properties["maximum_qos"] == 1
    granted = client.subscribe((f"{name}/0", 0), (f"{name}/1", 1), (f"{name}/2", 2)).reason_codes
    assert granted == [0, 1, 1]
    will_client = dial(of=broker)
    will_client.send(p.connect("w", will=Will(name, qos=2)))
    will_client.expect_refused(0x9B)
    client.send_publish(name, b"x", qos=2)
    client.expect_disconnect(0x9B)


@pytest.mark.conforms("MQTT-3.2.2-13", "MQTT-3.2.2-14")
def test_a_server_without_retained_messages_says_so_and_refuses_them(
    fresh_broker: BrokerFactory, dial: Clients, clients: Clients, name: str
) -> None:
    broker = fresh_broker({"mqtt.retain_available": False})
    client = clients(of=broker)
    assert client.connack is not None
    assert client.connack.properties["retain_available"] == 0
    will_client = dial(of=broker)
    will_client.send(p.connect("w", will=Will(name, retain=True)))
    will_client.expect_refused(0x9A)
    client.send_publish(name, b"x", retain=True)
    client.expect_disconnect(0x9A)


@pytest.mark.conforms("MQTT-3.9.3-2", "MQTT-3.8.4-7")
def test_a_server_without_wildcards_or_sharing_says_so_and_refuses_them(
    fresh_broker: BrokerFactory, clients: Clients, name: str
) -> None:
    broker = fresh_broker({"mqtt.wildcard_available": False, "mqtt.shared_available": False})
    client = clients(of=broker)
    assert client.connack is not None
    assert client.connack.properties["wildcard_subscription_available"] == 0
    assert client.connack.properties["shared_subscription_available"] == 0
    codes = client.subscribe(f"{name}/#", f"$share/g/{name}", name).reason_codes
    assert codes == [0xA2, 0x9E, 0]


@pytest.mark.conforms("MQTT-3.1.2-21", "MQTT-3.2.2-21", "MQTT-3.1.2-22")
def test_a_keep_alive_above_the_limit_is_replaced_by_server_keep_alive(
    fresh_broker: BrokerFactory, clients: Clients
) -> None:
    broker = fresh_broker({"mqtt.keepalive_s_max": 1})
    for asked in (0, 60):
        client = clients(of=broker, keepalive=asked)
        assert client.connack is not None
        assert client.connack.properties["server_keep_alive"] == 1
        client.expect_disconnect(0x8D, timeout=4)


@pytest.mark.conforms("MQTT-3.1.2-22", "MQTT-3.2.2-22", "MQTT-3.14.2-1")
def test_silence_of_one_and_a_half_keep_alives_ends_the_connection(clients: Clients) -> None:
    client = clients(keepalive=1)
    assert client.connack is not None
    assert "server_keep_alive" not in client.connack.properties
    client.expect_disconnect(0x8D, timeout=4)


@pytest.mark.conforms("MQTT-3.1.2-23", "MQTT-3.2.2-8")
def test_a_session_expiry_above_the_limit_is_lowered_and_told(
    fresh_broker: BrokerFactory, clients: Clients
) -> None:
    broker = fresh_broker({"mqtt.session_expiry_s_max": 10})
    client = clients(of=broker, properties={"session_expiry_interval": 3600})
    assert client.connack is not None
    assert client.connack.properties["session_expiry_interval"] == 10


def test_announced_limits_are_the_configured_ones(
    fresh_broker: BrokerFactory, clients: Clients
) -> None:
    broker = fresh_broker(
        {"mqtt.receive_max": 7, "mqtt.topic_alias_max": 3, "mqtt.packet_size_bytes_max": 2048}
    )
    connack = clients(of=broker).connack
    assert connack is not None
    assert connack.properties["receive_maximum"] == 7
    assert connack.properties["topic_alias_maximum"] == 3
    assert connack.properties["maximum_packet_size"] == 2048


@pytest.mark.conforms("MQTT-3.1.2-20", "MQTT-3.1.2-22")
def test_any_packet_keeps_the_connection_alive(clients: Clients, name: str) -> None:
    client = clients(keepalive=1)
    for _ in range(4):
        time.sleep(0.7)
        client.send_publish(name, b"I am here")
    client.expect_nothing()


@pytest.mark.conforms("MQTT-3.1.2-22")
def test_messages_to_the_client_do_not_count_as_its_own_packets(
    clients: Clients, name: str
) -> None:
    silent, publisher = clients(keepalive=1), clients()
    silent.send(p.subscribe(1, [(name, 0)]))
    silent.expect(p.SUBACK)
    for _ in range(4):
        time.sleep(0.7)
        publisher.publish(name, b"are you here?")
    while (packet := silent.receive()).type == p.PUBLISH:
        pass
    assert (packet.type, packet.reason_code) == (p.DISCONNECT, 0x8D)
