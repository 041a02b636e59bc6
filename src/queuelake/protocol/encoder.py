"""The packets a server sends, as bytes. PUBLISH frames are made in `message.py`."""

from __future__ import annotations

from typing import Final

from queuelake.protocol import properties as p
from queuelake.protocol.message import PACKET_IDS
from queuelake.protocol.packets import AUTH, CONNACK, DISCONNECT, SUBACK, UNSUBACK, V5
from queuelake.protocol.reasons import connack_return_code
from queuelake.protocol.wire import varint

PINGRESP: Final = b"\xd0\x00"

PUBACK_HEAD: Final = b"\x40\x02"
PUBREC_HEAD: Final = b"\x50\x02"
PUBREL_HEAD: Final = b"\x62\x02"
PUBCOMP_HEAD: Final = b"\x70\x02"


def packet(kind: int, body: bytes) -> bytes:
    return bytes((kind << 4,)) + varint(len(body)) + body


def with_length(properties: bytes) -> bytes:
    return varint(len(properties)) + properties


def connack(version: int, session_present: bool, reason: int, properties: bytes = b"") -> bytes:
    present = b"\x01" if session_present and reason == 0 else b"\x00"
    if version == V5:
        return packet(CONNACK, present + bytes((reason,)) + with_length(properties))
    return packet(CONNACK, present + bytes((connack_return_code(reason),)))


def ack(kind: int, packet_id: int, reason: int, reason_string: str = "") -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP of MQTT 5 with a reason."""
    body = PACKET_IDS[packet_id]
    if reason or reason_string:
        body += bytes((reason,))
    if reason_string:
        body += with_length(p.write_value(p.REASON_STRING, reason_string.encode()))
    flags = 2 if kind == 6 else 0
    return bytes((kind << 4 | flags,)) + varint(len(body)) + body


def suback(version: int, packet_id: int, codes: bytes, reason_string: str = "") -> bytes:
    if version != V5:
        codes = bytes([code if code < 0x80 else 0x80 for code in codes])
        return packet(SUBACK, PACKET_IDS[packet_id] + codes)
    return packet(SUBACK, PACKET_IDS[packet_id] + _reason_string(reason_string) + codes)


def unsuback(version: int, packet_id: int, codes: bytes) -> bytes:
    if version != V5:
        return packet(UNSUBACK, PACKET_IDS[packet_id])
    return packet(UNSUBACK, PACKET_IDS[packet_id] + b"\0" + codes)


def disconnect(reason: int, reason_string: str = "") -> bytes:
    """DISCONNECT of MQTT 5; a 3.1.1 server has none and just closes."""
    return packet(DISCONNECT, bytes((reason,)) + _reason_string(reason_string))


def auth(reason: int, method: str, data: bytes) -> bytes:
    properties = p.write_value(p.AUTH_METHOD, method.encode())
    if data:
        properties += p.write_value(p.AUTH_DATA, data)
    return packet(AUTH, bytes((reason,)) + with_length(properties))


def _reason_string(text: str) -> bytes:
    if not text:
        return b"\0"
    return with_length(p.write_value(p.REASON_STRING, text[:256].encode()))
