"""Corners found by review: each of these was wrong once."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from tests.conformance.conftest import Clients
from tests.conftest import BrokerFactory
from tests.harness import packets as p
from tests.harness.broker import Broker
from tests.harness.packets import Will

own_broker = pytest.mark.skipif(
    "QUEUELAKE_TEST_MQTT" in os.environ, reason="only the MQTT port of the other broker is known"
)


def web_socket(broker: Broker) -> socket.socket:
    """A WebSocket after its handshake; frames are written by hand to control segments."""
    raw = socket.create_connection(("127.0.0.1", broker.ws_port), timeout=5)
    raw.sendall(
        b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
    assert b"101" in raw.recv(4096)
    return raw


def frame(opcode: int, data: bytes) -> bytes:
    """A masked frame; the mask of zeros leaves the data as it is."""
    assert len(data) < 126
    return bytes((0x80 | opcode, 0x80 | len(data))) + bytes(4) + data


@own_broker
@pytest.mark.conforms("MQTT-3.14.4-3")
def test_a_disconnect_right_before_the_close_frame_counts(
    broker: Broker, clients: Clients, name: str
) -> None:
    watcher = clients()
    watcher.subscribe(name)
    raw = web_socket(broker)
    raw.sendall(frame(2, p.connect(name, will=Will(name, b"will"))))
    raw.recv(4096)
    raw.sendall(frame(2, p.publish(name, b"last words") + p.disconnect()) + frame(8, b"\x03\xe8"))
    while raw.recv(4096):
        pass
    watcher.expect_publish(name, b"last words")
    watcher.expect_nothing()


@own_broker
def test_an_answer_behind_a_close_frame_harms_nobody_else(
    broker: Broker, clients: Clients, name: str
) -> None:
    watcher = clients()
    watcher.subscribe(name)
    for _ in range(20):
        raw = web_socket(broker)
        raw.sendall(frame(2, p.connect(name)))
        raw.recv(4096)
        goodbye = frame(2, p.PINGREQ_BYTES + p.publish(name, b"m")) + frame(8, b"\x03\xe8")
        raw.sendall(goodbye)
        while raw.recv(4096):
            pass
        watcher.expect_publish(name, b"m")


@pytest.mark.conforms("MQTT-3.3.1-9")
@pytest.mark.parametrize("expiry_s", [0, 60])
@pytest.mark.parametrize("qos", [0, 1])
def test_more_retained_messages_than_fit_into_memory_all_arrive(
    fresh_broker: BrokerFactory, clients: Clients, qos: int, expiry_s: int
) -> None:
    broker = fresh_broker({"limits.memory_bytes_per_client_max": 10_000})
    publisher = clients(of=broker)
    for number in range(300):
        publisher.send_publish(f"kept/{number}", bytes(100), qos=number % 2, retain=True)
    publisher.ping()
    reader = clients(of=broker, properties={"session_expiry_interval": expiry_s})
    reader.subscribe("kept/#", qos=qos)
    assert len({message.topic for message in reader.drain()}) == 300


@pytest.mark.one_broker("CONNACK does not wait for packets behind CONNECT")
@pytest.mark.conforms("MQTT-3.2.0-1")
def test_a_client_refused_before_its_connack_gets_no_other_packet(dial: Clients, name: str) -> None:
    client = dial()
    properties = {"session_expiry_interval": 60}
    client.send(p.connect(name, properties=properties) + p.publish("a/+", b"", qos=1, packet_id=1))
    client.expect_refused(0x90)


@pytest.mark.conforms("MQTT-3.4.2-2", "MQTT-3.9.2-1", "MQTT-3.1.2-24")
def test_reasons_in_words_never_exceed_the_maximum_packet_size(clients: Clients) -> None:
    client = clients(properties={"maximum_packet_size": 20})
    puback = client.publish("$SYS/broker/x", b"", qos=1)
    assert puback.reason_code == 0x87
    assert "reason_string" not in puback.properties
    suback = client.subscribe("a/#/b")
    assert suback.reason_codes == [0x8F]
    assert "reason_string" not in suback.properties
    client.send(p.publish("a/#", b""))
    assert "reason_string" not in client.expect_disconnect(0x90).properties


@pytest.mark.conforms("MQTT-3.1.2-24", "MQTT-3.2.2-19")
def test_a_client_which_cannot_take_connack_is_refused_in_few_bytes(dial: Clients) -> None:
    client = dial()
    client.connect(properties={"maximum_packet_size": 10}, expect_code=0x95)
    client.expect_closed()


def test_a_client_which_asks_on_and_reads_nothing_is_cut_off(
    fresh_broker: BrokerFactory, clients: Clients
) -> None:
    broker = fresh_broker({"limits.memory_bytes_per_client_max": 100_000})
    client = clients(of=broker)
    question = p.subscribe(1, [("#/" + "x" * 90, 0)]) * 100
    for _ in range(1500):
        with contextlib.suppress(ConnectionError):
            client.send(question)
    client.read_to_close()


@pytest.mark.conforms("MQTT-3.8.3-3")
def test_no_local_holds_for_retained_messages_and_wills(clients: Clients, name: str) -> None:
    properties = {"session_expiry_interval": 60}
    client = clients(name, properties=properties, will=Will(name, b"will", qos=1))
    client.publish(name, b"mine", qos=1, retain=True)
    client.subscribe(name, qos=1, no_local=True)
    client.expect_nothing()
    client.close()
    again = clients(name, clean=False, properties=properties)
    again.expect_nothing()
    again.unsubscribe(name)
    again.subscribe(name, qos=1)
    again.expect_publish(name, b"mine", retain=True)
