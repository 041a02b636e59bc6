"""Corners found by review: each of these was wrong once."""

from __future__ import annotations

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
    broker = fresh_broker({"limits.memory_bytes_per_client_max": 10_000, "http.enabled": False})
    publisher = clients(of=broker)
    for number in range(300):
        publisher.send_publish(f"kept/{number}", bytes(100), qos=number % 2, retain=True)
    publisher.ping()
    reader = clients(of=broker, properties={"session_expiry_interval": expiry_s})
    reader.subscribe("kept/#", qos=qos)
    assert len({message.topic for message in reader.drain()}) == 300
