"""Deliveries of queues on their way to one client, beside the messages of its session.

They are not part of the session's own queue: what is not settled when the client leaves goes back
to its queue, which knows better than a session who gets it next. Their packet ids are those above
`PACKET_ID_MAX`, so that they never meet an id of the session, and both share the client's
receive maximum.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr, trait

from queuelake.broker.packet_ids import DELIVERY_ID_MIN, DELIVERY_IDS
from queuelake.protocol.message import PACKET_IDS
from queuelake.storage.chunk import Record

if TYPE_CHECKING:
    from queuelake.broker.session import Session

RING_MIN: Final = 16


@trait
class Consumer:
    """Where deliveries come from, and where their outcome is told."""

    @abstractmethod
    def is_out(self, delivery: Delivery) -> bool:
        """Whether the queue still means it: it may have timed out or been settled meanwhile."""

    @abstractmethod
    def frame(self, delivery: Delivery, packet_id: bytes, now_ms: int) -> bytes:
        """The PUBLISH for this delivery."""

    @abstractmethod
    def acknowledged(self, delivery: Delivery, reason: int) -> None:
        """The client has it (PUBACK, PUBCOMP), or said no (a reason of 0x80 and above)."""

    @abstractmethod
    def undeliverable(self, delivery: Delivery, size: int) -> None:
        """Its packet is larger than the client takes."""


@final
@mypyc_attr(acyclic=True)
class Delivery:
    """One message for one consumer."""

    __slots__ = ("attempt", "consumer", "packet_id", "partition", "qos", "record", "released")

    def __init__(
        self, consumer: Consumer, record: Record, partition: int, attempt: int, qos: int
    ) -> None:
        self.consumer: Consumer = consumer
        self.record: Record = record
        self.partition: int = partition
        self.attempt: int = attempt
        self.qos: int = qos
        self.released: bool = False  # QoS 2: PUBREC has come
        self.packet_id: i64 = 0  # 0: it has not left


@final
class Inflight:
    """Deliveries by packet id. Ids are given in order and come back nearly so: those which are out
    have different last bits, so that each has its place in a ring which is as long as need be."""

    __slots__ = ("_count", "_mask", "_ring")

    def __init__(self) -> None:
        self._count: i64 = 0
        self._mask: i64 = RING_MIN - 1
        self._ring: list[Delivery | None] = [None] * RING_MIN

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, packet_id: int) -> Delivery:
        found = self.get(packet_id)
        if found is None:
            raise KeyError(packet_id)
        return found

    def get(self, packet_id: i64) -> Delivery | None:
        found = self._ring[packet_id & self._mask]
        return found if found is not None and found.packet_id == packet_id else None

    def put(self, packet_id: i64, delivery: Delivery) -> None:
        """`packet_id` is not among them."""
        while self._ring[packet_id & self._mask] is not None:
            self._grow()
        delivery.packet_id = packet_id
        self._ring[packet_id & self._mask] = delivery
        self._count += 1

    def remove(self, delivery: Delivery) -> None:
        place = delivery.packet_id & self._mask
        assert self._ring[place] is delivery
        self._ring[place] = None
        self._count -= 1

    def _grow(self) -> None:
        assert self._mask + 1 < DELIVERY_IDS, "a packet id is given twice"
        there = self._ring
        self._mask = 2 * self._mask + 1
        ring: list[Delivery | None] = [None] * (2 * len(there))
        for delivery in there:
            if delivery is not None:
                ring[delivery.packet_id & self._mask] = delivery
        self._ring = ring


@final
class Deliveries:
    """What waits, and what is out and not acknowledged on the MQTT level."""

    __slots__ = ("_ids", "_next_id", "_waiting", "inflight")

    def __init__(self, ids: int) -> None:
        self._ids: i64 = ids  # how many there are; a power of two
        self._next_id: i64 = 0
        self._waiting: list[Delivery] = []  # bounded by the prefetch of the consumers
        self.inflight: Inflight = Inflight()

    def add(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)

    def has_waiting(self) -> bool:
        return len(self._waiting) > 0

    def pump(self, session: Session, out: list[bytes], now_ms: int, sent: list[int]) -> None:
        """Move what may leave now into `out`."""
        room = session.window - len(session.inflight) - len(self.inflight)
        room = min(room, self._ids - len(self.inflight))
        if room <= 0:
            return
        waiting = self._waiting
        self._waiting = []
        limit = session.packet_size_max
        inflight = self.inflight
        at_least_once = 0
        for at, delivery in enumerate(waiting):
            if room == 0:
                self._waiting = waiting[at:] + self._waiting
                break
            if not delivery.consumer.is_out(delivery):
                continue
            packet_id = self._free_id()
            frame = delivery.consumer.frame(delivery, PACKET_IDS[packet_id], now_ms)
            if limit and len(frame) > limit:
                delivery.consumer.undeliverable(delivery, len(frame))
                continue
            qos = delivery.qos
            if qos == 1:
                at_least_once += 1
            else:
                sent[qos] += 1
            out.append(frame)
            if qos == 0:
                delivery.consumer.acknowledged(delivery, 0)
                continue
            inflight.put(packet_id, delivery)
            room -= 1
        sent[1] += at_least_once  # once for all: the items of a list are objects

    def _free_id(self) -> i64:
        while True:
            packet_id = DELIVERY_ID_MIN + self._next_id
            self._next_id = self._next_id + 1 & self._ids - 1
            if self.inflight.get(packet_id) is None:
                return packet_id

    def forget(self, consumer: Consumer) -> list[Delivery]:
        """The consumer is gone: returns what has not left, and will not."""
        unsent = [one for one in self._waiting if one.consumer is consumer]
        self._waiting = [one for one in self._waiting if one.consumer is not consumer]
        return unsent

    # Answers of the client

    def on_ack(self, packet_id: int, reason: int) -> None:
        """PUBACK, or a PUBREC which refuses."""
        delivery = self.inflight.get(packet_id)
        if delivery is not None:
            self.inflight.remove(delivery)
            delivery.consumer.acknowledged(delivery, reason)

    def on_pubrec(self, packet_id: int) -> bool:
        delivery = self.inflight.get(packet_id)
        if delivery is None or delivery.qos != 2:
            return False
        delivery.released = True
        return True

    def on_pubcomp(self, packet_id: int) -> None:
        delivery = self.inflight.get(packet_id)
        if delivery is not None and delivery.released:
            self.inflight.remove(delivery)
            delivery.consumer.acknowledged(delivery, 0)
