"""WebSocket as transport (6): binary frames, any alignment, the subprotocol."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.harness import packets as p
from tests.harness.broker import Broker
from tests.harness.reading import parse

pytestmark = pytest.mark.skipif(
    "QUEUELAKE_TEST_MQTT" in os.environ, reason="only the MQTT port of the other broker is known"
)


@pytest.fixture
def socket(broker: Broker) -> Iterator[ClientConnection]:
    url = f"ws://127.0.0.1:{broker.ws_port}/mqtt"
    with connect(url, subprotocols=[Subprotocol("mqtt")], proxy=None) as connection:
        yield connection


def receive(socket: ClientConnection, count: int) -> list[p.Packet]:
    """The next packets, however they are spread over frames."""
    data = b""
    packets: list[p.Packet] = []
    while len(packets) < count:
        frame = socket.recv(timeout=5)
        assert isinstance(frame, bytes)
        data += frame
        while len(data) >= 2 and len(data) >= 2 + data[1]:
            assert data[1] < 0x80, "these tests use short packets"
            packets.append(parse(data[: 2 + data[1]], 5))
            data = data[2 + data[1] :]
    return packets


@pytest.mark.conforms("MQTT-6.0.0-4", "MQTT-6.0.0-3")
def test_the_server_selects_the_subprotocol_mqtt(socket: ClientConnection) -> None:
    assert socket.subprotocol == "mqtt"


@pytest.mark.conforms("MQTT-6.0.0-1")
def test_packets_come_in_binary_frames(socket: ClientConnection, name: str) -> None:
    socket.send(p.connect(name))
    socket.send(p.subscribe(1, [(name, 0)]))
    socket.send(p.publish(name, b"hello"))
    connack, suback, message = receive(socket, 3)
    assert (connack.type, connack.reason_code) == (p.CONNACK, 0)
    assert suback.reason_codes == [0]
    assert message.payload == b"hello"


@pytest.mark.conforms("MQTT-6.0.0-1")
def test_a_text_frame_ends_the_connection(socket: ClientConnection, name: str) -> None:
    socket.send(p.connect(name))
    receive(socket, 1)
    socket.send("text")
    with pytest.raises(ConnectionClosed):
        receive(socket, 100)


@pytest.mark.conforms("MQTT-6.0.0-2")
def test_a_packet_may_be_spread_over_frames(socket: ClientConnection, name: str) -> None:
    whole = p.connect(name) + p.subscribe(1, [(name, 0)]) + p.publish(name, b"bit by bit")
    for index in range(len(whole)):
        socket.send(whole[index : index + 1])
    assert receive(socket, 3)[2].payload == b"bit by bit"


@pytest.mark.conforms("MQTT-6.0.0-2")
def test_a_frame_may_hold_several_packets(socket: ClientConnection, name: str) -> None:
    packets = [p.connect(name), p.subscribe(1, [(name, 0)]), p.publish(name, b"1")]
    socket.send(b"".join(packets) + p.publish(name, b"2")[:5])
    socket.send(p.publish(name, b"2")[5:])
    assert [one.payload for one in receive(socket, 4)[2:]] == [b"1", b"2"]


@pytest.mark.conforms("MQTT-6.0.0-2")
def test_a_message_may_be_fragmented(socket: ClientConnection, name: str) -> None:
    socket.send([p.connect(name)[:7], p.connect(name)[7:] + p.PINGREQ_BYTES])
    assert [one.type for one in receive(socket, 2)] == [p.CONNACK, p.PINGRESP]
