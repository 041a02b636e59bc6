"""What brokers send, cut into packets and read as far as a front must. Pure.

A front trusts the brokers of its cluster: nothing is checked here.
"""

from __future__ import annotations

from typing import Final

from queuelake.protocol import properties as p
from queuelake.protocol.encoder import packet as encode
from queuelake.protocol.encoder import with_length
from queuelake.protocol.message import PACKET_IDS
from queuelake.protocol.packets import CONNACK, PUBLISH, V5

QOS_BITS: Final = 0x06


class ServerPackets:
    """The bytes of one connection."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The packets which are whole now."""
        if self._data:
            data = self._data + data
        found: list[bytes] = []
        at, size = 0, len(data)
        while size - at >= 2:
            start = body_at(data, at)
            if not start:
                break
            end = start + _length(data, at + 1)
            if end > size:
                break
            found.append(data[at:end] if at or end < size else data)
            at = end
        self._data = data[at:]
        return found


def body_at(data: bytes, at: int = 0) -> int:
    """Where the packet which begins at `at` has its body; 0: its head is not whole."""
    at += 1
    while at < len(data):
        if data[at] < 0x80:
            return at + 1
        at += 1
    return 0


def _length(data: bytes, at: int) -> int:
    length = shift = 0
    while True:
        length |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return length
        at += 1
        shift += 7


def packet_id_at(packet: bytes) -> int:
    """Where the packet id stands."""
    at = body_at(packet)
    if packet[0] >> 4 == PUBLISH:
        at += 2 + int.from_bytes(packet[at : at + 2], "big")
    return at


def packet_id(packet: bytes) -> int:
    at = packet_id_at(packet)
    return int.from_bytes(packet[at : at + 2], "big")


def renumbered(packet: bytes, number: int) -> bytes:
    at = packet_id_at(packet)
    return b"".join((packet[:at], PACKET_IDS[number], packet[at + 2 :]))


def has_qos(publish: bytes) -> bool:
    return publish[0] & QOS_BITS != 0


def reason_of(ack: bytes) -> int:
    """Of PUBACK, PUBREC, PUBREL or PUBCOMP."""
    at = body_at(ack) + 2
    return ack[at] if at < len(ack) else 0


def connack_reason(connack: bytes) -> int:
    return connack[body_at(connack) + 1]


def is_present(connack: bytes) -> bool:
    return connack[body_at(connack)] == 1


def joined_connack(version: int, home: bytes, present: bool, assigned: str) -> bytes:
    """The answer of the home shard; `assigned` is the client id which we have made up."""
    at = body_at(home)
    start = bytes((present, home[at + 1]))
    if version != V5:
        return encode(CONNACK, start)
    properties = home[body_at(home, at + 1) :]  # their length is written as that of a packet
    if assigned:
        properties += p.write_value(p.ASSIGNED_CLIENT_ID, assigned.encode())
    return encode(CONNACK, start + with_length(properties))


def codes_of(version: int, answer: bytes) -> tuple[bytes, str]:
    """The codes in a SUBACK or UNSUBACK, and its words."""
    at = body_at(answer) + 2
    if version != V5:
        return answer[at:], ""
    start = body_at(answer, at - 1)
    end = start + _length(answer, at)
    return answer[end:], _reason_string(answer[start:end])


def _reason_string(properties: bytes) -> str:
    """The only property brokers put there."""
    if properties[:1] != bytes((p.REASON_STRING,)):
        return ""
    return properties[3 : 3 + int.from_bytes(properties[1:3], "big")].decode()
