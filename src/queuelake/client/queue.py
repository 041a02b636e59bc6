"""A handle on one durable queue: publish, consume, configure. It holds nothing of its own."""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from paho.mqtt.client import MQTTMessage

from queuelake.client.connection import Connection
from queuelake.client.delivery import Delivery, milliseconds, read_delivery, settle
from queuelake.client.message import check_own_properties, publish_properties
from queuelake.client.session import Session
from queuelake.client.subscription import Acknowledge, Subscription
from queuelake.names import address, bare_name

AckMode = Literal["explicit", "puback"]
Start = Literal["earliest", "latest"]

PRIORITY_MAX = 31


class PublishOptions(TypedDict, total=False):
    """The keyword arguments of `Queue.publish`."""

    key: str | None
    message_id: str | None
    delay: float | None
    deliver_at: datetime.datetime | None
    priority: int | None
    expiry: int | None
    properties: Mapping[str, str] | None
    content_type: str | None
    response_topic: str | None
    correlation_data: bytes | None


class ConsumeOptions(TypedDict, total=False):
    """The keyword arguments of `Queue.consume`."""

    group: str | None
    prefetch: int | None
    ack_mode: AckMode
    start: Start
    stream_offset: str | int | datetime.datetime | None
    pattern: str | None


class Queue:
    """One queue, by its name with or without `$queue/` in front."""

    def __init__(self, session: Session, name: str, *, needs_group: bool) -> None:
        self.name = bare_name(name)
        self._session = session
        self._needs_group = needs_group

    @property
    def address(self) -> str:
        """The topic of the queue."""
        return address(self.name)

    async def publish(
        self,
        payload: bytes | str,
        *,
        key: str | None = None,
        message_id: str | None = None,
        delay: float | None = None,
        deliver_at: datetime.datetime | None = None,
        priority: int | None = None,
        expiry: int | None = None,
        properties: Mapping[str, str] | None = None,
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
    ) -> str:
        """Put a message into the queue; returns its id when the broker has stored it.

        It is sent again after a lost connection until the broker answers. The message id (a new
        UUID unless given) lets the broker drop what it already has, so it is stored once.

        Args:
            key: messages of one key keep their order.
            delay: seconds before which it is not delivered.
            deliver_at: the same as a time, with its zone.
            priority: 0 to 31, for queues without order.
            expiry: seconds after which nobody wants it any more.
            properties: the application's own, delivered with the message.

        Raises:
            QueueFullError: the queue is at its limit.
            MessageTooLargeError: the message is over the limit.
            NotAuthorizedError: this client may not, or there is no such queue and none is made.
            ConfirmTimeoutError: no answer in time, connected or not.
        """
        identity = message_id or str(uuid.uuid4())
        pairs = dict(properties or {})
        check_own_properties(pairs)
        pairs |= _enqueue_properties(identity, key, delay, deliver_at, priority)
        await self._session.publish(
            self.address,
            payload.encode() if isinstance(payload, str) else payload,
            publish_properties(
                pairs,
                expiry=expiry,
                content_type=content_type,
                response_topic=response_topic,
                correlation_data=correlation_data,
            ),
            qos=1,
            retain=False,
        )
        return identity

    def consume(
        self,
        *,
        group: str | None = None,
        prefetch: int | None = None,
        ack_mode: AckMode = "explicit",
        start: Start = "earliest",
        stream_offset: str | int | datetime.datetime | None = None,
        pattern: str | None = None,
    ) -> Subscription[Delivery]:
        """Take part in a consumer group: iterate over the result, and settle every message.

        The subscription is made again after a lost connection. Deliveries which were not settled
        then went back to the queue; those the application has not seen yet are not shown to it.

        Args:
            group: the members share the messages; every group gets all of them. Without it the
                broker takes the part of the client id before the first `-`.
            prefetch: how many deliveries may be unsettled here; the queue's own value otherwise.
            ack_mode: with "puback" an ack costs no round trip and is not confirmed; there is no
                nack and no reject.
            start: where a new group begins, "latest" leaves out what is stored already.
            stream_offset: for queues of type stream: "first", "last", "next", an offset, or a
                time with its zone. Said once, so a subscription made again goes on where it was.
            pattern: for queues with sublevels: only messages whose further levels match it.
        """
        if group is None and self._needs_group:
            raise ValueError(
                f"consume {self.name!r}: name a group, or give the client an id of its own"
            )
        if prefetch is not None and prefetch < 1:
            raise ValueError(f"prefetch {prefetch}: must be at least 1")
        if ack_mode not in ("explicit", "puback"):
            raise ValueError(f"ack_mode {ack_mode!r}: must be 'explicit' or 'puback'")
        by_puback = ack_mode == "puback"
        asked = {
            "consumer-group": group,
            "prefetch": prefetch,
            "ack-mode": "puback" if by_puback else None,
        }

        def read(connection: Connection, received: MQTTMessage) -> Delivery:
            return read_delivery(self._session, connection, received, by_puback=by_puback)

        return Subscription(
            self._session,
            f"{self.address}/{pattern}" if pattern else self.address,
            qos=1,
            user_properties={k: str(value) for k, value in asked.items() if value is not None},
            once_properties=_start_properties(start, stream_offset),
            acknowledge=Acknowledge.BY_APPLICATION if by_puback else Acknowledge.AT_ONCE,
            read=read,
            give_back=lambda delivery: settle(delivery, "$nack", {}),
        )

    async def configure(self, settings: Mapping[str, Any]) -> None:
        """Change settings of the queue, e.g. `{"limits": {"max_queue_depth": 1000}}`.

        The queue is made when there is none. The client must be allowed to publish to the queue's
        `$config` topic.

        Raises:
            NotAuthorizedError: it is not.
            RefusedError: a setting is unknown or out of its bounds; the message names it.
        """
        await self._session.publish(
            f"{self.address}/$config",
            json.dumps(settings).encode(),
            publish_properties({}, content_type="application/json"),
            qos=1,
            retain=False,
        )


