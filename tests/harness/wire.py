"""A raw MQTT client for tests: blocking, with a deadline on every read, and no manners of its own.

It acknowledges nothing, answers nothing and sends whatever bytes a test gives it, unless a method
says so. "Nothing came" is shown by a PINGREQ/PINGRESP round trip, never by sleeping: a server
answers in order, so what it had to send before is here before the PINGRESP.

The standard lets a server close without a word where Queuelake promises a reason code. Against
another broker (`QUEUELAKE_TEST_MQTT`, see `broker.py`) a bare close is accepted there too.

    with Wire(broker.mqtt_port) as client:
        client.connect("me")
        client.subscribe("a/#", qos=1)
        client.publish("a/b", b"hello", qos=1)
        assert client.expect_publish().payload == b"hello"
"""

from __future__ import annotations

import os
import socket
import time
from types import TracebackType
from typing import Any, Self

from tests.harness import packets as p
from tests.harness.packets import Packet, Properties, Subscription, Will, WireError
from tests.harness.reading import parse

TIMEOUT_S = 5.0
BARE_CLOSE_ALLOWED = "QUEUELAKE_TEST_MQTT" in os.environ


class Wire:
    """One network connection, speaking `version` (3, 4 or 5)."""

    def __init__(
        self,
        port: int,
        version: int = 5,
        *,
        host: str = "127.0.0.1",
        transport: socket.socket | None = None,
        timeout: float = TIMEOUT_S,
    ) -> None:
        self.version = version
        self.timeout = timeout
        self.socket = transport or socket.create_connection((host, port), timeout=timeout)
        if self.socket.family in (socket.AF_INET, socket.AF_INET6):
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._set_aside: list[Packet] = []
        self._last_packet_id = 0
        self.connack: Packet | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the network connection without DISCONNECT: the will is published."""
        self.socket.close()

    # --- Sending --------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send these bytes, whole packets or not."""
        self.socket.sendall(data)

    def next_packet_id(self) -> int:
        self._last_packet_id = self._last_packet_id % 65535 + 1
        return self._last_packet_id

    def connect(
        self,
        client_id: str | bytes = "",
        *,
        clean: bool = True,
        keepalive: int = 0,
        properties: Properties = None,
        will: Will | None = None,
        username: str | bytes | None = None,
        password: str | bytes | None = None,
        expect_code: int | None = 0,
    ) -> Packet:
        """Send CONNECT and return the CONNACK, which must have `expect_code` unless it is None."""
        self.send(
            p.connect(
                client_id,
                version=self.version,
                clean=clean,
                keepalive=keepalive,
                properties=properties,
                will=will,
                username=username,
                password=password,
            )
        )
        connack = self.connack = self.expect(p.CONNACK)
        if expect_code is not None and connack.reason_code != expect_code:
            raise WireError(f"CONNACK 0x{connack.reason_code:02x}, not 0x{expect_code:02x}")
        return connack

    def send_publish(self, topic: str | bytes, payload: str | bytes = b"", **fields: Any) -> int:
        """Send PUBLISH and wait for nothing; returns the packet identifier (0 for QoS 0)."""
        if fields.get("qos") and "packet_id" not in fields:
            fields["packet_id"] = self.next_packet_id()
        self.send(p.publish(topic, payload, version=self.version, **fields))
        return int(fields.get("packet_id", 0))

    def publish(self, topic: str | bytes, payload: str | bytes = b"", **fields: Any) -> Packet:
        """Publish and wait until the server has taken it: PUBACK, or PUBREC and PUBCOMP.

        Returns PUBACK or PUBREC. For QoS 0 a ping round trip makes sure, and PINGRESP is returned.
        Other packets which come meanwhile are kept for the next `receive`.
        """
        packet_id = self.send_publish(topic, payload, **fields)
        match fields.get("qos", 0):
            case 0:
                self.send(p.PINGREQ_BYTES)
                return self.wait_for(p.PINGRESP)
            case 1:
                return self.wait_for(p.PUBACK, packet_id)
        pubrec = self.wait_for(p.PUBREC, packet_id)
        if pubrec.reason_code < 0x80:
            self.send(p.acknowledge(p.PUBREL, packet_id))
            self.wait_for(p.PUBCOMP, packet_id)
        return pubrec

    def subscribe(
        self,
        *filters: str | bytes | Subscription,
        qos: int = 0,
        properties: Properties = None,
        **option_fields: Any,
    ) -> Packet:
        """Subscribe and return the SUBACK; a bare filter gets `qos` and the option fields.

        Retained messages which come before the SUBACK are kept for the next `receive`.
        """
        bits = p.options(qos, **option_fields)
        pairs = [one if isinstance(one, tuple) else (one, bits) for one in filters]
        packet_id = self.next_packet_id()
        self.send(p.subscribe(packet_id, pairs, properties=properties, version=self.version))
        return self.wait_for(p.SUBACK, packet_id)

    def unsubscribe(self, *filters: str, properties: Properties = None) -> Packet:
        """Unsubscribe and return the UNSUBACK."""
        packet_id = self.next_packet_id()
        self.send(
            p.unsubscribe(packet_id, list(filters), properties=properties, version=self.version)
        )
        return self.wait_for(p.UNSUBACK, packet_id)

    def acknowledge(
        self,
        packet_type: int,
        packet_id: int,
        reason_code: int | None = None,
        properties: Properties = None,
    ) -> None:
        """Send PUBACK, PUBREC, PUBREL or PUBCOMP."""
        self.send(p.acknowledge(packet_type, packet_id, reason_code, properties))

    def ping(self) -> None:
        """A PINGREQ/PINGRESP round trip; other packets are kept."""
        self.send(p.PINGREQ_BYTES)
        self.wait_for(p.PINGRESP)

    def disconnect(self, reason_code: int | None = None, properties: Properties = None) -> None:
        """Send DISCONNECT, wait until the server has closed, and close."""
        self.send(p.disconnect(reason_code, properties))
        self.expect_closed()
        self.close()

    # --- Receiving ------------------------------------------------------------------------------

    def receive(self, timeout: float | None = None) -> Packet:
        """The next packet; WireError when the connection ends or the time is over first."""
        if self._set_aside:
            return self._set_aside.pop(0)
        packet = self._read_packet(timeout)
        if packet is None:
            raise WireError("the server closed the connection; a packet was expected")
        return packet

    def expect(self, packet_type: int, timeout: float | None = None, **fields: Any) -> Packet:
        """The next packet, which must be of this type and have these field values."""
        packet = self.receive(timeout)
        if packet.type != packet_type:
            raise WireError(f"expected {p.NAMES[packet_type]}, the server sent {packet}")
        for name, value in fields.items():
            if getattr(packet, name) != value:
                raise WireError(f"{name} is {getattr(packet, name)!r}, not {value!r}: {packet}")
        return packet

    def wait_for(self, packet_type: int, packet_id: int = 0) -> Packet:
        """The first packet of this type and identifier; what comes before it is kept."""
        deadline = time.monotonic() + self.timeout
        while True:
            packet = self._read_packet(max(0.0, deadline - time.monotonic()))
            if packet is None:
                raise WireError(f"the server closed; {p.NAMES[packet_type]} was expected")
            if packet.type == packet_type and packet.packet_id == packet_id:
                return packet
            if packet.type == p.DISCONNECT:
                raise WireError(f"{p.NAMES[packet_type]} was expected, the server sent {packet}")
            self._set_aside.append(packet)

    def expect_publish(
        self,
        topic: str | None = None,
        payload: bytes | None = None,
        *,
        ack: bool = True,
        timeout: float | None = None,
        **fields: Any,
    ) -> Packet:
        """The next packet, a PUBLISH; acknowledged in full (QoS 1 and 2) unless `ack` is False."""
        if topic is not None:
            fields["topic"] = topic
        if payload is not None:
            fields["payload"] = payload
        message = self.expect(p.PUBLISH, timeout, **fields)
        if ack and message.qos == 1:
            self.acknowledge(p.PUBACK, message.packet_id)
        if ack and message.qos == 2:
            self.acknowledge(p.PUBREC, message.packet_id)
            self.wait_for(p.PUBREL, message.packet_id)
            self.acknowledge(p.PUBCOMP, message.packet_id)
        return message

    def expect_nothing(self) -> None:
        """The server has nothing more to send now: a ping round trip brings only PINGRESP."""
        self.ping()
        if self._set_aside:
            raise WireError(f"nothing was expected, the server sent {self._set_aside[0]}")

    def drain(self) -> list[Packet]:
        """All messages which are here now, acknowledged, until a ping brings no more."""
        received: list[Packet] = []
        while True:
            self.ping()
            if not self._set_aside:
                return received
            while self._set_aside:
                received.append(self.expect_publish())

    def expect_disconnect(self, *reason_codes: int, timeout: float | None = None) -> Packet:
        """DISCONNECT with one of these codes (any, when none is given), then the close."""
        if BARE_CLOSE_ALLOWED and not self._set_aside and self._at_end():
            return Packet(p.DISCONNECT, 0, b"")
        packet = self.expect(p.DISCONNECT, timeout)
        if reason_codes and packet.reason_code not in reason_codes:
            raise WireError(f"DISCONNECT 0x{packet.reason_code:02x}, not {_hex(reason_codes)}")
        self.expect_closed()
        return packet

    def expect_closed(self, timeout: float | None = None) -> None:
        """The server closes the network connection and sends no packet before."""
        packet = self._set_aside[0] if self._set_aside else self._read_packet(timeout)
        if packet is not None:
            raise WireError(f"the close was expected, the server sent {packet}")

    def read_to_close(self) -> bytes:
        """Everything the server sends until it closes, as bytes: for answers of any version."""
        self.socket.settimeout(self.timeout)
        data = bytes(self._received)
        try:
            while more := self.socket.recv(65536):
                data += more
        except TimeoutError:
            raise WireError(f"no close before the deadline, only {data.hex(' ')}") from None
        except ConnectionError:
            pass
        return data

    def expect_refused(self, *reason_codes: int) -> Packet:
        """CONNACK with one of these codes and no session, then the close."""
        if BARE_CLOSE_ALLOWED and not self._set_aside and self._at_end():
            return Packet(p.CONNACK, 0, b"", reason_code=reason_codes[0])
        connack = self.expect(p.CONNACK, session_present=False)
        if connack.reason_code not in reason_codes:
            raise WireError(f"CONNACK 0x{connack.reason_code:02x}, not {_hex(reason_codes)}")
        self.expect_closed()
        return connack

    def _at_end(self) -> bool:
        """Whether the stream ends here; waits for a byte or the end."""
        if self._received:
            return False
        self.socket.settimeout(self.timeout)
        try:
            return self.socket.recv(1, socket.MSG_PEEK) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def _read_packet(self, timeout: float | None = None) -> Packet | None:
        """One packet from the socket, or None at the end of the stream."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while (length := _whole_packet(self._received)) == 0:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                raise WireError("the server sent nothing before the deadline") from None
            except ConnectionError:
                data = b""
            if not data:
                if self._received:
                    raise WireError(f"the stream ends in a packet: {self._received.hex(' ')}")
                return None
            self._received += data
        self.socket.settimeout(self.timeout)
        raw = bytes(self._received[:length])
        del self._received[:length]
        return parse(raw, self.version)


def _whole_packet(data: bytearray) -> int:
    """The length of the first packet in `data`, or 0 when it is not whole."""
    length = 0
    for index in range(1, 5):
        if index >= len(data):
            return 0
        length |= (data[index] & 0x7F) << 7 * (index - 1)
        if data[index] < 0x80:
            total = 1 + index + length
            return total if len(data) >= total else 0
    raise WireError(f"remaining length of more than 4 bytes: {data[:8].hex(' ')}")


def _hex(codes: tuple[int, ...]) -> str:
    return " or ".join(f"0x{code:02x}" for code in codes)
