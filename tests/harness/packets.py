"""The writing half of a second MQTT codec, for tests only: right and deliberately wrong bytes.

Builders return whole packets as bytes and check nothing, so that a test can send what no client
may send. `Properties` is a dict from property name to value; a list of (name, value) pairs keeps
an order or repeats a property; raw bytes go out as they are, behind a length that fits them.
`reading.py` is the other half.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = range(1, 8)
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(8, 16)
NAMES = ["RESERVED", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP"]
NAMES += ["SUBSCRIBE", "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP"]
NAMES += ["DISCONNECT", "AUTH"]

Properties = dict[str, Any] | list[tuple[str, Any]] | bytes | None
Subscription = tuple[str | bytes, int]

PROPERTY_TABLE: dict[int, tuple[str, str]] = {
    0x01: ("payload_format_indicator", "byte"),
    0x02: ("message_expiry_interval", "u32"),
    0x03: ("content_type", "text"),
    0x08: ("response_topic", "text"),
    0x09: ("correlation_data", "binary"),
    0x0B: ("subscription_identifier", "varint"),
    0x11: ("session_expiry_interval", "u32"),
    0x12: ("assigned_client_identifier", "text"),
    0x13: ("server_keep_alive", "u16"),
    0x15: ("authentication_method", "text"),
    0x16: ("authentication_data", "binary"),
    0x17: ("request_problem_information", "byte"),
    0x18: ("will_delay_interval", "u32"),
    0x19: ("request_response_information", "byte"),
    0x1A: ("response_information", "text"),
    0x1C: ("server_reference", "text"),
    0x1F: ("reason_string", "text"),
    0x21: ("receive_maximum", "u16"),
    0x22: ("topic_alias_maximum", "u16"),
    0x23: ("topic_alias", "u16"),
    0x24: ("maximum_qos", "byte"),
    0x25: ("retain_available", "byte"),
    0x26: ("user_property", "pair"),
    0x27: ("maximum_packet_size", "u32"),
    0x28: ("wildcard_subscription_available", "byte"),
    0x29: ("subscription_identifier_available", "byte"),
    0x2A: ("shared_subscription_available", "byte"),
}
PROPERTY_IDS = {name: (ident, kind) for ident, (name, kind) in PROPERTY_TABLE.items()}
LISTED = ("user_property", "subscription_identifier")


class WireError(AssertionError):
    """The server sent bytes which are no valid packet, closed too early, or was too late."""


@dataclass
class Packet:
    """Any packet of a server; fields which its type does not have keep their defaults."""

    type: int
    flags: int
    raw: bytes
    packet_id: int = 0
    reason_code: int = 0
    reason_codes: list[int] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)
    session_present: bool = False
    topic: str = ""
    payload: bytes = b""

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def retain(self) -> bool:
        return bool(self.flags & 1)

    @property
    def dup(self) -> bool:
        return bool(self.flags & 8)

    @property
    def user_properties(self) -> list[tuple[str, str]]:
        return list(self.properties.get("user_property", []))

    @property
    def subscription_identifiers(self) -> list[int]:
        return list(self.properties.get("subscription_identifier", []))

    def __str__(self) -> str:
        return f"{NAMES[self.type]} {self.raw[:80].hex(' ')}"


@dataclass
class Will:
    """The will part of a CONNECT."""

    topic: str | bytes
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = None


def varint(value: int) -> bytes:
    out = bytearray()
    while True:
        value, digit = value >> 7, value & 0x7F
        out.append(digit | 0x80 if value else digit)
        if not value:
            return bytes(out)


def u16(value: int) -> bytes:
    return struct.pack(">H", value)


def binary(value: str | bytes) -> bytes:
    """A string or binary field with its length; bytes may hold what is no UTF-8."""
    data = value.encode() if isinstance(value, str) else value
    return u16(len(data)) + data


def frame(first_byte: int, body: bytes = b"") -> bytes:
    """A whole packet: first byte, remaining length, body."""
    return bytes([first_byte]) + varint(len(body)) + body


def property_bytes(name: str, value: Any) -> bytes:
    """One property, identifier and value."""
    ident, kind = PROPERTY_IDS[name]
    match kind:
        case "byte":
            data = bytes([value])
        case "u16":
            data = u16(value)
        case "u32":
            data = struct.pack(">I", value)
        case "varint":
            data = varint(value)
        case "pair":
            data = binary(value[0]) + binary(value[1])
        case _:
            data = binary(value)
    return bytes([ident]) + data


def encode_properties(properties: Properties) -> bytes:
    """Property length and properties."""
    if isinstance(properties, bytes):
        return varint(len(properties)) + properties
    pairs = list(properties.items()) if isinstance(properties, dict) else properties or []
    body = b""
    for name, value in pairs:
        values = value if name in LISTED and isinstance(value, list) else [value]
        body += b"".join(property_bytes(name, one) for one in values)
    return varint(len(body)) + body


def connect(
    client_id: str | bytes = "",
    *,
    version: int = 5,
    clean: bool = True,
    keepalive: int = 0,
    properties: Properties = None,
    will: Will | None = None,
    username: str | bytes | None = None,
    password: str | bytes | None = None,
    protocol_name: str | bytes | None = None,
    flags: int | None = None,
) -> bytes:
    """CONNECT; `flags` overrides the connect flags and nothing else."""
    computed = 2 if clean else 0
    payload = binary(client_id)
    if will is not None:
        computed |= 4 | will.qos << 3 | (32 if will.retain else 0)
        payload += encode_properties(will.properties) if version == 5 else b""
        payload += binary(will.topic) + binary(will.payload)
    if username is not None:
        computed |= 128
        payload += binary(username)
    if password is not None:
        computed |= 64
        payload += binary(password)
    name = protocol_name if protocol_name is not None else ("MQIsdp" if version == 3 else "MQTT")
    body = binary(name) + bytes([version, computed if flags is None else flags]) + u16(keepalive)
    body += encode_properties(properties) if version == 5 else b""
    return frame(CONNECT << 4, body + payload)


def publish(
    topic: str | bytes,
    payload: str | bytes = b"",
    *,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
    properties: Properties = None,
    version: int = 5,
) -> bytes:
    """PUBLISH; the packet identifier is written when QoS is not 0."""
    body = binary(topic) + (u16(packet_id) if qos else b"")
    body += encode_properties(properties) if version == 5 else b""
    body += payload.encode() if isinstance(payload, str) else payload
    return frame(PUBLISH << 4 | (8 if dup else 0) | qos << 1 | (1 if retain else 0), body)


def acknowledge(
    packet_type: int,
    packet_id: int,
    reason_code: int | None = None,
    properties: Properties = None,
) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP; the short form when no reason code is given."""
    body = u16(packet_id)
    if reason_code is not None:
        body += bytes([reason_code])
    if properties is not None:
        body += encode_properties(properties)
    return frame(packet_type << 4 | (2 if packet_type == PUBREL else 0), body)


