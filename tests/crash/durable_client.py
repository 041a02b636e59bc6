"""A client which keeps its half of every promise: packet-id state survives lost connections.

It reconnects until told to stop, resumes its session, re-sends unacknowledged PUBLISH (with DUP)
and PUBREL packets in their order, and completes QoS 2 in both directions exactly once. Whatever it
sees that the standard forbids is kept in `violations`; nothing is raised in its thread.

Packet identifiers come from a small range, so that they are used again soon: a server which
forgets to persist the end of a QoS 2 exchange takes a new message for an old one.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.harness import packets as p
from tests.harness.packets import Packet, WireError
from tests.harness.reading import parse
from tests.harness.wire import _whole_packet

SESSION_EXPIRY_S = 3600
PACKET_IDS = 48
WINDOW = 16
POLL_S = 0.05
RECONNECT_S = 0.02
CONNECT_TIMEOUT_S = 5.0


@dataclass
class Outgoing:
    """A message of ours which is not finished yet."""

    topic: str
    payload: bytes
    qos: int
    retain: bool = False
    released: bool = False
    sent: bool = False


class ConnectionLostError(Exception):
    """The server is gone; come again."""


class DurableClient:
    """One client id with its session state, run by a thread between `start` and `stop`."""

    def __init__(
        self,
        port: int,
        client_id: str,
        version: int,
        *,
        subscriptions: list[p.Subscription] | None = None,
        source: Iterator[Outgoing] | None = None,
    ) -> None:
        self.port = port
        self.client_id = client_id
        self.version = version
        self.subscriptions = subscriptions or []
        self.source = source
        self.received: list[tuple[str, bytes, int]] = []
        self.acknowledged: list[Outgoing] = []
        self.violations: list[str] = []
        self.connections = 0
        self.subscribed = threading.Event()
        self._pending: dict[int, Outgoing] = {}
        self._unreleased: set[int] = set()
        self._last_packet_id = 0
        self._known = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> DurableClient:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name=self.client_id, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Leave the network; the session stays."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(CONNECT_TIMEOUT_S * 2)

    def finish(self, timeout_s: float) -> None:
        """Publish nothing new, and wait until everything published is acknowledged."""
        self.source = None
        deadline = time.monotonic() + timeout_s
        while self._pending and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if self._pending:
            count = len(self._pending)
            self.violations.append(f"{self.client_id}: {count} messages never acknowledged")

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self.port), CONNECT_TIMEOUT_S) as sock:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    _Connection(self, sock).serve()
            except (OSError, ConnectionLostError):
                time.sleep(RECONNECT_S)
            except (WireError, AssertionError) as error:
                self.violations.append(f"{self.client_id}: {error}")
                time.sleep(RECONNECT_S)

    # --- What the connection asks of the session -------------------------------------------------

    def on_connack(self, connack: Packet) -> None:
        assert connack.reason_code == 0, f"CONNACK {connack.reason_code:#x}"
        if connack.session_present != self._known:
            present = "present" if connack.session_present else "lost"
            self.violations.append(f"{self.client_id}: session {present} at reconnect")
        self._known = True
        self.connections += 1

    def resend(self) -> bytes:
        """What the standard asks for after a reconnect, in the original order."""
        data = b""
        for packet_id, message in self._pending.items():
            if message.released:
                data += p.acknowledge(p.PUBREL, packet_id)
            else:
                data += self._publish(packet_id, message, dup=message.sent)
        return data

    def fill_window(self) -> bytes:
        """New messages of the source, as far as the window allows."""
        data = b""
        while self.source is not None and len(self._pending) < WINDOW:
            message = next(self.source, None)
            if message is None:
                break
            packet_id = self._unused_packet_id()
            self._pending[packet_id] = message
            data += self._publish(packet_id, message, dup=False)
        return data

    def on_packet(self, packet: Packet) -> bytes:
        """Take one packet and return the answer."""
        match packet.type:
            case p.PUBLISH:
                return self._on_publish(packet)
            case p.PUBREL:
                self._unreleased.discard(packet.packet_id)
                return p.acknowledge(p.PUBCOMP, packet.packet_id)
            case p.PUBACK | p.PUBREC | p.PUBCOMP:
                return self._on_acknowledgement(packet)
            case p.SUBACK:
                assert max(packet.reason_codes) <= 2, f"SUBACK {packet.reason_codes}"
                self.subscribed.set()
            case p.DISCONNECT:
                raise ConnectionLostError
            case _:
                raise WireError(f"unexpected {packet}")
        return b""

    def _on_publish(self, message: Packet) -> bytes:
        if message.qos == 2:
            if message.packet_id not in self._unreleased:
                self._unreleased.add(message.packet_id)
                self.received.append((message.topic, message.payload, message.qos))
            return p.acknowledge(p.PUBREC, message.packet_id)
        self.received.append((message.topic, message.payload, message.qos))
        return p.acknowledge(p.PUBACK, message.packet_id) if message.qos else b""

    def _on_acknowledgement(self, packet: Packet) -> bytes:
        # PUBCOMP 0x92 is no refusal: the exchange was complete before the connection was lost.
        assert packet.reason_code < 0x80 or packet.type == p.PUBCOMP, f"refused: {packet}"
        message = self._pending.get(packet.packet_id)
        if message is None:
            return b""  # the answer to a PUBREL sent twice
        if packet.type == p.PUBREC and message.qos == 2:
            if not message.released:
                message.released = True
                self.acknowledged.append(message)
            return p.acknowledge(p.PUBREL, packet.packet_id)
        if packet.type == p.PUBACK and message.qos == 1:
            self.acknowledged.append(message)
            del self._pending[packet.packet_id]
        if packet.type == p.PUBCOMP and message.released:
            del self._pending[packet.packet_id]
        return b""

    def _publish(self, packet_id: int, message: Outgoing, *, dup: bool) -> bytes:
        message.sent = True
        return p.publish(
            message.topic,
            message.payload,
            qos=message.qos,
            retain=message.retain,
            dup=dup,
            packet_id=packet_id,
            version=self.version,
        )

    def _unused_packet_id(self) -> int:
        while True:
            self._last_packet_id = self._last_packet_id % PACKET_IDS + 1
            if self._last_packet_id not in self._pending:
                return self._last_packet_id

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()


class _Connection:
    """One network connection of a `DurableClient`."""

    def __init__(self, client: DurableClient, sock: socket.socket) -> None:
        self._client = client
        self._socket = sock
        self._data = bytearray()

    def serve(self) -> None:
        client = self._client
        expiry = {"session_expiry_interval": SESSION_EXPIRY_S} if client.version == 5 else None
        self._socket.sendall(
            p.connect(client.client_id, version=client.version, clean=False, properties=expiry)
        )
        client.on_connack(self._first_packet())
        start = client.resend()
        if client.subscriptions and not client.subscribed.is_set():
            start += p.subscribe(60_000, client.subscriptions, version=client.version)
        self._socket.sendall(start)
        self._socket.settimeout(POLL_S)
        while not client.stopping:
            answers = b"".join(client.on_packet(packet) for packet in self._read())
            answers += client.fill_window()
            if answers:
                self._send(answers)
        self._socket.settimeout(CONNECT_TIMEOUT_S)
        self._socket.sendall(p.disconnect())

    def _send(self, data: bytes) -> None:
        # The poll timeout is for reading; half a write would tear a packet.
        self._socket.settimeout(CONNECT_TIMEOUT_S)
        self._socket.sendall(data)
        self._socket.settimeout(POLL_S)

    def _first_packet(self) -> Packet:
        while True:
            for packet in self._read():
                assert packet.type == p.CONNACK, f"before CONNACK: {packet}"
                return packet

    def _read(self) -> Iterator[Packet]:
        """The whole packets which are here; waits for bytes only when there is none."""
        if not _whole_packet(self._data):
            try:
                data = self._socket.recv(262_144)
            except TimeoutError:
                return
            if not data:
                raise ConnectionLostError
            self._data += data
        while length := _whole_packet(self._data):
            raw = bytes(self._data[:length])
            del self._data[:length]
            yield parse(raw, self._client.version)
