"""Section 6 (WebSocket), with the frames of the `websockets` library as second opinion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.harness import packets as p
from tests.harness.broker import Broker

Open = Callable[[], ClientConnection]
TIMEOUT_S = 5.0


@pytest.fixture
def websocket(broker: Broker) -> Iterator[Open]:
    if not broker.ws_port:
        pytest.skip("this broker has no WebSocket listener")
    with ExitStack() as opened:

        def open_connection() -> ClientConnection:
            uri = f"ws://127.0.0.1:{broker.ws_port}/mqtt"
            protocols = [Subprotocol("mqtt")]
            return opened.enter_context(connect(uri, subprotocols=protocols, compression=None))

        yield open_connection


def _receive(connection: ClientConnection, length: int) -> bytes:
    """At least `length` bytes, from however many frames; each must be binary."""
    data = b""
    while len(data) < length:
        frame = connection.recv(timeout=TIMEOUT_S)
        assert isinstance(frame, bytes), "the server sent a text frame"
        data += frame
    return data


@pytest.mark.conforms311("MQTT-6.0.0-4", "MQTT-6.0.0-3")
def test_the_server_selects_the_subprotocol_mqtt(websocket: Open) -> None:
    assert websocket().subprotocol == "mqtt"


@pytest.mark.conforms311("MQTT-6.0.0-1")
def test_packets_are_answered_in_binary_frames(websocket: Open, level: int, name: str) -> None:
    connection = websocket()
    connection.send(p.connect(name, version=level))
    assert _receive(connection, 4) == b"\x20\x02\x00\x00"
    connection.send(p.PINGREQ_BYTES)
    assert _receive(connection, 2) == b"\xd0\x00"


@pytest.mark.conforms311("MQTT-6.0.0-1")
def test_a_text_frame_closes_the_connection(websocket: Open, level: int, name: str) -> None:
    connection = websocket()
    connection.send(p.connect(name, version=level))
    _receive(connection, 4)
    connection.send("not binary")
    with pytest.raises(ConnectionClosed):
        connection.recv(timeout=TIMEOUT_S)


@pytest.mark.conforms311("MQTT-6.0.0-2")
def test_a_packet_may_be_split_over_frames(websocket: Open, level: int, name: str) -> None:
    connection = websocket()
    for byte in p.connect(name, version=level):
        connection.send(bytes([byte]))
    assert _receive(connection, 4) == b"\x20\x02\x00\x00"


@pytest.mark.conforms311("MQTT-6.0.0-2")
def test_a_frame_may_hold_several_packets(websocket: Open, level: int, name: str) -> None:
    connection = websocket()
    connection.send(p.connect(name, version=level) + p.PINGREQ_BYTES * 3 + p.PINGREQ_BYTES[:1])
    assert _receive(connection, 10) == b"\x20\x02\x00\x00" + b"\xd0\x00" * 3
    connection.send(p.PINGREQ_BYTES[1:])
    assert _receive(connection, 2) == b"\xd0\x00"


@pytest.mark.conforms311("MQTT-6.0.0-2")
def test_a_message_may_be_fragmented(websocket: Open, level: int, name: str) -> None:
    connection = websocket()
    whole = p.connect(name, version=level) + p.PINGREQ_BYTES
    connection.send([whole[:3], whole[3:10], whole[10:]])
    assert _receive(connection, 6) == b"\x20\x02\x00\x00\xd0\x00"


@pytest.mark.conforms311("MQTT-6.0.0-2", "MQTT-7.0.0-2")
def test_messages_cross_from_websocket_to_tcp_and_back(
    websocket: Open, broker: Broker, level: int, name: str
) -> None:
    connection = websocket()
    connection.send(p.connect(f"{name}w", version=level))
    _receive(connection, 4)
    connection.send(p.subscribe(1, [(f"{name}/tcp", 0)], version=level))
    _receive(connection, 5)
    with broker.client(level) as wire:
        wire.connect(f"{name}t")
        wire.subscribe(f"{name}/ws")
        connection.send(p.publish(f"{name}/ws", b"up", version=level))
        wire.expect_publish(f"{name}/ws", b"up")
        wire.publish(f"{name}/tcp", b"down")
    expected = p.publish(f"{name}/tcp", b"down", version=level)
    assert _receive(connection, len(expected)) == expected
