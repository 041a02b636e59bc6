"""What a client receives, as plain values; how it is settled is in `delivery`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

STRING_BYTES_MAX = 65535

# Set by the broker on every delivery, or read by it on a publish: never the application's own.
BROKER_PROPERTIES = frozenset(
    {"message-id", "group-id", "queue", "partition", "offset", "delivery-count", "x-source-topic"}
)
PUBLISH_PROPERTIES = frozenset({"partition-key", "delay-ms", "deliver-at", "priority"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of an ordinary topic. `properties` are the user properties, the first of a name."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: dict[str, str]
    content_type: str | None
    response_topic: str | None
    correlation_data: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMessage(Message):
    """A message of a queue, as one consumer holds it; `delivery_count` is 1 at first."""

    id: str
    key: str | None
    queue: str
    partition: int
    offset: int
    delivery_count: int
    group: str
    source_topic: str | None


def message_fields(received: MQTTMessage) -> dict[str, Any]:
    """The fields of a `Message`."""
    properties: Any = received.properties
    pairs: dict[str, str] = {}
    for name, value in getattr(properties, "UserProperty", ()):
        pairs.setdefault(name, value)
    return {
        "topic": received.topic,
        "payload": received.payload,
        "qos": received.qos,
        "retain": bool(received.retain),
        "properties": pairs,
        "content_type": getattr(properties, "ContentType", None),
        "response_topic": getattr(properties, "ResponseTopic", None),
        "correlation_data": getattr(properties, "CorrelationData", None),
    }


def queue_message_fields(received: MQTTMessage) -> dict[str, Any]:
    """The fields of a `QueueMessage`: what the broker says is taken out of the properties."""
    fields = message_fields(received)
    pairs: dict[str, str] = fields["properties"]
    said = {name: pairs.pop(name) for name in BROKER_PROPERTIES if name in pairs}
    fields["id"] = said.get("message-id", "")
    fields["key"] = pairs.pop("partition-key", None)
    fields["queue"] = said.get("queue", "").removeprefix("$queue/")
    fields["partition"] = int(said.get("partition", "0"))
    fields["offset"] = int(said.get("offset", "0"))
    fields["delivery_count"] = int(said.get("delivery-count", "1"))
    fields["group"] = said.get("group-id", "")
    fields["source_topic"] = said.get("x-source-topic")
    return fields


def check_own_properties(properties: Mapping[str, str]) -> None:
    """Refuse user properties which mean something to the broker."""
    for name in properties:
        if name in BROKER_PROPERTIES or name in PUBLISH_PROPERTIES:
            raise ValueError(f"property {name!r} belongs to the broker; publish() has an argument")


def publish_properties(
    pairs: Mapping[str, str],
    *,
    expiry: int | None = None,
    content_type: str | None = None,
    response_topic: str | None = None,
    correlation_data: bytes | None = None,
) -> Properties:
    """The MQTT 5 properties of a PUBLISH."""
    values = {
        "MessageExpiryInterval": expiry,
        "ContentType": content_type,
        "ResponseTopic": response_topic,
        "CorrelationData": correlation_data,
    }
    return mqtt_properties(PacketTypes.PUBLISH, pairs, values)


def mqtt_properties(
    packet_type: int, pairs: Mapping[str, str], values: Mapping[str, Any] | None = None
) -> Properties:
    """User properties and others by paho's names; those that are None are left out."""
    properties = Properties(packet_type)  # type: ignore[no-untyped-call]
    for name, value in (values or {}).items():
        if value is not None:
            setattr(properties, name, value)
    for name, text in pairs.items():
        for part in (name, text):
            size = len(part.encode())
            if size > STRING_BYTES_MAX:
                raise ValueError(
                    f"user property {name[:40]!r}: {size} bytes, the limit is {STRING_BYTES_MAX}"
                )
        properties.UserProperty = (name, text)
    return properties
