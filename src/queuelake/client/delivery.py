"""A message of a queue in the hands of one consumer, and how it is settled.

A settlement answers True when the broker has taken it. False means that the delivery was no longer
this consumer's: its connection was lost, or its delivery timeout passed. The message went back to
the queue and is delivered again, here or elsewhere; there is nothing to repair, so a consumer's
loop may ignore the answer when its work may be done twice.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from paho.mqtt.client import MQTTMessage

from queuelake.client.connection import Connection
from queuelake.client.errors import (
    FAILURE_MIN,
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED,
    publish_refusal,
)
from queuelake.client.message import QueueMessage, publish_properties, queue_message_fields
from queuelake.client.session import Session
from queuelake.errors import RefusedError
from queuelake.names import address

log = logging.getLogger("queuelake.client")


@dataclass(frozen=True, slots=True)
class Hold:
    """Which delivery of which connection a message came by."""

    session: Session
    connection: Connection
    received: MQTTMessage
    by_puback: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery(QueueMessage):
    """A message to be settled with `ack()`, `nack()` or `reject()`."""

    hold: Hold = field(repr=False, compare=False)

    async def ack(self) -> bool:
        """The work is done: the message is deleted for this group."""
        if not self.hold.by_puback:
            return await self._settle("$ack", {})
        self.hold.connection.acknowledge(self.hold.received)
        return not self.hold.connection.lost

    async def nack(self, delay: float = 0.0) -> bool:
        """The work failed for now: deliver again, after `delay` seconds at the earliest."""
        return await self._settle("$nack", {"delay-ms": str(milliseconds(delay))} if delay else {})

    async def reject(self, reason: str = "") -> bool:
        """The work can never succeed: move the message to the dead letters."""
        return await self._settle("$reject", {"reason": reason} if reason else {})

    async def _settle(self, operation: str, properties: dict[str, str]) -> bool:
        if self.hold.by_puback:
            raise RefusedError(
                f"{operation} of {self.id!r}: ack_mode 'puback' knows only ack();"
                " consume with ack_mode 'explicit'"
            )
        return await settle(self, operation, properties)


def read_delivery(
    session: Session, connection: Connection, received: MQTTMessage, *, by_puback: bool
) -> Delivery:
    hold = Hold(session, connection, received, by_puback)
    return Delivery(hold=hold, **queue_message_fields(received))


async def settle(delivery: Delivery, operation: str, properties: dict[str, str]) -> bool:
    """Publish a settlement; False when the delivery is not this client's any more."""
    hold = delivery.hold
    topic = f"{address(delivery.queue)}/{operation}"
    pairs = {"message-id": delivery.id, "group-id": delivery.group} | properties
    answer = await hold.session.settle(hold.connection, topic, publish_properties(pairs))
    if answer is None:
        log.info("%s of %s: its connection was lost", operation, delivery.id)
        return False
    if answer.code in (NO_MATCHING_SUBSCRIBERS, NOT_AUTHORIZED):
        log.warning("%s of %s: not held any more: %s", operation, delivery.id, answer.reason)
        return False
    if answer.code >= FAILURE_MIN:
        raise publish_refusal(topic, answer.code, answer.reason)
    return True


def milliseconds(seconds: float) -> int:
    if seconds < 0:
        raise ValueError(f"delay {seconds:g} s: may not be negative")
    return round(seconds * 1000)
