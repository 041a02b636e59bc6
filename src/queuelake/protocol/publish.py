"""Decoding PUBLISH: the hot half of the decoder.

The properties are checked but not taken apart: they travel on as bytes. Only three of them concern
the server: the topic alias (cut out, it belongs to one connection), the expiry interval (its place
is remembered, it is counted down) and the subscription identifier (no client may send it).

Places are `i64`: compiled, they are machine numbers, and reading a byte is one instruction.
"""

from __future__ import annotations

from mypy_extensions import i64

from queuelake.errors import MalformedPacketError, ProtocolViolationError
from queuelake.protocol import properties as p
from queuelake.protocol.packets import V5, Publish
from queuelake.protocol.wire import Reader, check_text, varint


def decode_publish(
    data: bytes, head: i64, at: i64, end: i64, version: i64, last_topic: bytes
) -> Publish:
    """Decode one PUBLISH whose first byte was `head` and whose rest is `data[at:end]`.

    Most clients publish to one topic: `last_topic` was checked, and its hash is known already.
    """
    qos = head >> 1 & 3
    if qos == 3:
        raise MalformedPacketError("QoS 3 in PUBLISH")
    dup = head & 8 != 0
    if dup and qos == 0:
        raise MalformedPacketError("DUP in a PUBLISH of QoS 0")
    if at + 2 > end:
        raise MalformedPacketError("PUBLISH ends before its topic")
    start = at + 2
    high: i64 = data[at]
    low: i64 = data[at + 1]
    at = start + (high << 8 | low)
    if at > end or (qos and at + 2 > end):
        raise MalformedPacketError("topic reaches behind the end of its PUBLISH")
    topic = data[start:at]
    if topic == last_topic:
        topic = last_topic
    else:
        check_text(data, start, at)
    packet_id: i64 = 0
    if qos:
        high = data[at]
        low = data[at + 1]
        packet_id = high << 8 | low
        at += 2
        if packet_id == 0:
            raise ProtocolViolationError("packet identifier 0 in PUBLISH")
    retain = head & 1 != 0
    if version != V5:
        return Publish(topic, qos, retain, dup, packet_id, data[at:end], 0, 0, 0)
    if at < end and data[at] == 0:  # no properties: the common case
        return Publish(topic, qos, retain, dup, packet_id, data[at:end], 1, 0, 0)
    properties_at, payload, expiry, alias, alias_at = _scan(data, at, end)
    if alias_at:
        body = _without_alias(data, end, properties_at, payload, alias_at)
        length = len(body) - (end - payload)
        if expiry:
            expiry += length - payload + (3 if expiry < alias_at else 0)
        return Publish(topic, qos, retain, dup, packet_id, body, length, expiry, alias)
    if expiry:
        expiry -= at
    return Publish(topic, qos, retain, dup, packet_id, data[at:end], payload - at, expiry, alias)


def _scan(data: bytes, at: i64, end: i64) -> tuple[i64, i64, i64, i64, i64]:
    """Check the properties. Where they begin and the payload begins, where the expiry interval
    stands, the topic alias and where it stands; 0: there is none."""
    length: i64 = data[at] if at < end else 0x80
    if length < 0x80:
        at += 1
    else:
        reader = Reader(data, at, end)
        length = reader.varint()
        at = reader.at
    properties_at = at
    payload_at = at + length
    if payload_at > end:
        raise MalformedPacketError("properties reach behind the end of their PUBLISH")
    seen: i64 = 0
    expiry_at: i64 = 0
    alias: i64 = 0
    alias_at: i64 = 0
    while at < payload_at:
        number: i64 = data[at]
        if number == p.USER_PROPERTY:  # the only one which is common: no reader for it
            at = _check_string(data, _check_string(data, at + 1, payload_at), payload_at)
            continue
        if number > p.TOPIC_ALIAS:
            raise MalformedPacketError(f"property 0x{number:02X} may not stand in PUBLISH")
        bit: i64 = 1
        bit <<= number  # compiled, `1 << number` would be of 32 bits
        if seen & bit:
            raise ProtocolViolationError(f"property 0x{number:02X} occurs twice")
        seen |= bit
        inner = Reader(data, at + 1, payload_at)
        if number == p.MESSAGE_EXPIRY:
            expiry_at = inner.at
            inner.u32()
        elif number == p.TOPIC_ALIAS:
            alias_at = at
            alias = inner.u16() or -1  # 0 is not allowed; the session knows the maximum
        else:
            _check(inner, number)
        at = inner.at
    return properties_at, payload_at, expiry_at, alias, alias_at


def _check_string(data: bytes, at: i64, end: i64) -> i64:
    """Check one UTF-8 string; returns where it ends."""
    start = at + 2
    if start > end:
        raise MalformedPacketError("packet ends inside a two-byte integer")
    high: i64 = data[at]
    low: i64 = data[at + 1]
    stop = start + (high << 8 | low)
    if stop > end:
        raise MalformedPacketError(
            f"field of {stop - start} bytes reaches behind the end of the packet"
        )
    check_text(data, start, stop)
    return stop


def _check(reader: Reader, number: int) -> None:
    if number == p.CONTENT_TYPE:
        reader.string()
    elif number == p.RESPONSE_TOPIC:
        topic = reader.string()
        if not topic or b"+" in topic or b"#" in topic:
            raise ProtocolViolationError("response topic is empty or holds a wildcard")
    elif number == p.CORRELATION_DATA:
        reader.binary()
    elif number == p.PAYLOAD_FORMAT:
        value = reader.u8()
        if value > 1:
            raise ProtocolViolationError(f"payload format indicator is {value}, may be 0 or 1")
    elif number == p.SUBSCRIPTION_ID:
        raise ProtocolViolationError("subscription identifier in a PUBLISH of a client")
    else:
        raise MalformedPacketError(f"property 0x{number:02X} may not stand in PUBLISH")


def _without_alias(
    data: bytes, end: int, properties_at: int, payload_at: int, alias_at: int
) -> bytes:
    """The body of a PUBLISH as if its publisher had written the topic."""
    return b"".join(
        (
            varint(payload_at - properties_at - 3),
            data[properties_at:alias_at],
            data[alias_at + 3 : end],
        )
    )
