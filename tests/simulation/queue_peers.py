"""Clients of simulated queues: producers which repeat what nobody confirmed, workers which settle.

They act only when the world tells them to. What a producer has not heard of survives its
connections; what a worker has in hand does too, so it may settle what is not its own any more.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field

from tests.harness import packets as p
from tests.harness.packets import Packet
from tests.harness.reading import parse
from tests.harness.wire import _whole_packet
from tests.simulation.network import FakeTransport
from tests.simulation.queue_ledger import Ledger, Posted, Taken

WINDOW = 10
PACKET_IDS = 60
STORE_FAILED = 0x80
TRIES_MAX = 4
NEVER_S = 0xFFFFFFFF


@dataclass
class Link:
    """One connection, and what was asked on it."""

    transport: FakeTransport
    posts: dict[int, Posted] = field(default_factory=dict)
    settles: dict[int, tuple[str, Taken, bool]] = field(default_factory=dict)
    configures: dict[int, tuple[str, dict[str, object]]] = field(default_factory=dict)


class Peer:
    """One client id."""

    def __init__(self, name: str, version: int, expiry_s: int = NEVER_S) -> None:
        self.name = name
        self.version = version
        self.expiry_s = expiry_s
        self.clean = False  # asks for a new session with every connection
        self.receive_max = 0
        self.link: Link | None = None
        self.online = False  # CONNACK has been read
        self._last_id = 0

    def connect(self, transport: FakeTransport) -> Link:
        assert self.link is None
        self.link = Link(transport)
        return self.link

    def log_in(self) -> None:
        assert self.link is not None
        properties: p.Properties = None
        if self.version == 5:
            properties = {"session_expiry_interval": self.expiry_s}
            if self.receive_max:
                properties["receive_maximum"] = self.receive_max
        self.link.transport.send(
            p.connect(self.name, version=self.version, clean=self.clean, properties=properties)
        )

    def forget_connection(self) -> FakeTransport | None:
        """The connection is over as far as this client knows; unread bytes are lost."""
        link, self.link = self.link, None
        self.online = False
        return None if link is None else link.transport

    def read(self, count: int) -> int:
        """Take up to `count` packets from the wire; returns how many there were."""
        taken = 0
        while self.link is not None and taken < count:
            transport = self.link.transport
            length = _whole_packet(transport.received)
            if not length:
                break
            raw = bytes(transport.received[:length])
            del transport.received[:length]
            taken += 1
            packet = parse(raw, self.version)
            if packet.type == p.CONNACK:
                assert packet.reason_code == 0, f"{self.name}: CONNACK {packet.reason_code:#x}"
                self.online = True
            self._on_packet(packet)
        if self.link is not None and self.link.transport.closed_by_broker():
            if not self.link.transport.received:
                self.forget_connection()
        return taken

    def _on_packet(self, packet: Packet) -> None:
        raise NotImplementedError

    def _send(self, data: bytes) -> None:
        assert self.link is not None
        self.link.transport.send(data)

    def _free_id(self, taken: Container[int]) -> int:
        while True:
            self._last_id = self._last_id % PACKET_IDS + 1
            if self._last_id not in taken:
                return self._last_id


class Producer(Peer):
    """Publishes; what is unconfirmed it sends again, with the same message id."""

    def __init__(self, name: str, version: int, ledger: Ledger) -> None:
        super().__init__(name, version)
        self.ledger = ledger
        self.pending: dict[int, Posted] = {}
        self.released: set[int] = set()
        self.again: list[Posted] = []  # the store had failed

    def has_room(self) -> bool:
        return self.online and len(self.pending) < WINDOW

    def is_done(self) -> bool:
        return not self.pending and not self.again

    def post(self, message: Posted) -> None:
        if not message.qos:
            self._publish(0, message, dup=False)
            return
        packet_id = self._free_id(self.pending)
        self.pending[packet_id] = message
        self._publish(packet_id, message, dup=False)

    def retry(self) -> None:
        while self.again and self.has_room():
            self.post(self.again.pop(0))

    def configure(self, queue: str, changes: dict[str, object], payload: bytes) -> None:
        assert self.link is not None
        packet_id = PACKET_IDS + 1 + len(self.link.configures)
        self.link.configures[packet_id] = (queue, changes)
        self.ledger.configuring(queue, changes)
        topic = f"$queue/{queue}/$config"
        self._send(p.publish(topic, payload, qos=1, packet_id=packet_id))

    def _publish(self, packet_id: int, message: Posted, *, dup: bool) -> None:
        assert self.link is not None
        self.ledger.posting(message)
        if message.qos:
            self.link.posts[packet_id] = message
        self._send(
            p.publish(
                message.topic,
                b"%d" % message.number,
                qos=message.qos,
                dup=dup,
                packet_id=packet_id,
                properties=message.properties() if self.version == 5 else None,
                version=self.version,
            )
        )

    def _on_packet(self, packet: Packet) -> None:
        if packet.type == p.CONNACK:
            for packet_id, message in list(self.pending.items()):
                if packet_id in self.released:
                    self._send(p.acknowledge(p.PUBREL, packet_id))
                else:
                    self._publish(packet_id, message, dup=True)
        elif packet.packet_id in self.pending:
            self._on_answer(packet)

    def _on_answer(self, packet: Packet) -> None:
        packet_id = packet.packet_id
        if packet.type == p.PUBREC and packet.reason_code < 0x80:
            self.released.add(packet_id)
            self._send(p.acknowledge(p.PUBREL, packet_id))
        elif packet.type in (p.PUBACK, p.PUBREC, p.PUBCOMP):
            if packet.type == p.PUBCOMP and packet_id not in self.released:
                return
            message = self.pending.pop(packet_id)
            self.released.discard(packet_id)
            if packet.reason_code == STORE_FAILED and message.times < TRIES_MAX:
                self.again.append(message)


class Worker(Peer):
    """One consumer of a group, on every queue of the world."""

    def __init__(
        self,
        name: str,
        version: int,
        ledger: Ledger,
        group: str,
        queues: list[str],
        *,
        by_puback: bool = False,
        expiry_s: int = NEVER_S,
    ) -> None:
        super().__init__(name, version, expiry_s)
        self.ledger = ledger
        self.group = group
        self.queues = queues
        self.by_puback = by_puback or version != 5
        self.qos = 1
        self.wanted = set(queues)
        self.hand: list[Taken] = []
        self.owed: list[tuple[int, int, Taken | None]] = []  # packet type and id; what it settles
        self._unreleased: dict[int, Taken] = {}
        self.on_subscribe: Callable[[], None] = lambda: None

    def connect(self, transport: FakeTransport) -> Link:
        self.owed.clear()
        self._unreleased.clear()
        return super().connect(transport)

    def subscribe(self, queue: str) -> None:
        self.wanted.add(queue)
        if self.online:
            self._subscribe([queue])

    def unsubscribe(self, queue: str) -> None:
        self.wanted.discard(queue)
        if self.online:
            filters = [f"$queue/{queue}"]
            self._send(p.unsubscribe(9998, filters, version=self.version))

    def _subscribe(self, queues: list[str]) -> None:
        pairs = [("consumer-group", self.group)]
        if self.by_puback:
            pairs.append(("ack-mode", "puback"))
        properties: p.Properties = {"user_property": pairs} if self.version == 5 else None
        items: list[p.Subscription] = [(f"$queue/{name}", self.qos) for name in queues]
        self._send(p.subscribe(9999, items, properties=properties, version=self.version))

    def settle(self, taken: Taken, kind: str, delay_ms: int = 0) -> None:
        """Publish `$ack`, `$nack` or `$reject`, and forget the delivery."""
        assert self.link is not None
        self.hand.remove(taken)
        pairs = [("message-id", taken.message_id), ("group-id", self.group)]
        if delay_ms:
            pairs.append(("delay-ms", str(delay_ms)))
        self._last_id = self._last_id % 30_000 + 1
        surely = self.ledger.settling(self.name, taken, kind)
        self.link.settles[self._last_id] = (kind, taken, surely)
        self._send(
            p.publish(
                f"$queue/{taken.queue}/${kind}",
                qos=1,
                packet_id=self._last_id,
                properties={"user_property": pairs},
            )
        )

    def answer(self, count: int, reason: int = 0) -> None:
        """Send some of the owed answers, in their order."""
        for packet_type, packet_id, taken in self.owed[:count]:
            refuses = reason and taken is not None and packet_type == p.PUBACK
            if taken is not None:
                self.ledger.settling(self.name, taken, "reject" if refuses else "ack")
            self._send(p.acknowledge(packet_type, packet_id, reason if refuses else None))
        del self.owed[:count]

    def _on_packet(self, packet: Packet) -> None:
        if packet.type == p.CONNACK:
            if not packet.session_present:
                self.on_subscribe()
                self._subscribe(sorted(self.wanted))
        elif packet.type == p.PUBLISH:
            taken = self.ledger.taken_of(packet, self.group)
            if not self.by_puback:
                self.hand.append(taken)
            settles = taken if self.by_puback else None
            if packet.qos == 2:
                self._unreleased[packet.packet_id] = taken
                self.owed.append((p.PUBREC, packet.packet_id, None))
            else:
                self.owed.append((p.PUBACK, packet.packet_id, settles))
        elif packet.type == p.PUBREL:
            released = self._unreleased.pop(packet.packet_id, None)
            settles = released if self.by_puback else None
            self.owed.append((p.PUBCOMP, packet.packet_id, settles))
        elif packet.type == p.SUBACK:
            refused = [code for code in packet.reason_codes if code >= 0x80]
            assert not refused, f"{self.name}: SUBACK {packet.reason_codes}"
