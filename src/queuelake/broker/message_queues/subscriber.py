"""A client's subscription to a message queue: one of its consumers, and the packets it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from queuelake.broker.deliveries import Delivery
from queuelake.broker.queues.incoming import EXPIRY
from queuelake.broker.queues.subscriber import EXPIRY_ID, EXPIRY_S_MAX, Subscriber
from queuelake.engine.commands import ACK, NACK, REJECT
from queuelake.engine.groups import GROUP
from queuelake.protocol.message import FIRST_BYTE
from queuelake.protocol.packets import V5
from queuelake.protocol.wire import ONE_BYTE, TWO_BYTES, varint

if TYPE_CHECKING:
    from queuelake.broker.message_queues.host import MessageQueueHost
    from queuelake.broker.session import Subscription
    from queuelake.storage.chunk import Record


@final
class MqSubscriber(Subscriber):
    """It settles by PUBACK; at QoS 0 by what it is sent."""

    __slots__ = ()

    def __init__(self, host: MessageQueueHost, subscription: Subscription, tag: int) -> None:
        super().__init__(host, subscription, GROUP, False, b"", tag)
        self.settles_by_puback = True
        # One client may reach a queue by two filters, and is two consumers then.
        self.consumer = f"{self.session.client_id}\0{subscription.topic_filter.decode()}"

    def is_out(self, delivery: Delivery) -> bool:
        """What left the queue while it waited for the client is not sent: its successor may have
        come to somebody already."""
        seq = delivery.record.seq
        lane = self.host.machine.groups[GROUP].lanes[0]
        held = lane.held.get(seq)
        if held is None or held.attempt != delivery.attempt or held.consumer.name != self.consumer:
            return False
        if seq not in lane.settled:
            return True
        self.settle(delivery, NACK)  # its place is free
        return False

    def take_over(self, former: Subscriber) -> None:
        """The client subscribed again: what it has in hand it keeps, what has not left leaves as it
        is granted now."""
        former.joined = False
        self.host.subscribers.pop(former.tag, None)
        deliveries = self.session.deliveries
        if deliveries is not None:
            for delivery in deliveries.forget(former):
                delivery.consumer = self
                delivery.qos = self.delivery_qos(delivery.record)
                deliveries.add(delivery)

    def delivery_qos(self, record: Record) -> int:
        return 1 if self.subscription.qos else 0

    def frame(self, delivery: Delivery, packet_id: bytes, now_ms: int) -> bytes:
        """The message as it was published."""
        record = delivery.record
        topic = record.topic
        payload = record.payload
        first = FIRST_BYTE | delivery.qos << 1
        if delivery.qos == 0:
            packet_id = b""
        if self.session.version != V5:
            left = varint(2 + len(topic) + len(packet_id) + len(payload))
            return b"".join(
                [ONE_BYTE[first], left, TWO_BYTES[len(topic)], topic, packet_id, payload]
            )
        own = record.properties
        if own and own[0] == EXPIRY_ID:
            left_s = min(max(0, (record.expires_ms - now_ms + 999) // 1000), EXPIRY_S_MAX)
            own = EXPIRY + left_s.to_bytes(4, "big") + own[5:]
        size = varint(len(self._ids) + len(own))
        length = 2 + len(topic) + len(packet_id) + len(size) + len(payload)
        length += len(self._ids) + len(own)
        return b"".join(
            [
                ONE_BYTE[first],
                varint(length),
                TWO_BYTES[len(topic)],
                topic,
                packet_id,
                size,
                self._ids,
                own,
                payload,
            ]
        )

    def acknowledged(self, delivery: Delivery, reason: int) -> None:
        if not self.host.is_deleted:
            self.settle(delivery, ACK if reason < 0x80 else REJECT)

    def undeliverable(self, delivery: Delivery, size: int) -> None:
        # Another one may take it; to this one it may come again, so not at once.
        self.settle(delivery, REJECT)
