"""Producers and consumers of a queue whose broker is killed, and who are no better themselves.

Each is one client id in a thread, with a clean session: what survives a lost connection is the
queue's business. A producer repeats what was not confirmed, with the message ids it had. A consumer
keeps some deliveries for a while, settles them out of order, and now and then nacks, rejects,
forgets a message, or dies without a word. Once told to be calm it acks everything.

What they see goes into a `History`; what no broker may send is kept in `violations`.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.crash.durable_client import CONNECT_TIMEOUT_S, RECONNECT_S, ConnectionLostError
from tests.crash.queue_history import Delivery, History, Message, Settlement, Verb
from tests.harness import packets as p
from tests.harness.packets import Packet, Properties, WireError
from tests.harness.reading import parse
from tests.harness.wire import _whole_packet

WINDOW = 16
KEYS = 5
POLL_S = 0.02
DELIVERY_TIMEOUT_S = 5.0
# A machine may stand still for a moment: what took longer than this proves nothing.
IN_TIME_S = DELIVERY_TIMEOUT_S / 2
DEATH_S_MAX = 0.4
NACK_DELAY_MS_MAX = 300
GROUP = "workers"
HABITS = ("ack", "keep", "nack", "reject", "forget", "die")
CHANCES = (0.5, 0.38, 0.08, 0.03, 0.005, 0.005)
SERVER_UNAVAILABLE = 0x88

Address = Callable[[], tuple[str, int]]


@dataclass(frozen=True)
class Held:
    """A delivery which its consumer has not settled, and since when it has it."""

    delivery: Delivery
    message_id: str
    since_s: float


class QueueClient:
    """A client id which connects again until it is stopped; `address` says where, each time, and
    `lives` counts the broker's starts."""

    connack_timeout_s = CONNECT_TIMEOUT_S

    def __init__(self, address: Address, client_id: str, lives: Callable[[], int]) -> None:
        self.client_id = client_id
        self.violations: list[str] = []
        self.ready = threading.Event()
        self.life = 0
        self._where = address
        self._lives = lives
        self._last_packet_id = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=client_id, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(CONNECT_TIMEOUT_S * 2)

    def _opening(self) -> bytes:
        """What is sent behind CONNACK."""
        raise NotImplementedError

    def _on_packet(self, packet: Packet) -> bytes:
        """Take one packet and return the answer."""
        raise NotImplementedError

    def _next(self) -> bytes:
        """What this client wants to send now, unasked."""
        raise NotImplementedError

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                life = self._lives()
                with socket.create_connection(self._where(), CONNECT_TIMEOUT_S) as sock:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._serve(sock, life)
            except (OSError, ConnectionLostError):
                time.sleep(RECONNECT_S)
            except (WireError, AssertionError) as error:
                self.violations.append(f"{self.client_id}: {error}")
                time.sleep(RECONNECT_S)

    def _serve(self, sock: socket.socket, life: int) -> None:
        sock.sendall(p.connect(self.client_id))
        packets = _packets(sock)
        connack = _first(packets, self.connack_timeout_s)
        assert connack.type == p.CONNACK, f"before CONNACK: {connack}"
        if connack.reason_code == SERVER_UNAVAILABLE:
            raise ConnectionLostError
        assert connack.reason_code == 0, f"CONNACK {connack.reason_code:#04x}"
        if self._lives() != life:
            return  # which broker answered is not known for certain
        self.life = life
        answers = self._opening()
        while not self._stopping.is_set():
            if answers:
                sock.sendall(answers)
            packet = next(packets)
            answers = b"" if packet is None else self._on_packet(packet)
            answers += self._next()

    def _packet_id(self) -> int:
        self._last_packet_id = self._last_packet_id % 65_535 + 1
        return self._last_packet_id


