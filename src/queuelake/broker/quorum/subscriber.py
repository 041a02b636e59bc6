"""A client's subscription to a quorum queue: one consumer, and the packets it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from queuelake.broker.deliveries import Consumer, Delivery
from queuelake.broker.queues.incoming import EXPIRY
from queuelake.broker.queues.subscriber import EXPIRY_ID, EXPIRY_S_MAX
from queuelake.broker.quorum import tracing
from queuelake.broker.quorum.rows import PARTITION, seq_of
from queuelake.engine.machine import Command
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.message import Message
from queuelake.engine.quorum.policy import PREFETCH_UNLIMITED, UNSET
from queuelake.protocol.message import FIRST_BYTE, encode_ids
from queuelake.protocol.packets import V5
from queuelake.protocol.properties import write_user
from queuelake.protocol.wire import ONE_BYTE, binary, varint

if TYPE_CHECKING:
    from queuelake.broker.quorum.host import QuorumHost
    from queuelake.broker.session import Session, Subscription
    from queuelake.storage.chunk import Record

DELIVERED_IDS_MAX: Final = 100_000
SEQUENCES_PER_ID_MAX: Final = 1_000
TOO_LARGE_DELAY_MS: Final = 1_000


@final
class QuorumSubscriber(Consumer):
    """`key` is the machine's name for it, once it has checked out."""

    __slots__ = (
        "_ids",
        "_numbers",
        "_prefix",
        "_topic_field",
        "expected",
        "host",
        "joined",
        "key",
        "pid",
        "prefetch",
        "priority",
        "session",
        "settles_by_puback",
        "subscription",
        "timeout_ms",
    )

    def __init__(self, host: QuorumHost, subscription: Subscription, pid: str) -> None:
        self.host: QuorumHost = host
        self.session: Session = subscription.session
        self.pid: str = pid
        self.key: int = 0
        self.expected: int = 0  # the number of its next delivery
        self._numbers: dict[int, int] = {}  # sequence -> number of the delivery it holds it by
        self._topic_field: bytes = binary(host.topic)
        self.joined: bool = True  # False: it gets nothing more, and may settle what it has
        self.prefetch: int = 0
        self.priority: int = 0
        self.timeout_ms: int = UNSET
        self.settles_by_puback: bool = False
        self.subscribed(subscription)

    def subscribed(self, subscription: Subscription) -> None:
        """For the first time, or again."""
        self.subscription: Subscription = subscription
        number = subscription.subscription_id
        self._ids: bytes = encode_ids([number]) if number else b""
        self._prefix: bytes = self._ids + write_user([(b"queue", self.host.topic)])

    def tag(self) -> str:
        return self.subscription.topic_filter.decode()

    # Coming and going

    def check_out(self, now_ms: int) -> None:
        prefetch = min(self.prefetch or PREFETCH_UNLIMITED, self.session.window)
        command = c.Checkout(self.pid, self.tag(), prefetch, self.priority, self.timeout_ms)
        reply = self.host.apply(command, now_ms)
        assert isinstance(reply, r.CheckedOut)
        if reply.key != self.key:  # to the machine it is another one, which begins with nothing
            self.host.subscribers.pop(self.key, None)
            self.begin_again()
        self.key = reply.key
        self.joined = True
        self.host.subscribers[reply.key] = self
        known = self.host.by_session.setdefault(self.session.id, [])
        if self not in known:
            known.append(self)

    def cancel(self, now_ms: int) -> None:
        """What it has it may still settle; what has not left goes back."""
        self.joined = False
        unsent = self.take_unsent()
        consumer = self.host.machine.consumers.get(self.key)
        if consumer is not None:  # what is handed out by a commit which is under way
            unsent += [msg_id for msg_id in consumer.held if msg_id >= self.expected]
        self.host.apply(c.Cancel(self.pid, self.tag()), now_ms)
        if unsent:
            self.host.apply(c.Return(self.key, unsent), now_ms)

    def leave(self) -> None:
        """Its connection is over."""
        self.joined = False
        self.take_unsent()
        self.host.subscribers.pop(self.key, None)
        self.host.by_session.pop(self.session.id, None)

    def begin_again(self) -> None:
        """The machine knows nothing of what it held: it was forgotten, or read from the store."""
        self.take_unsent()
        self._numbers.clear()
        self.expected = 0

    def take_unsent(self) -> list[int]:
        deliveries = self.session.deliveries
        unsent = deliveries.forget(self) if deliveries is not None else []
        return [delivery.attempt for delivery in unsent]

    # Deliveries; their `attempt` is the number the machine gave them

    def holds(self, msg_id: int) -> bool:
        return self._held(msg_id) is not None

    def _held(self, msg_id: int) -> Message | None:
        consumer = self.host.machine.consumers.get(self.key)
        return consumer.held.get(msg_id) if consumer is not None else None

    def held_as(self, seq: int) -> int:
        """The number of the delivery by which it holds a message; -1: it does not."""
        msg_id = self._numbers.get(seq, -1)
        message = self._held(msg_id)
        return msg_id if message is not None and seq_of(message.index) == seq else -1

    def deliver(self, msg_id: int, record: Record) -> None:
        self._numbers[record.seq] = msg_id
        if record.message_id:
            self._note_id(record.message_id, record.seq)
        granted = self.subscription.qos
        qos = (record.qos if record.qos < granted else granted) or 1
        self.session.deliver(Delivery(self, record, PARTITION, msg_id, qos))

    def _note_id(self, message_id: bytes, seq: int) -> None:
        """One id may stand for several messages: producers do not know of each other."""
        known = self.host.delivered_ids
        sequences = known.get(message_id)
        if sequences is None:
            known[message_id] = [seq]
            if len(known) > DELIVERED_IDS_MAX:
                self.host.delivered_ids = dict(list(known.items())[DELIVERED_IDS_MAX // 2 :])
        elif seq not in sequences:
            gone = self.host.gone
            there = [one for one in sequences if one not in gone]
            known[message_id] = [*there[1 - SEQUENCES_PER_ID_MAX :], seq]

    def is_out(self, delivery: Delivery) -> bool:
        """Numbers begin again with `begin_again`, so a late answer may have one of a later life."""
        message = self._held(delivery.attempt)
        return message is not None and seq_of(message.index) == delivery.record.seq

    def frame(self, delivery: Delivery, packet_id: bytes, now_ms: int) -> bytes:
        record = delivery.record
        first = FIRST_BYTE | delivery.qos << 1
        topic, payload = self._topic_field, record.payload
        if self.session.version != V5:
            left = varint(len(topic) + 2 + len(payload))
            return b"".join([ONE_BYTE[first], left, topic, packet_id, payload])
        message = self._held(delivery.attempt)
        assert message is not None
        own = record.properties
        if own and own[0] == EXPIRY_ID:
            left_s = min(max(0, (record.expires_ms - now_ms + 999) // 1000), EXPIRY_S_MAX)
            own = EXPIRY + left_s.to_bytes(4, "big") + own[5:]
        told = self._prefix + write_user(self._pairs(record, message))
        size = varint(len(told) + len(own))
        length = len(topic) + 2 + len(size) + len(told) + len(own) + len(payload)
        return b"".join(
            [ONE_BYTE[first], varint(length), topic, packet_id, size, told, own, payload]
        )

    def _pairs(self, record: Record, message: Message) -> list[tuple[bytes, bytes]]:
        pairs = [
            (b"message-id", self.host.message_id(record)),
            (b"offset", b"%d" % record.seq),
            (b"delivery-count", b"%d" % message.acquired),
            (b"x-acquired-count", b"%d" % message.acquired),
        ]
        if message.failures:
            pairs.append((b"x-delivery-count", b"%d" % message.failures))
        if record.topic:
            pairs.append((b"x-source-topic", record.topic))
        return pairs

    # What the client answers

    def settle(self, command: Command, seq: int, now_ms: int) -> None:
        host = self.host
        msg_id = self._numbers.pop(seq, -1)
        if host.queues.tracer is not None:
            tracing.settling(host.queues.tracer, self, command, msg_id, seq, now_ms)
        if isinstance(command, c.Settle):
            host.counters.acked += 1
        else:
            host.counters.nacked += 1
        host.active_ms = now_ms
        host.apply(command, now_ms)

    def acknowledged(self, delivery: Delivery, reason: int) -> None:
        """A refusal is always meant; that it arrived settles a delivery where that is agreed."""
        host = self.host
        if host.is_deleted or not self.is_out(delivery):
            return
        ids = [delivery.attempt]
        if reason >= 0x80:
            returns = host.settings.on_reject == "return"
            command: Command = c.Return(self.key, ids) if returns else c.Discard(self.key, ids)
        elif self.settles_by_puback:
            command = c.Settle(self.key, ids)
        else:
            return
        self.settle(command, delivery.record.seq, host.queues.clock.now_ms())

    def undeliverable(self, delivery: Delivery, size: int) -> None:
        """It may come to the same client again, so not at once, and not for ever."""
        now_ms = self.host.queues.clock.now_ms()
        limit = self.session.packet_size_max
        notes = {
            "reason": f"its packet has {size} bytes, the client takes {limit}",
            c.DELIVERY_TIME: str(now_ms + TOO_LARGE_DELAY_MS),
        }
        command = c.Modify(self.key, [delivery.attempt], True, False, notes)
        self.settle(command, delivery.record.seq, now_ms)
