"""MQTT 5 properties: one table says what each of them is and where it may stand.

Only PUBLISH is decoded without this module's dict (see `publish.py`): its properties travel on as
bytes. All other packets with properties are rare.
"""

from __future__ import annotations

from typing import Final

from queuelake.errors import MalformedPacketError, ProtocolViolationError
from queuelake.protocol.wire import Reader, binary, varint

PAYLOAD_FORMAT: Final = 0x01
MESSAGE_EXPIRY: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
SUBSCRIPTION_ID: Final = 0x0B
SESSION_EXPIRY: Final = 0x11
ASSIGNED_CLIENT_ID: Final = 0x12
SERVER_KEEP_ALIVE: Final = 0x13
AUTH_METHOD: Final = 0x15
AUTH_DATA: Final = 0x16
REQUEST_PROBLEM: Final = 0x17
WILL_DELAY: Final = 0x18
REQUEST_RESPONSE: Final = 0x19
RESPONSE_INFORMATION: Final = 0x1A
SERVER_REFERENCE: Final = 0x1C
REASON_STRING: Final = 0x1F
RECEIVE_MAXIMUM: Final = 0x21
TOPIC_ALIAS_MAXIMUM: Final = 0x22
TOPIC_ALIAS: Final = 0x23
MAXIMUM_QOS: Final = 0x24
RETAIN_AVAILABLE: Final = 0x25
USER_PROPERTY: Final = 0x26
MAXIMUM_PACKET_SIZE: Final = 0x27
WILDCARD_AVAILABLE: Final = 0x28
SUBSCRIPTION_ID_AVAILABLE: Final = 0x29
SHARED_AVAILABLE: Final = 0x2A

# Types of values. A flag is a byte which may only be 0 or 1.
FLAG: Final = 0
U16: Final = 2
U32: Final = 3
VARINT: Final = 4
STRING: Final = 5
BINARY: Final = 6
PAIR: Final = 7

TYPES: Final[dict[int, int]] = {
    PAYLOAD_FORMAT: FLAG,
    MESSAGE_EXPIRY: U32,
    CONTENT_TYPE: STRING,
    RESPONSE_TOPIC: STRING,
    CORRELATION_DATA: BINARY,
    SUBSCRIPTION_ID: VARINT,
    SESSION_EXPIRY: U32,
    ASSIGNED_CLIENT_ID: STRING,
    SERVER_KEEP_ALIVE: U16,
    AUTH_METHOD: STRING,
    AUTH_DATA: BINARY,
    REQUEST_PROBLEM: FLAG,
    WILL_DELAY: U32,
    REQUEST_RESPONSE: FLAG,
    RESPONSE_INFORMATION: STRING,
    SERVER_REFERENCE: STRING,
    REASON_STRING: STRING,
    RECEIVE_MAXIMUM: U16,
    TOPIC_ALIAS_MAXIMUM: U16,
    TOPIC_ALIAS: U16,
    MAXIMUM_QOS: FLAG,
    RETAIN_AVAILABLE: FLAG,
    USER_PROPERTY: PAIR,
    MAXIMUM_PACKET_SIZE: U32,
    WILDCARD_AVAILABLE: FLAG,
    SUBSCRIPTION_ID_AVAILABLE: FLAG,
    SHARED_AVAILABLE: FLAG,
}

IN_CONNECT: Final = frozenset(
    {
        SESSION_EXPIRY,
        RECEIVE_MAXIMUM,
        MAXIMUM_PACKET_SIZE,
        TOPIC_ALIAS_MAXIMUM,
        REQUEST_RESPONSE,
        REQUEST_PROBLEM,
        USER_PROPERTY,
        AUTH_METHOD,
        AUTH_DATA,
    }
)
IN_WILL: Final = frozenset(
    {
        WILL_DELAY,
        PAYLOAD_FORMAT,
        MESSAGE_EXPIRY,
        CONTENT_TYPE,
        RESPONSE_TOPIC,
        CORRELATION_DATA,
        USER_PROPERTY,
    }
)
IN_SUBSCRIBE: Final = frozenset({SUBSCRIPTION_ID, USER_PROPERTY})
IN_UNSUBSCRIBE: Final = frozenset({USER_PROPERTY})
IN_ACK: Final = frozenset({REASON_STRING, USER_PROPERTY})
IN_DISCONNECT: Final = frozenset({SESSION_EXPIRY, REASON_STRING, USER_PROPERTY})
IN_AUTH: Final = frozenset({AUTH_METHOD, AUTH_DATA, REASON_STRING, USER_PROPERTY})

# A value of 0 means nothing for these, so the standard forbids it.
_NOT_ZERO: Final = frozenset({RECEIVE_MAXIMUM, MAXIMUM_PACKET_SIZE, SUBSCRIPTION_ID})


class Properties:
    """The properties of one packet: numbers, byte values, and the user properties in order."""

    __slots__ = ("numbers", "user", "values")

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.values: dict[int, bytes] = {}
        self.user: list[tuple[bytes, bytes]] = []


def read_properties(reader: Reader, allowed: frozenset[int]) -> Properties:
    """Read the length, then every property; refuse those which may not stand in this packet."""
    found = Properties()
    length = reader.varint()
    end = reader.at + length
    if end > reader.end:
        raise MalformedPacketError("properties reach behind the end of the packet")
    inner = Reader(reader.data, reader.at, end)
    while inner.at < end:
        number = inner.varint()
        if number not in allowed:
            raise MalformedPacketError(f"property 0x{number:02X} may not stand in this packet")
        kind = TYPES[number]
        if kind == PAIR:
            found.user.append((inner.string(), inner.string()))
            continue
        if number in found.numbers or number in found.values:
            raise ProtocolViolationError(f"property 0x{number:02X} occurs twice")
        if kind == STRING:
            found.values[number] = inner.string()
        elif kind == BINARY:
            found.values[number] = inner.binary()
        else:
            found.numbers[number] = _number(inner, number, kind)
    reader.at = end
    return found


def _number(reader: Reader, number: int, kind: int) -> int:
    if kind == VARINT:
        value = reader.varint()
    elif kind == U32:
        value = reader.u32()
    elif kind == U16:
        value = reader.u16()
    else:
        value = reader.u8()
        if value > 1:
            raise ProtocolViolationError(f"property 0x{number:02X} is {value}, may be 0 or 1")
    if value == 0 and number in _NOT_ZERO:
        raise ProtocolViolationError(f"property 0x{number:02X} is 0, which is not allowed")
    return value


def write_number(number: int, value: int) -> bytes:
    """Encode one numeric property."""
    kind = TYPES[number]
    if kind == VARINT:
        return bytes((number,)) + varint(value)
    size = 4 if kind == U32 else 2 if kind == U16 else 1
    return bytes((number,)) + value.to_bytes(size, "big")


def write_value(number: int, value: bytes) -> bytes:
    """Encode one string or binary property."""
    return bytes((number,)) + binary(value)


def write_user(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Encode user properties, in their order."""
    return b"".join([b"\x26" + binary(key) + binary(value) for key, value in pairs])
