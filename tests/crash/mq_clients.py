"""Publishers and subscribers of a message queue whose broker is killed.

Each is one client id in a thread. A publisher never repeats anything: what was not confirmed may be
stored or not. A subscriber keeps some deliveries for a while, settles them out of order, and now
and then rejects one or dies without a word. Once told to be calm it acks everything.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

from tests.crash.durable_client import ConnectionLostError
from tests.crash.mq_history import MqHistory
from tests.crash.queue_clients import DEATH_S_MAX, WINDOW, Address, QueueClient, read_message
from tests.crash.queue_history import Message
from tests.harness import packets as p
from tests.harness.packets import Packet, WireError

KEYS = 4
SIZES = (10, 10, 300, 40_000)  # the last does not fit into one piece of a chunk
SEALS = "seal"
HABITS = ("ack", "keep", "reject", "die")
CHANCES = (0.5, 0.4, 0.095, 0.005)
REFUSED = 0x80


class Publisher(QueueClient):
    """Publishes numbered values of its own keys while `has_room` says so."""

    def __init__(
        self,
        place: Address,
        client_id: str,
        lives: Callable[[], int],
        root: str,
        history: MqHistory,
        has_room: Callable[[], bool],
    ) -> None:
        super().__init__(place, client_id, lives)
        self.finishing = False
        self._root = root
        self._history = history
        self._has_room = has_room
        self._dice = random.Random(client_id)
        self._numbers: Counter[str] = Counter()
        self._unconfirmed: dict[int, Message] = {}

    def is_done(self) -> bool:
        return self.finishing and not self._unconfirmed

    def _opening(self) -> bytes:
        self._unconfirmed.clear()
        self.ready.set()
        return b""

    def _on_packet(self, packet: Packet) -> bytes:
        if packet.type == p.DISCONNECT:
            raise ConnectionLostError
        assert packet.type == p.PUBACK, f"unexpected {packet}"
        assert packet.reason_code < 0x80, f"publish refused with {packet.reason_code:#04x}"
        self._history.accepted.append(self._unconfirmed.pop(packet.packet_id))
        return b""

    def _next(self) -> bytes:
        data = b""
        while len(self._unconfirmed) < WINDOW and not self.finishing and self._has_room():
            key = f"{self.client_id}/{self._dice.randrange(KEYS)}"
            packet_id, message = self._packet_id(), (key, self._numbers[key])
            self._numbers[key] += 1
            self._unconfirmed[packet_id] = message
            self._history.published.add(message)
            payload = f"{key}:{message[1]}:".encode() + bytes(self._dice.choice(SIZES))
            data += p.publish(f"{self._root}/{key}", payload, qos=1, packet_id=packet_id)
        return data


class Subscriber(QueueClient):
    """One of those who share a queue."""

    def __init__(
        self,
        place: Address,
        client_id: str,
        lives: Callable[[], int],
        address: str,
        history: MqHistory,
    ) -> None:
        super().__init__(place, client_id, lives)
        self.calm = False
        self._address = address
        self._history = history
        self._dice = random.Random(client_id)
        self._held: list[tuple[int, Message]] = []
        self._acked: list[Message] = []  # since the last mark
        self._marks: dict[int, list[Message]] = {}
        self._seen: dict[str, int] = {}

    def _opening(self) -> bytes:
        self._held.clear()
        self._acked.clear()
        self._marks.clear()
        self._seen.clear()
        return p.subscribe(self._packet_id(), [(self._address, p.options(1))])

    def _on_packet(self, packet: Packet) -> bytes:
        match packet.type:
            case p.PUBLISH:
                message = read_message(packet.payload)
                assert packet.topic.endswith(message[0]), f"{message} came as {packet.topic}"
                self._history.delivery(message, self.life, self._seen, self.client_id)
                self._held.append((packet.packet_id, message))
            case p.PUBACK:
                assert packet.reason_code == 0, f"mark refused with {packet.reason_code:#04x}"
                for message in self._marks.pop(packet.packet_id):
                    self._history.sealed.setdefault(message, self.life)
            case p.SUBACK:
                assert packet.reason_codes == [1], f"SUBACK {packet.reason_codes}"
                self.ready.set()
            case p.DISCONNECT:
                raise ConnectionLostError
            case _:
                raise WireError(f"unexpected {packet}")
        return b""

    def _next(self) -> bytes:
        """Settle some of what is held, in any order; a mark behind it."""
        data = b""
        if not self.calm:
            self._dice.shuffle(self._held)
        kept: list[tuple[int, Message]] = []
        for packet_id, message in self._held:
            match "ack" if self.calm else self._dice.choices(HABITS, CHANCES)[0]:
                case "die":
                    time.sleep(self._dice.uniform(0, DEATH_S_MAX))
                    raise ConnectionLostError
                case "keep":
                    kept.append((packet_id, message))
                case "reject":
                    self._history.rejected += 1
                    data += p.acknowledge(p.PUBACK, packet_id, REFUSED)
                case _:
                    self._history.acked.add(message)
                    self._acked.append(message)
                    data += p.acknowledge(p.PUBACK, packet_id)
        self._held = kept
        return data + self._mark()

    def _mark(self) -> bytes:
        if not self._acked or len(self._marks) >= WINDOW:
            return b""
        packet_id = self._packet_id()
        self._marks[packet_id], self._acked = self._acked, []
        return p.publish(f"{SEALS}/{self.client_id}", b"", qos=1, packet_id=packet_id)
