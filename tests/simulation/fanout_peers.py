"""Those who take part in a simulated fan-out: platforms which trigger, vehicles which acknowledge.

What a peer was sent is in the bytes its transport has received; it reads them when it is told to.
The ledger hears of everything at the moment when the broker writes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.harness import packets as p
from tests.harness.packets import Packet
from tests.harness.reading import parse
from tests.harness.wire import _whole_packet
from tests.simulation.network import FakeTransport


@dataclass
class Triggered:
    """One trigger; its number is its payload too."""

    number: int
    platform: str
    vins: list[str]
    request_id: str
    has_data: bool = False  # the data was accepted before the trigger was sent
    is_accepted: bool = False
    delivered: set[str] = field(default_factory=set)
    acked: dict[str, int] = field(default_factory=dict)  # by vehicle, in which epoch


class Ledger:
    """What was promised, and which promises were broken."""

    def __init__(self) -> None:
        self.triggers: dict[int, Triggered] = {}
        self.wrong: list[str] = []
        self.epoch = 0  # another one begins when the broker may have forgotten something
        self._last: dict[tuple[str, str], int] = {}  # vehicle, platform -> trigger delivered last

    def delivered(self, vehicle: Vehicle, packet: Packet) -> None:
        name = vehicle.name
        number = int(packet.payload)
        one = self.triggers.get(number)
        if one is None or name not in one.vins:
            self.wrong.append(f"{name} got {number}, which was not meant for it")
            return
        if packet.topic != f"agent/{name}/proxy/request/{one.request_id}":
            self.wrong.append(f"{name} got {number} at {packet.topic}")
        if one.acked.get(name) == self.epoch:
            self.wrong.append(f"{name} got {number} again after it had acknowledged it")
        if vehicle.unanswered:
            self.wrong.append(f"{name} got {number} while {vehicle.unanswered} were in flight")
        if name not in one.delivered:
            one.delivered.add(name)
            last = self._last.get((name, one.platform), 0)
            if one.has_data and number < last and self.triggers[last].has_data:
                self.wrong.append(f"{name} got {number} after {last} of the same platform")
            if one.has_data:
                self._last[(name, one.platform)] = number


class Peer:
    """One client."""

    def __init__(self, name: str, version: int, expiry_s: int) -> None:
        self.name = name
        self.version = version
        self.expiry_s = expiry_s
        self.transport: FakeTransport | None = None
        self.is_online = False

    def log_in(self, transport: FakeTransport, clean: bool = False) -> None:
        self.transport = transport
        self.is_online = False
        properties: p.Properties = None
        if self.version == 5:
            properties = {"session_expiry_interval": self.expiry_s}
        else:
            clean = clean or self.expiry_s == 0
        transport.send(
            p.connect(self.name, version=self.version, clean=clean, properties=properties)
        )

    def forget_connection(self) -> FakeTransport | None:
        transport, self.transport = self.transport, None
        self.is_online = False
        return transport

    def read(self) -> None:
        """Look at everything that has come."""
        transport = self.transport
        while transport is not None and transport is self.transport:
            length = _whole_packet(transport.received)
            if not length:
                break
            packet = parse(bytes(transport.received[:length]), self.version)
            del transport.received[:length]
            self.on_packet(packet)
        if transport is not None and transport.closed_by_broker():
            self.forget_connection()

    def on_packet(self, packet: Packet) -> None:
        if packet.type == p.CONNACK:
            self.is_online = packet.reason_code == 0


class Platform(Peer):
    """Publishes data, and triggers about data."""

    def __init__(self, name: str, version: int, ledger: Ledger) -> None:
        super().__init__(name, version, 0)
        self._ledger = ledger
        self._packet_id = 0
        self._waiting: dict[int, tuple[str, int]] = {}
        self.stored: set[int] = set()  # numbers whose data was accepted

    def forget_connection(self) -> FakeTransport | None:
        self._waiting.clear()
        return super().forget_connection()

    def publish_data(self, number: int) -> None:
        self._publish("data", number, f"$SDV-FANOUT/data/d{number}", b"%d" % number)

    def publish_trigger(self, one: Triggered, body: bytes) -> None:
        self._publish("trigger", one.number, "$SDV-FANOUT/trigger", body)

    def _publish(self, what: str, number: int, topic: str, payload: bytes) -> None:
        assert self.transport is not None
        self._packet_id = self._packet_id % 60_000 + 1
        self._waiting[self._packet_id] = (what, number)
        packet = p.publish(topic, payload, qos=1, packet_id=self._packet_id, version=self.version)
        self.transport.send(packet)

    def on_packet(self, packet: Packet) -> None:
        super().on_packet(packet)
        if packet.type != p.PUBACK:
            return
        first = next(iter(self._waiting))
        if packet.packet_id != first:
            self._ledger.wrong.append(f"{self.name}: PUBACK {packet.packet_id} before {first}")
        what, number = self._waiting.pop(packet.packet_id)
        if packet.reason_code:
            self._ledger.wrong.append(f"{what} {number} answered with {packet.reason_code}")
        elif what == "data":
            self.stored.add(number)
        else:
            self._ledger.triggers[number].is_accepted = True


class Vehicle(Peer):
    """Takes what it gets, and acknowledges it when it is told to."""

    def __init__(self, name: str, version: int, expiry_s: int, ledger: Ledger) -> None:
        super().__init__(name, version, expiry_s)
        self._ledger = ledger
        self.inbox: list[Packet] = []
        self.unanswered = 0  # as the broker must see it
        self._has_subscribed = False
        self._was_answered = True  # of its last CONNECT

    def log_in(self, transport: FakeTransport, clean: bool = False) -> None:
        self.inbox.clear()
        self.unanswered = 0
        # A session which it never heard of may have taken the place of the one it knows.
        self._has_subscribed = self._has_subscribed and self._was_answered and not clean
        self._was_answered = False
        super().log_in(transport, clean)

    def forget_connection(self) -> FakeTransport | None:
        self.inbox.clear()
        return super().forget_connection()

    def sent(self, packet: Packet) -> None:
        """The broker has written this to the current connection."""
        if packet.type == p.PUBLISH:
            self._ledger.delivered(self, packet)
            self.unanswered += 1

    def on_packet(self, packet: Packet) -> None:
        super().on_packet(packet)
        if packet.type == p.CONNACK:
            self._was_answered = True
            self._has_subscribed = self._has_subscribed and packet.session_present
            if not self._has_subscribed:
                self.subscribe()
        elif packet.type == p.SUBACK:
            self._has_subscribed = True
        elif packet.type == p.PUBLISH:
            self.inbox.append(packet)

    def subscribe(self) -> None:
        assert self.transport is not None
        topic = f"agent/{self.name}/proxy/request/+"
        self.transport.send(p.subscribe(1, [(topic, 1)], version=self.version))

    def beat(self) -> None:
        assert self.transport is not None
        self.transport.send(p.publish(f"ecp/{self.name}/heartbeat", b"", version=self.version))

    def acknowledge(self, reason: int = 0) -> None:
        assert self.transport is not None
        packet = self.inbox.pop(0)
        self.unanswered -= 1
        if not reason:
            self._ledger.triggers[int(packet.payload)].acked[self.name] = self._ledger.epoch
        self.transport.send(p.acknowledge(p.PUBACK, packet.packet_id, reason or None))
