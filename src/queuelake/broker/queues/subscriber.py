"""A client's subscription to a queue: one consumer of a group, and the packets it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from queuelake.broker.deliveries import Consumer, Delivery
from queuelake.broker.queues.incoming import EXPIRY
from queuelake.engine.commands import ACK, NACK, REJECT, Settle
from queuelake.engine.policy.retry import backoff_ms
from queuelake.protocol.message import FIRST_BYTE, encode_ids
from queuelake.protocol.packets import V5
from queuelake.protocol.properties import write_user
from queuelake.protocol.wire import ONE_BYTE, TWO_BYTES, binary, varint

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue
    from queuelake.broker.session import Session, Subscription
    from queuelake.storage.chunk import Record

MESSAGE_ID: Final = b"\x26\0\x0amessage-id"
OFFSET: Final = b"\x26\0\x06offset"
COUNTS: Final = [write_user([(b"delivery-count", b"%d" % n)]) for n in range(64)]
LAST_DIGITS: Final = [b"%03d" % n for n in range(1000)]
EXPIRY_ID: Final = EXPIRY[0]
EXPIRY_S_MAX: Final = 0xFFFFFFFF


@final
class Stamp:
    """The properties of a partition's messages around the last three digits of their sequence."""

    __slots__ = ("before", "between", "thousand")

    def __init__(self, prefix: bytes, id_prefix: bytes, thousand: int) -> None:
        digits = str(thousand).encode()
        offset_size = len(digits) + 3
        self.thousand: i64 = thousand
        self.before: bytes = b"".join(
            [prefix, TWO_BYTES[len(id_prefix) + offset_size], id_prefix, digits]
        )
        self.between: bytes = OFFSET + TWO_BYTES[offset_size] + digits


class Subscriber(Consumer):
    """`tag` is the broker's number for it, `consumer` the machine's name."""

    __slots__ = (
        "_ids",
        "_prefixes",
        "_stamps",
        "_topic_field",
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
        self._topic_field: bytes = binary(host.topic)
        self.prefetch: int = 0  # 0: as the queue says
        self.starts: list[int] | None = None  # where its group begins
        self.replays: bool = False  # a group which is known already goes back there
        self.settles_by_puback: bool = False
        self.joined: bool = False
        self.lost: bool = False  # it gave no sign of life; it joins again with the next one
        self._prefixes: list[bytes] = []  # properties which are the same for a whole partition
        self._stamps: list[Stamp] = []
        number = subscription.subscription_id
        self._ids: bytes = encode_ids([number]) if number else b""

    def has_started(self) -> None:
        """Its group is in the store: whoever joins it again goes on where it is."""
        self.starts = None

    def deliver(self, delivery: Delivery) -> None:
        self.session.deliver(delivery)

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
        topic = self._topic_field
        is_below = len(record.topic) > 0
        if is_below and self.pattern:
            topic = binary(record.topic)  # what matched is what the client subscribed to
        payload = record.payload
        if self.session.version != V5:
            left = varint(len(topic) + 2 + len(payload))
            return b"".join([ONE_BYTE[first], left, topic, packet_id, payload])
        partition = delivery.partition
        if partition >= len(self._prefixes):
            self._make_prefixes(partition + 1)
        digits = b""
        between = b""
        seq: i64 = record.seq
        if seq < 1000 or len(record.message_id) > 0:
            before = self._identity(record, partition)
        else:
            thousand = seq // 1000
            stamp = self._stamps[partition]
            if stamp.thousand != thousand:
                stamp = self._stamp(partition, thousand)
            before = stamp.before
            between = stamp.between
            digits = LAST_DIGITS[seq - thousand * 1000]
        count = _count(delivery.attempt)
        rest = record.properties
        if len(rest) > 0 and rest[0] == EXPIRY_ID:
            left_s = min(max(0, (record.expires_ms - now_ms + 999) // 1000), EXPIRY_S_MAX)
            rest = EXPIRY + left_s.to_bytes(4, "big") + rest[5:]
        if is_below:
            rest = write_user([(b"x-source-topic", record.topic)]) + rest
        size = len(before) + len(between) + 2 * len(digits) + len(count) + len(rest)
        size_bytes = varint(size)
        length = len(topic) + 2 + len(size_bytes) + size + len(payload)
        # Compiled, this is one allocation and a copy of each part; a join costs three times that.
        return b"%b%b%b%b%b%b%b%b%b%b%b%b" % (
            ONE_BYTE[first],
            varint(length),
            topic,
            packet_id,
            size_bytes,
            before,
            digits,
            between,
            digits,
            count,
            rest,
            payload,
        )

    def _identity(self, record: Record, partition: int) -> bytes:
        """The properties up to the offset, of a message whose id is its producer's, or short."""
        offset = str(record.seq).encode()
        message_id = record.message_id or self.host.id_prefixes[partition] + offset
        return b"%b%b%b%b%b%b" % (
            self._prefixes[partition],
            TWO_BYTES[len(message_id)],
            message_id,
            OFFSET,
            TWO_BYTES[len(offset)],
            offset,
        )

    def _stamp(self, partition: int, thousand: int) -> Stamp:
        """As `_identity`, for the thousand sequences from here on."""
        stamp = Stamp(self._prefixes[partition], self.host.id_prefixes[partition], thousand)
        self._stamps[partition] = stamp
        return stamp

    def _make_prefixes(self, count: int) -> None:
        for partition in range(len(self._prefixes), count):
            pairs = [
                (b"queue", self.topic),
                (b"group-id", self.group.encode()),
                (b"partition", str(partition).encode()),
            ]
            self._prefixes.append(self._ids + write_user(pairs) + MESSAGE_ID)
            self._stamps.append(Stamp(b"", b"", 0))

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