class Producer(QueueClient):
    """Publishes numbered messages to its own keys while `has_room` says so."""

    def __init__(
        self,
        address: Address,
        client_id: str,
        lives: Callable[[], int],
        queue: str,
        history: History,
        has_room: Callable[[], bool],
    ) -> None:
        super().__init__(address, client_id, lives)
        self._topic = f"$queue/{queue}"
        self._history = history
        self._has_room = has_room
        self._dice = random.Random(client_id)
        self._numbers: Counter[str] = Counter()
        self._unconfirmed: dict[int, Message] = {}
        self._finishing = False

    def finish(self, timeout_s: float) -> None:
        """Publish nothing new, and wait until everything published is confirmed."""
        self._finishing = True
        deadline = time.monotonic() + timeout_s
        while self._unconfirmed and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if self._unconfirmed:
            count = len(self._unconfirmed)
            self.violations.append(f"{self.client_id}: {count} messages never confirmed")

    def _opening(self) -> bytes:
        repeated = list(self._unconfirmed.values())
        self._unconfirmed = {self._packet_id(): message for message in repeated}
        self.ready.set()
        return b"".join(self._written(*item) for item in self._unconfirmed.items())

    def _on_packet(self, packet: Packet) -> bytes:
        if packet.type == p.DISCONNECT:
            raise ConnectionLostError
        assert packet.type == p.PUBACK, f"unexpected {packet}"
        assert packet.reason_code < 0x80, f"publish refused with {packet.reason_code:#04x}"
        self._history.accepted.append(self._unconfirmed.pop(packet.packet_id))
        return b""

    def _next(self) -> bytes:
        data = b""
        while len(self._unconfirmed) < WINDOW and not self._finishing and self._has_room():
            key = f"{self.client_id}/{self._dice.randrange(KEYS)}"
            packet_id, message = self._packet_id(), (key, self._numbers[key])
            self._numbers[key] += 1
            self._unconfirmed[packet_id] = message
            data += self._written(packet_id, message)
        return data

    def _written(self, packet_id: int, message: Message) -> bytes:
        key, number = message
        payload = f"{key}:{number}:".encode() + bytes(self._dice.randrange(200))
        user = {"partition-key": key, "message-id": f"{key}:{number}"}
        return _publish(packet_id, self._topic, payload, user)


class Consumer(QueueClient):
    """One of a group; `ended` counts the acks and rejections it sent."""

    def __init__(
        self,
        address: Address,
        client_id: str,
        lives: Callable[[], int],
        queue: str,
        history: History,
    ) -> None:
        super().__init__(address, client_id, lives)
        self.calm = False
        self.ended = 0
        self._topic = f"$queue/{queue}"
        self._history = history
        self._dice = random.Random(client_id)
        self._held: list[Held] = []
        self._unanswered: dict[int, tuple[Settlement, float]] = {}

    def _opening(self) -> bytes:
        self._held.clear()
        self._unanswered.clear()
        group = _user_properties({"consumer-group": GROUP})
        return p.subscribe(self._packet_id(), [(self._topic, p.options(1))], properties=group)

    def _on_packet(self, packet: Packet) -> bytes:
        match packet.type:
            case p.PUBLISH:
                self._take(packet)
                return p.acknowledge(p.PUBACK, packet.packet_id)
            case p.PUBACK:
                settlement, since_s = self._unanswered.pop(packet.packet_id)
                settlement.in_time = time.monotonic() < since_s + IN_TIME_S
                settlement.code = packet.reason_code
            case p.SUBACK:
                assert packet.reason_codes == [1], f"SUBACK {packet.reason_codes}"
                self.ready.set()
            case p.DISCONNECT:
                raise ConnectionLostError
            case _:
                raise WireError(f"unexpected {packet}")
        return b""

    def _take(self, packet: Packet) -> None:
        names = dict(packet.user_properties)
        group = names.get("group-id", GROUP)  # a quorum queue has no groups and no partitions
        assert group == GROUP, f"group-id {group!r}, not {GROUP!r}"
        message = read_message(packet.payload)
        place = int(names.get("partition", 0)), int(names["offset"])
        count = int(names["delivery-count"])
        delivery = Delivery(message, place, count, self.life, self.client_id)
        self._note(delivery, names)
        self._held.append(Held(delivery, names["message-id"], time.monotonic()))

    def _note(self, delivery: Delivery, names: dict[str, str]) -> None:
        key, number = delivery.message
        assert names["message-id"] == f"{key}:{number}", f"message-id {names['message-id']!r}"
        self._history.deliveries.append(delivery)

    def _next(self) -> bytes:
        """Settle some of what is held, in any order."""
        data = b""
        if not self.calm:
            self._dice.shuffle(self._held)
        kept: list[Held] = []
        for held in self._held:
            habit = "ack" if self.calm else self._dice.choices(HABITS, CHANCES)[0]
            match habit:
                case "die":
                    time.sleep(self._dice.uniform(0, DEATH_S_MAX))
                    raise ConnectionLostError
                case "keep":
                    kept.append(held)
                case "ack" | "nack" | "reject":
                    data += self._settle(held, habit)
                case _:
                    pass  # forgotten, until the delivery timeout gives it to somebody
        self._held = kept
        return data

    def _settle(self, held: Held, verb: Verb) -> bytes:
        settlement = Settlement(held.delivery, verb)
        self._history.settlements.append(settlement)
        self.ended += verb != "nack"
        packet_id = self._packet_id()
        self._unanswered[packet_id] = settlement, held.since_s
        user = {"message-id": held.message_id}
        if verb == "nack":
            user["delay-ms"] = str(self._dice.randrange(NACK_DELAY_MS_MAX))
        return _publish(packet_id, f"{self._topic}/${verb}", b"", user)


