"""Decoding CONNECT: the one packet which says what all others mean."""

from __future__ import annotations

from queuelake.errors import (
    MalformedPacketError,
    ProtocolViolationError,
    UnsupportedProtocolError,
)
from queuelake.protocol import properties as p
from queuelake.protocol.packets import V5, V311, Connect, Will
from queuelake.protocol.properties import Properties, read_properties
from queuelake.protocol.wire import Reader, varint


def decode_connect(reader: Reader) -> Connect:
    """Decode the body of a CONNECT of MQTT 3.1, 3.1.1 or 5.0."""
    version = _version(reader)
    flags = reader.u8()
    if flags & 1:
        raise MalformedPacketError("reserved flag is set in CONNECT")
    keepalive_s = reader.u16()
    found = read_properties(reader, p.IN_CONNECT) if version == V5 else Properties()
    connect = Connect(version, reader.text(), flags & 2 != 0, keepalive_s)
    _read_will(reader, connect, flags)
    if flags & 0x80:
        connect.username = reader.text()
    if flags & 0x40:
        if version != V5 and not flags & 0x80:
            raise MalformedPacketError("password without a user name in CONNECT")
        connect.password = reader.binary()
    reader.expect_end()
    _apply(connect, found)
    return connect


def offered_level(data: bytes, at: int, end: int) -> int:
    """The protocol level a CONNECT asks for, or -1 when it is not a CONNECT of MQTT at all."""
    for name in (b"\0\x04MQTT", b"\0\x06MQIsdp"):
        level_at = at + len(name)
        if level_at < end and data[at:level_at] == name:
            return data[level_at]
    return -1


def _version(reader: Reader) -> int:
    name = reader.binary()
    level = reader.u8()
    if name == b"MQTT" and level in (4, 5):
        return level
    if name == b"MQIsdp" and level == 3:
        return V311  # MQTT 3.1: the same packets
    raise UnsupportedProtocolError(f"protocol {name[:16]!r} level {level} is not spoken here")


def _read_will(reader: Reader, connect: Connect, flags: int) -> None:
    qos = flags >> 3 & 3
    retain = flags & 0x20 != 0
    if not flags & 4:
        if qos or retain:
            raise MalformedPacketError("will QoS or will retain without a will in CONNECT")
        return
    if qos == 3:
        raise MalformedPacketError("will QoS 3 in CONNECT")
    if connect.version != V5:
        topic = reader.string()
        connect.will = Will(topic, qos, retain, reader.binary(), 0, 0, 0)
        return
    found = read_properties(reader, p.IN_WILL)
    topic = reader.string()
    properties = b"".join(
        [p.write_number(n, v) for n, v in found.numbers.items() if n != p.WILL_DELAY]
        + [p.write_value(n, v) for n, v in found.values.items()]
        + [p.write_user(found.user)]
    )
    response = found.values.get(p.RESPONSE_TOPIC, b"-")
    if not response or b"+" in response or b"#" in response:
        raise ProtocolViolationError("response topic of the will is empty or holds a wildcard")
    head = varint(len(properties)) + properties
    expiry_at = 0
    if p.MESSAGE_EXPIRY in found.numbers:
        # Numbers come first and keep their order, so the place can be counted.
        expiry_at = len(head) - len(properties)
        for number, value in found.numbers.items():
            if number == p.MESSAGE_EXPIRY:
                expiry_at += 1
                break
            if number != p.WILL_DELAY:
                expiry_at += len(p.write_number(number, value))
    delay_s = found.numbers.get(p.WILL_DELAY, 0)
    connect.will = Will(topic, qos, retain, head + reader.binary(), len(head), expiry_at, delay_s)


def _apply(connect: Connect, found: Properties) -> None:
    if connect.version != V5:
        return
    numbers = found.numbers
    connect.session_expiry_s = numbers.get(p.SESSION_EXPIRY, -1)
    connect.receive_max = numbers.get(p.RECEIVE_MAXIMUM, 65535)
    connect.packet_size_max = numbers.get(p.MAXIMUM_PACKET_SIZE, 0)
    connect.alias_max = numbers.get(p.TOPIC_ALIAS_MAXIMUM, 0)
    connect.request_response = numbers.get(p.REQUEST_RESPONSE, 0) == 1
    connect.request_problem = numbers.get(p.REQUEST_PROBLEM, 1) == 1
    method = found.values.get(p.AUTH_METHOD)
    connect.auth_data = found.values.get(p.AUTH_DATA)
    if method is not None:
        connect.auth_method = method.decode()
    elif connect.auth_data is not None:
        raise ProtocolViolationError("authentication data without a method in CONNECT")
