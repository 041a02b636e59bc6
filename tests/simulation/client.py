"""A client of the simulation: keeps its half of every promise and remembers what it was told.

It never acts by itself: the world tells it when to connect, read, answer and publish. What it has
of a session (unacknowledged messages, QoS 2 packet ids) survives its connections.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.harness import packets as p
from tests.harness.packets import Packet
from tests.harness.reading import parse
from tests.harness.wire import _whole_packet
from tests.simulation.network import FakeTransport

PACKET_IDS = 12  # few, so that they are used again soon
WINDOW = 6
RETAINED_PREFIX = "kept/"


@dataclass
class Sent:
    """A message of ours, from publishing to its end."""

    topic: str
    number: int
    qos: int
    retain: bool
    at: int  # the step of the world when it was published
    size: int
    released: bool = False
    outcome: str = ""  # "acknowledged" or "refused", when it is known
    done_at: int = -1  # the step when it was acknowledged
    times: int = 0  # how often it was sent

    def payload(self) -> bytes:
        return b"%d:" % self.number + bytes(self.size)

    def was_refused(self) -> bool:
        """At QoS 1 the refused one may be a repeat of one which was stored and whose PUBACK was
        lost; at QoS 2 the server knows it again."""
        return self.outcome == "refused" and (self.qos == 2 or self.times == 1)


@dataclass
class Received:
    topic: str
    number: int
    qos: int
    retain: bool
    dup: bool


class Client:
    """One client id; `filters` are subscribed whenever it has no session."""

    def __init__(self, name: str, version: int, filters: dict[str, int], expiry_s: int) -> None:
        self.name = name
        self.version = version
        self.filters = filters
        self.expiry_s = expiry_s
        self.transport: FakeTransport | None = None
        self.online = False  # CONNACK has been read
        self.has_session = False  # a CONNACK has promised one
        self.cleaning = False  # until a CONNACK comes, every CONNECT asks for a clean start
        self.subscribed_at = -1  # the step of SUBACK; -1: not subscribed
        self.subscribing_at = -1
        self.sent: list[Sent] = []
        self.pending: dict[int, Sent] = {}
        self.received: list[Received] = []  # since the session began
        self._before: list[Received] = []  # in sessions which have ended
        self.first_subscribed_at = -1
        self.unreleased: set[int] = set()
        self.owed: list[bytes] = []  # answers not sent yet
        self._numbers: dict[str, int] = {}
        self._last_id = 0

    # --- Connections -----------------------------------------------------------------------------

    def connect(self, transport: FakeTransport) -> None:
        assert self.transport is None
        self.transport = transport
        properties = {"session_expiry_interval": self.expiry_s} if self.version == 5 else None
        clean = self.cleaning or (self.version != 5 and self.expiry_s == 0)
        transport.send(
            p.connect(self.name, version=self.version, clean=clean, properties=properties)
        )

    def forget_connection(self) -> FakeTransport | None:
        """The connection is over as far as this client knows; unread bytes are lost."""
        transport, self.transport = self.transport, None
        self.online = False
        self.owed.clear()
        return transport

    def read(self, count: int, step: int) -> int:
        """Take up to `count` packets from the wire; returns how many there were."""
        transport = self.transport
        taken = 0
        while transport is not None and taken < count:
            length = _whole_packet(transport.received)
            if not length:
                break
            raw = bytes(transport.received[:length])
            del transport.received[:length]
            taken += 1
            self._on_packet(parse(raw, self.version), step)
            transport = self.transport
        if transport is not None and transport.closed_by_broker() and not transport.received:
            self.forget_connection()
        return taken

    def everything(self) -> list[Received]:
        """What has ever arrived, in sessions which have ended too."""
        return self._before + self.received

    def answer(self, count: int) -> None:
        """Send some of the owed answers, in their order."""
        if self.transport is not None and self.owed:
            data = b"".join(self.owed[:count])
            del self.owed[:count]
            self.transport.send(data)

    def publish(self, topic: str, qos: int, retain: bool, size: int, step: int) -> None:
        if not self.online or len(self.pending) >= WINDOW:
            return
        assert self.transport is not None
        number = self._numbers[topic] = self._numbers.get(topic, 0) + 1
        message = Sent(topic, number, qos, retain, step, size)
        packet_id = self._unused_id()
        self.pending[packet_id] = message
        self.sent.append(message)
        self.transport.send(self._publish(packet_id, message, dup=False))

    def _publish(self, packet_id: int, message: Sent, *, dup: bool) -> bytes:
        message.times += 1
        return p.publish(
            message.topic,
            message.payload(),
            qos=message.qos,
            retain=message.retain,
            dup=dup,
            packet_id=packet_id,
            version=self.version,
        )

    def _unused_id(self) -> int:
        while True:
            self._last_id = self._last_id % PACKET_IDS + 1
            if self._last_id not in self.pending:
                return self._last_id

    # --- Packets ---------------------------------------------------------------------------------

    def _on_packet(self, packet: Packet, step: int) -> None:
        if packet.type == p.CONNACK:
            self._on_connack(packet, step)
        elif packet.type == p.PUBLISH:
            self._on_publish(packet)
        elif packet.type == p.PUBREL:
            self.unreleased.discard(packet.packet_id)
            self.owed.append(p.acknowledge(p.PUBCOMP, packet.packet_id))
        elif packet.type in (p.PUBACK, p.PUBREC, p.PUBCOMP):
            self._on_acknowledgement(packet, step)
        elif packet.type == p.SUBACK:
            assert list(self.filters.values()) == packet.reason_codes
            self.subscribed_at = step
            if self.first_subscribed_at < 0:
                self.first_subscribed_at = step
        elif packet.type != p.DISCONNECT:
            raise AssertionError(f"{self.name}: unexpected {packet}")

    def _on_connack(self, packet: Packet, step: int) -> None:
        assert packet.reason_code == 0, f"{self.name}: CONNACK {packet.reason_code:#x}"
        assert self.transport is not None
        expected = self.has_session and not self.cleaning
        if expected or self.cleaning or self.expiry_s == 0:
            assert packet.session_present == expected, f"{self.name}: session lost or kept"
        self.online = True
        if not packet.session_present:
            self._before += self.received
            self.received = []
            self.unreleased.clear()
            self.subscribed_at = -1
        self.cleaning = False
        self.has_session = self.expiry_s > 0
        data = b""
        for packet_id, message in self.pending.items():
            if message.released:
                data += p.acknowledge(p.PUBREL, packet_id)
            else:
                data += self._publish(packet_id, message, dup=True)
        if self.filters and self.subscribed_at < 0:
            self.subscribing_at = step
            data += p.subscribe(9999, list(self.filters.items()), version=self.version)
        if data:
            self.transport.send(data)

    def _on_publish(self, packet: Packet) -> None:
        number = int(packet.payload.split(b":")[0])
        one = Received(packet.topic, number, packet.qos, packet.retain, packet.dup)
        if packet.qos == 2:
            if packet.packet_id not in self.unreleased:
                self.unreleased.add(packet.packet_id)
                self.received.append(one)
            self.owed.append(p.acknowledge(p.PUBREC, packet.packet_id))
        else:
            self.received.append(one)
            if packet.qos:
                self.owed.append(p.acknowledge(p.PUBACK, packet.packet_id))

    def _on_acknowledgement(self, packet: Packet, step: int) -> None:
        message = self.pending.get(packet.packet_id)
        if message is None:
            return  # the answer to a PUBREL sent twice
        if packet.type == p.PUBREC and message.qos == 2:
            if packet.reason_code >= 0x80:
                self._end(packet.packet_id, "refused")
            else:
                message.released = True
                message.outcome = "acknowledged"
                message.done_at = step
                self.owed.append(p.acknowledge(p.PUBREL, packet.packet_id))
        elif packet.type == p.PUBACK and message.qos == 1:
            refused = packet.reason_code >= 0x80
            message.done_at = -1 if refused else step
            self._end(packet.packet_id, "refused" if refused else "acknowledged")
        elif packet.type == p.PUBCOMP and message.released:
            del self.pending[packet.packet_id]

    def _end(self, packet_id: int, outcome: str) -> None:
        message = self.pending.pop(packet_id)
        assert message.outcome in ("", outcome), f"{outcome} after {message.outcome}"
        message.outcome = outcome