class Undertaker(Consumer):
    """Consumes the dead-letter queue and notes who is in it; `reasons` counts why."""

    def __init__(
        self,
        address: Address,
        client_id: str,
        lives: Callable[[], int],
        queue: str,
        history: History,
    ) -> None:
        # Deliveries and settlements of the dead-letter queue are no part of the history checked.
        super().__init__(address, client_id, lives, f"dlq/{queue}", History())
        self.calm = True
        self.reasons: Counter[str] = Counter()
        self._dead = history.dead

    def _note(self, delivery: Delivery, names: dict[str, str]) -> None:
        assert f"$queue/{names['dlq-original-queue']}".endswith(self._topic[len("$queue/dlq/") :])
        if delivery.count == 1:
            self.reasons[names["dlq-reason"]] += 1
        self._dead.append(delivery.message)


def read_message(payload: bytes) -> Message:
    key, number, _ = payload.decode().split(":", 2)
    return key, int(number)


def _publish(packet_id: int, topic: str, payload: bytes, user: dict[str, str]) -> bytes:
    properties = _user_properties(user)
    return p.publish(topic, payload, qos=1, packet_id=packet_id, properties=properties)


def _user_properties(pairs: dict[str, str]) -> Properties:
    return [("user_property", pair) for pair in pairs.items()]


def _first(packets: Iterator[Packet | None], timeout_s: float) -> Packet:
    deadline = time.monotonic() + timeout_s
    for packet in packets:
        if packet is not None:
            return packet
        if time.monotonic() > deadline:
            break
    raise ConnectionLostError


def _packets(sock: socket.socket) -> Iterator[Packet | None]:
    """Whole packets as they come; None when there was none for a moment."""
    data = bytearray()
    while True:
        while length := _whole_packet(data):
            yield parse(bytes(data[:length]), 5)
            del data[:length]
        sock.settimeout(POLL_S)
        try:
            more: bytes | None = sock.recv(262_144)
        except TimeoutError:
            more = None
        # The poll is for reading; half a write would tear a packet.
        sock.settimeout(CONNECT_TIMEOUT_S)
        if more is None:
            yield None
        elif more:
            data += more
        else:
            raise ConnectionLostError
