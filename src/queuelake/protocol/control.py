"""Decoding the small packets: acknowledgements, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH."""

from __future__ import annotations

from mypy_extensions import i64

from queuelake.errors import MalformedPacketError, ProtocolViolationError
from queuelake.protocol import properties as p
from queuelake.protocol import reasons
from queuelake.protocol.packets import (
    PUBCOMP,
    PUBREL,
    V5,
    Ack,
    Auth,
    Disconnect,
    Subscribe,
    SubscribeItem,
    Unsubscribe,
)
from queuelake.protocol.properties import read_properties
from queuelake.protocol.wire import Reader


def decode_ack(data: bytes, kind: i64, at: i64, end: i64, version: i64) -> Ack:
    """PUBACK, PUBREC, PUBREL, PUBCOMP: two bytes of packet id, in MQTT 5 perhaps a reason."""
    size = end - at
    if size < 2:
        raise MalformedPacketError("acknowledgement ends before its packet identifier")
    high: i64 = data[at]
    low: i64 = data[at + 1]
    packet_id = high << 8 | low
    if packet_id == 0:
        raise ProtocolViolationError("packet identifier 0 in an acknowledgement")
    if size == 2:
        return Ack(kind, packet_id, reasons.SUCCESS)
    if version != V5:
        raise MalformedPacketError(f"{size - 2} bytes behind a 3.1.1 acknowledgement")
    reason = data[at + 2]
    allowed = reasons.RELEASE_REASONS if kind in (PUBREL, PUBCOMP) else reasons.ACK_REASONS
    if reason not in allowed:
        raise ProtocolViolationError(f"reason 0x{reason:02X} in a packet of type {kind}")
    if size > 3:
        reader = Reader(data, at + 3, end)
        read_properties(reader, p.IN_ACK)
        reader.expect_end()
    return Ack(kind, packet_id, reason)


def decode_subscribe(reader: Reader, version: int) -> Subscribe:
    packet = Subscribe(_packet_id(reader, "SUBSCRIBE"), [])
    if version == V5:
        found = read_properties(reader, p.IN_SUBSCRIBE)
        packet.subscription_id = found.numbers.get(p.SUBSCRIPTION_ID, 0)
        packet.user = found.user
    while reader.at < reader.end:
        topic_filter = reader.string()
        options = reader.u8()
        qos = options & 3
        if qos == 3 or options & (0xC0 if version == V5 else 0xFC):
            raise MalformedPacketError(f"subscription options 0x{options:02X} in SUBSCRIBE")
        handling = options >> 4 & 3
        if handling == 3:
            raise ProtocolViolationError("retain handling 3 in SUBSCRIBE")
        packet.items.append(
            SubscribeItem(topic_filter, qos, options & 4 != 0, options & 8 != 0, handling)
        )
    if not packet.items:
        raise ProtocolViolationError("SUBSCRIBE without a topic filter")
    return packet


def decode_unsubscribe(reader: Reader, version: int) -> Unsubscribe:
    packet = Unsubscribe(_packet_id(reader, "UNSUBSCRIBE"), [])
    if version == V5:
        read_properties(reader, p.IN_UNSUBSCRIBE)
    while reader.at < reader.end:
        packet.filters.append(reader.string())
    if not packet.filters:
        raise ProtocolViolationError("UNSUBSCRIBE without a topic filter")
    return packet


def decode_disconnect(reader: Reader, version: int) -> Disconnect:
    if reader.at == reader.end:
        return Disconnect()
    if version != V5:
        raise MalformedPacketError("DISCONNECT of 3.1.1 with a body")
    reason = reader.u8()
    if reason not in reasons.DISCONNECT_REASONS:
        raise ProtocolViolationError(f"reason 0x{reason:02X} in DISCONNECT")
    expiry = -1
    if reader.at < reader.end:
        found = read_properties(reader, p.IN_DISCONNECT)
        expiry = found.numbers.get(p.SESSION_EXPIRY, -1)
        reader.expect_end()
    return Disconnect(reason, expiry)


def decode_auth(reader: Reader) -> Auth:
    if reader.at == reader.end:
        return Auth(reasons.SUCCESS, None, None)
    reason = reader.u8()
    if reason not in reasons.AUTH_REASONS:
        raise ProtocolViolationError(f"reason 0x{reason:02X} in AUTH")
    found = read_properties(reader, p.IN_AUTH)
    reader.expect_end()
    method = found.values.get(p.AUTH_METHOD)
    return Auth(reason, None if method is None else method.decode(), found.values.get(p.AUTH_DATA))


def _packet_id(reader: Reader, name: str) -> int:
    packet_id = reader.u16()
    if packet_id == 0:
        raise ProtocolViolationError(f"packet identifier 0 in {name}")
    return packet_id