def _enqueue_properties(
    message_id: str,
    key: str | None,
    delay: float | None,
    deliver_at: datetime.datetime | None,
    priority: int | None,
) -> dict[str, str]:
    """What the broker reads from a publish to a queue."""
    pairs = {"message-id": message_id}
    if key:
        pairs["partition-key"] = key
    if delay is not None and deliver_at is not None:
        raise ValueError("give delay or deliver_at, not both")
    if delay is not None:
        pairs["delay-ms"] = str(milliseconds(delay))
    if deliver_at is not None:
        pairs["deliver-at"] = str(_epoch_ms("deliver_at", deliver_at))
    if priority is not None:
        if not 0 <= priority <= PRIORITY_MAX:
            raise ValueError(f"priority {priority}: must be 0 to {PRIORITY_MAX}")
        pairs["priority"] = str(priority)
    return pairs


def _start_properties(
    start: Start, stream_offset: str | int | datetime.datetime | None
) -> dict[str, str]:
    """Where a consumer begins."""
    if start not in ("earliest", "latest"):
        raise ValueError(f"start {start!r}: must be 'earliest' or 'latest'")
    pairs: dict[str, str] = {} if start == "earliest" else {"group-start": start}
    if isinstance(stream_offset, datetime.datetime):
        pairs["x-stream-offset"] = f"timestamp={_epoch_ms('stream_offset', stream_offset)}"
    elif stream_offset is not None:
        pairs["x-stream-offset"] = str(stream_offset)
    return pairs


def _epoch_ms(argument: str, moment: datetime.datetime) -> int:
    if moment.tzinfo is None:
        raise ValueError(f"{argument} {moment}: needs a time zone")
    return round(moment.timestamp() * 1000)
