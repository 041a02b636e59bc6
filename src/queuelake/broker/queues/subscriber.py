"""A client's subscription to a queue: one consumer of a group, and the packets it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from queuelake.broker.deliveries import Consumer, Deliveries, Delivery
from queuelake.broker.queues.incoming import EXPIRY
from queuelake.engine.commands import ACK, NACK, REJECT, Settle
from queuelake.engine.policy.retry import backoff_ms
from queuelake.protocol.message import FIRST_BYTE, encode_ids
from queuelake.protocol.packets import V5
from queuelake.protocol.properties import write_user
from queuelake.protocol.wire import ONE_BYTE, TWO_BYTES, varint

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue
    from queuelake.broker.session import Session, Subscription
    from queuelake.storage.chunk import Record

MESSAGE_ID: Final = b"\x26\0\x0amessage-id"
OFFSET: Final = b"\x26\0\x06offset"
COUNTS: Final = [write_user([(b"delivery-count", b"%d" % n)]) for n in range(64)]
EXPIRY_ID: Final = EXPIRY[0]
EXPIRY_S_MAX: Final = 0xFFFFFFFF


class Subscriber(Consumer):
    """`tag` is the broker's number for it, `consumer` the machine's name."""

    __slots__ = (
        "_ids",
        "_prefixes",
        "consumer",
        "derived",
        "group",
        "host",
        "joined",
        "lost",
        "pattern",
        "prefetch",
        "replays",
        "session",
        "settles_by_puback",
        "starts",
        "subscription",
        "tag",
        "topic",
    )

    def __init__(
        self,
        host: HostedQueue,
        subscription: Subscription,
        group: str,
        derived: bool,
        pattern: bytes,
        tag: int,
    ) -> None:
        session = subscription.session
        self.host: HostedQueue = host
        self.session: Session = session
        self.consumer: str = session.client_id
        self.subscription: Subscription = subscription
        self.group: str = group
        self.derived: bool = derived
        self.pattern: bytes = pattern
        self.tag: int = tag
        self.topic: bytes = host.topic
        self.prefetch: int = 0  # 0: as the queue says
        self.starts: list[int] | None = None  # where its group begins
        self.replays: bool = False  # a group which is known already goes back there
        self.settles_by_puback: bool = False
        self.joined: bool = False
        self.lost: bool = False  # it gave no sign of life; it joins again with the next one
        self._prefixes: list[bytes] = []  # properties which are the same for a whole partition
        number = subscription.subscription_id
        self._ids: bytes = encode_ids([number]) if number else b""

    def has_started(self) -> None:
        """Its group is in the store: whoever joins it again goes on where it is."""
        self.starts = None

    def deliver(self, delivery: Delivery) -> None:
        deliveries = self.session.deliveries
        if deliveries is None:
            deliveries = self.session.deliveries = Deliveries()
        deliveries.add(delivery)

    def delivery_qos(self, record: Record) -> int:
        granted = self.subscription.qos
        return (record.qos if record.qos < granted else granted) or 1

    def is_out(self, delivery: Delivery) -> bool:
        group = self.host.machine.groups.get(self.group)
        if group is None:
            return False
        return group.is_out(delivery.partition, delivery.record.seq, delivery.attempt)

    def frame(self, delivery: Delivery, packet_id: bytes, now_ms: int) -> bytes:
        record = delivery.record
        first = FIRST_BYTE | delivery.qos << 1
        topic = self.topic
        if self.pattern and record.topic:
            topic = record.topic  # what matched is what the client subscribed to
        payload = record.payload
        if self.session.version != V5:
            left = varint(4 + len(topic) + len(payload))
            return b"".join(
                [ONE_BYTE[first], left, TWO_BYTES[len(topic)], topic, packet_id, payload]
            )
        partition = delivery.partition
        if partition >= len(self._prefixes):
            self._make_prefixes(partition + 1)
        prefix = self._prefixes[partition]
        offset = str(record.seq).encode()
        message_id = record.message_id or self.host.id_prefixes[partition] + offset
        count = _count(delivery.attempt)
        source = write_user([(b"x-source-topic", record.topic)]) if record.topic else b""
        rest = record.properties
        if rest and rest[0] == EXPIRY_ID:
            left_s = min(max(0, (record.expires_ms - now_ms + 999) // 1000), EXPIRY_S_MAX)
            rest = EXPIRY + left_s.to_bytes(4, "big") + rest[5:]
        size = len(prefix) + len(message_id) + len(offset) + len(count) + len(source) + len(rest)
        size += 4 + len(OFFSET)
        size_bytes = varint(size)
        length = 4 + len(topic) + len(size_bytes) + size + len(payload)
        return b"".join(
            [
                ONE_BYTE[first],
                varint(length),
                TWO_BYTES[len(topic)],
                topic,
                packet_id,
                size_bytes,
                prefix,
                TWO_BYTES[len(message_id)],
                message_id,
                OFFSET,
                TWO_BYTES[len(offset)],
                offset,
                count,
                source,
                rest,
                payload,
            ]
        )

    def _make_prefixes(self, count: int) -> None:
        for partition in range(len(self._prefixes), count):
            pairs = [
                (b"queue", self.topic),
                (b"group-id", self.group.encode()),
                (b"partition", str(partition).encode()),
            ]
            self._prefixes.append(self._ids + write_user(pairs) + MESSAGE_ID)

    def settle(self, delivery: Delivery, outcome: int, words: str = "", delay_ms: int = 0) -> None:
        """The outcome of a delivery which the client did not tell by a publish."""
        host = self.host
        host.active_ms = host.queues.clock.now_ms()
        partition, seq = delivery.partition, delivery.record.seq
        host.apply(
            Settle(self.group, self.consumer, partition, seq, outcome, delay_ms, words),
            host.active_ms,
        )

    # What the client answers on the MQTT level

    def acknowledged(self, delivery: Delivery, reason: int) -> None:
        if self.settles_by_puback:
            outcome = ACK if reason < 0x80 else REJECT
            words = "" if reason < 0x80 else f"refused with reason 0x{reason:02X}"
            self.settle(delivery, outcome, words)

    def undeliverable(self, delivery: Delivery, size: int) -> None:
        limit = self.session.packet_size_max
        words = f"its packet has {size} bytes, the client takes {limit}"
        # It may come to the same client again, and where retries have no end, without end.
        delay_ms = backoff_ms(self.host.machine.policy, delivery.attempt)
        self.settle(delivery, NACK, words, delay_ms)


def _count(attempt: int) -> bytes:
    if attempt < len(COUNTS):
        return COUNTS[attempt]
    return write_user([(b"delivery-count", str(attempt).encode())])
