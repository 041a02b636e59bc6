"""The packets of a client, as bytes for the broker of a shard. Pure.

`protocol/encoder.py` has what a server says; this is the other direction, with what differs from
one shard to another left to the caller.
"""

from __future__ import annotations

from queuelake.protocol import packets
from queuelake.protocol import properties as p
from queuelake.protocol.encoder import packet, with_length
from queuelake.protocol.message import PACKET_IDS
from queuelake.protocol.packets import (
    V5,
    Auth,
    Connect,
    Disconnect,
    Publish,
    SubscribeItem,
    Will,
)
from queuelake.protocol.wire import binary, varint

PINGREQ = b"\xc0\x00"


def connect(asked: Connect, will: Will | None, with_login: bool) -> bytes:
    """CONNECT with this will; aliases are between the client and us, so a shard may use none."""
    flags = 2 if asked.clean_start else 0
    parts = [binary(asked.client_id.encode())]
    if will is not None:
        flags |= 4 | will.qos << 3 | (0x20 if will.retain else 0)
        parts += _will(will, asked.version)
    if with_login and asked.username is not None:
        flags |= 0x80
        parts.append(binary(asked.username.encode()))
    if with_login and asked.password is not None:
        flags |= 0x40
        parts.append(binary(asked.password))
    head = binary(b"MQTT") + bytes((asked.version, flags)) + asked.keepalive_s.to_bytes(2, "big")
    if asked.version == V5:
        head += with_length(_connect_properties(asked, with_login))
    return packet(packets.CONNECT, head + b"".join(parts))


def _connect_properties(asked: Connect, with_login: bool) -> bytes:
    parts = [p.write_number(p.RECEIVE_MAXIMUM, asked.receive_max)]
    if asked.session_expiry_s >= 0:
        parts.append(p.write_number(p.SESSION_EXPIRY, asked.session_expiry_s))
    if asked.packet_size_max:
        parts.append(p.write_number(p.MAXIMUM_PACKET_SIZE, asked.packet_size_max))
    if asked.request_response:
        parts.append(p.write_number(p.REQUEST_RESPONSE, 1))
    if not asked.request_problem:
        parts.append(p.write_number(p.REQUEST_PROBLEM, 0))
    if with_login and asked.auth_method is not None:
        parts.append(p.write_value(p.AUTH_METHOD, asked.auth_method.encode()))
        if asked.auth_data is not None:
            parts.append(p.write_value(p.AUTH_DATA, asked.auth_data))
    return b"".join(parts)


def _will(will: Will, version: int) -> list[bytes]:
    if version != V5:
        return [binary(will.topic), binary(will.body)]
    # Its body begins with the properties, as that of a PUBLISH; the delay is not among them.
    at = 1
    while will.body[at - 1] & 0x80:
        at += 1
    properties = will.body[at : will.payload_at]
    if will.delay_s:
        properties += p.write_number(p.WILL_DELAY, will.delay_s)
    return [with_length(properties), binary(will.topic), binary(will.body[will.payload_at :])]


def publish(asked: Publish, topic: bytes, body: bytes) -> bytes:
    """PUBLISH, to a topic which may have been an alias."""
    first = packets.PUBLISH << 4 | asked.dup << 3 | asked.qos << 1 | asked.retain
    packet_id = PACKET_IDS[asked.packet_id] if asked.qos else b""
    length = 2 + len(topic) + len(packet_id) + len(body)
    return b"".join(
        (bytes((first,)), varint(length), len(topic).to_bytes(2, "big"), topic, packet_id, body)
    )


def subscribe(
    version: int,
    packet_id: int,
    items: list[SubscribeItem],
    subscription_id: int,
    user: list[tuple[bytes, bytes]],
) -> bytes:
    properties = b""
    if version == V5:
        number = p.write_number(p.SUBSCRIPTION_ID, subscription_id) if subscription_id else b""
        properties = with_length(number + p.write_user(user))
    body = [PACKET_IDS[packet_id], properties]
    for item in items:
        options = item.qos
        if version == V5:
            options |= item.no_local << 2 | item.retain_as_published << 3
            options |= item.retain_handling << 4
        body += [binary(item.topic_filter), bytes((options,))]
    return _flagged(packets.SUBSCRIBE, b"".join(body))


def unsubscribe(version: int, packet_id: int, filters: list[bytes]) -> bytes:
    properties = b"\0" if version == V5 else b""
    named = b"".join([binary(one) for one in filters])
    return _flagged(packets.UNSUBSCRIBE, PACKET_IDS[packet_id] + properties + named)


def disconnect(version: int, asked: Disconnect) -> bytes:
    if version != V5 or (asked.reason == 0 and asked.session_expiry_s < 0):
        return packet(packets.DISCONNECT, b"")
    properties = b""
    if asked.session_expiry_s >= 0:
        properties = p.write_number(p.SESSION_EXPIRY, asked.session_expiry_s)
    return packet(packets.DISCONNECT, bytes((asked.reason,)) + with_length(properties))


def auth(asked: Auth) -> bytes:
    properties = b""
    if asked.method is not None:
        properties += p.write_value(p.AUTH_METHOD, asked.method.encode())
    if asked.data is not None:
        properties += p.write_value(p.AUTH_DATA, asked.data)
    return packet(packets.AUTH, bytes((asked.reason,)) + with_length(properties))


def _flagged(kind: int, body: bytes) -> bytes:
    return bytes((kind << 4 | 2,)) + varint(len(body)) + body
