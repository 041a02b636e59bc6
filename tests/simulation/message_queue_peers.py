"""Clients of simulated message queues: publishers of ordinary topics, subscribers of queues.

A publisher begins anew with every connection, so no message is ever sent twice, and what it heard
nothing of may be stored or not. A subscriber has some filters, each of which means one queue.
"""

from __future__ import annotations

from tests.harness import packets as p
from tests.harness.packets import Packet
from tests.simulation.message_queue_ledger import Posted, Seen
from tests.simulation.network import FakeTransport
from tests.simulation.queue_peers import WINDOW, Link, Peer


class Publisher(Peer):
    def __init__(self, name: str, version: int) -> None:
        super().__init__(name, version, expiry_s=0)
        self.clean = True
        self.pending: dict[int, Posted] = {}
        self.unanswered: dict[int, int] = {}  # packet id -> number, as far as the broker has said

    def connect(self, transport: FakeTransport) -> Link:
        self.pending.clear()
        self.unanswered.clear()
        return super().connect(transport)

    def is_heard(self) -> bool:
        """Whether the broker reads what is sent now, not later."""
        return self.link is not None and self.link.transport.is_read()

    def has_room(self) -> bool:
        return self.online and len(self.pending) < WINDOW

    def post(self, message: Posted) -> None:
        packet_id = 0
        if message.qos:
            packet_id = self._free_id(self.pending)
            self.pending[packet_id] = message
            self.unanswered[packet_id] = message.number
        properties: p.Properties = None
        if self.version == 5 and message.expiry_s:
            properties = {"message_expiry_interval": message.expiry_s}
        self._send(
            p.publish(
                message.topic,
                message.payload(),
                qos=message.qos,
                packet_id=packet_id,
                properties=properties,
                version=self.version,
            )
        )

    def _on_packet(self, packet: Packet) -> None:
        if packet.type == p.PUBREC and packet.reason_code < 0x80:
            self._send(p.acknowledge(p.PUBREL, packet.packet_id))
        elif packet.type in (p.PUBACK, p.PUBREC, p.PUBCOMP):
            self.pending.pop(packet.packet_id, None)


class Subscriber(Peer):
    """`owed` is what it has to answer, in order."""

    def __init__(self, name: str, version: int, filters: list[str], qos: int, *, expiry_s: int):
        super().__init__(name, version, expiry_s)
        self.filters = filters
        self.qos = qos
        self.wanted = set(filters)
        self.refused: set[str] = set()  # they were not to be had
        self.owed: list[int] = []
        self.taken: dict[int, Seen] = {}  # by packet id, as the broker has written it
        self._asked: dict[int, str] = {}

    def connect(self, transport: FakeTransport) -> Link:
        self.owed.clear()
        self.taken.clear()
        self._asked.clear()
        return super().connect(transport)

    def subscribe(self, topic_filter: str) -> None:
        """With the number of the filter as its identifier."""
        self.wanted.add(topic_filter)
        self.refused.discard(topic_filter)
        number = self.filters.index(topic_filter) + 1
        self._asked[number] = topic_filter
        properties: p.Properties = None
        if self.version == 5:
            properties = {"subscription_identifier": number}
        items: list[p.Subscription] = [(topic_filter, self.qos)]
        self._send(p.subscribe(number, items, properties=properties, version=self.version))

    def unsubscribe(self, topic_filter: str) -> None:
        self.wanted.discard(topic_filter)
        self._send(p.unsubscribe(9998, [topic_filter], version=self.version))

    def answer(self, packet_id: int, reason: int) -> None:
        self.owed.remove(packet_id)
        code = reason if self.version == 5 and reason else None
        self._send(p.acknowledge(p.PUBACK, packet_id, code))

    def filter_of(self, packet: Packet) -> str:
        if self.version != 5:
            return self.filters[0]
        (number,) = packet.properties["subscription_identifier"]
        return self.filters[int(number) - 1]

    def _on_packet(self, packet: Packet) -> None:
        if packet.type == p.CONNACK:
            if not packet.session_present:
                for topic_filter in sorted(self.wanted):
                    self.subscribe(topic_filter)
        elif packet.type == p.PUBLISH and packet.qos:
            assert packet.qos == 1, f"{self.name}: QoS {packet.qos} of a message queue"
            self.owed.append(packet.packet_id)
        elif packet.type == p.SUBACK:
            (code,) = packet.reason_codes
            topic_filter = self._asked[packet.packet_id]
            if code >= 0x80:
                self.refused.add(topic_filter)
            else:
                assert code == min(self.qos, 1), f"{self.name}: SUBACK {code} for {topic_filter}"