def subscribe(
    packet_id: int,
    subscriptions: list[Subscription],
    *,
    properties: Properties = None,
    version: int = 5,
) -> bytes:
    """SUBSCRIBE; each subscription is a filter and its options byte (see `options`)."""
    body = u16(packet_id) + (encode_properties(properties) if version == 5 else b"")
    body += b"".join(binary(filter_) + bytes([bits]) for filter_, bits in subscriptions)
    return frame(SUBSCRIBE << 4 | 2, body)


def options(
    qos: int = 0,
    *,
    no_local: bool = False,
    retain_as_published: bool = False,
    retain_handling: int = 0,
) -> int:
    """The subscription options byte."""
    return qos | no_local << 2 | retain_as_published << 3 | retain_handling << 4


def unsubscribe(
    packet_id: int,
    filters: list[str] | list[bytes],
    *,
    properties: Properties = None,
    version: int = 5,
) -> bytes:
    body = u16(packet_id) + (encode_properties(properties) if version == 5 else b"")
    return frame(UNSUBSCRIBE << 4 | 2, body + b"".join(binary(one) for one in filters))


def disconnect(reason_code: int | None = None, properties: Properties = None) -> bytes:
    """DISCONNECT; empty when no reason code is given, as 3.1.1 always has it."""
    body = b"" if reason_code is None else bytes([reason_code])
    if properties is not None:
        body += encode_properties(properties)
    return frame(DISCONNECT << 4, body)


def auth(reason_code: int, properties: Properties = None) -> bytes:
    return frame(AUTH << 4, bytes([reason_code]) + encode_properties(properties))


PINGREQ_BYTES = frame(PINGREQ << 4)
