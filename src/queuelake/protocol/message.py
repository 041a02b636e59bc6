"""An application message, and the PUBLISH frames made from it.

A message keeps the bytes its publisher sent. A frame for a subscriber is head (first byte, length,
topic) + packet id + tail (properties and payload). Head and tail are the same for all subscribers
of one protocol level and QoS, so they are made once and kept: a fan-out costs one join for each
subscriber, and at QoS 0 not even that.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from queuelake.protocol import properties as p
from queuelake.protocol.packets import V5
from queuelake.protocol.wire import TWO_BYTES, Reader, varint

PACKET_IDS: Final[list[bytes]] = TWO_BYTES

FIRST_BYTE: Final = 0x30  # PUBLISH, QoS 0
RETAIN_FLAG: Final = 0x01
DUP_FLAG: Final = 0x08
EXPIRY_S_MAX: Final = 0xFFFFFFFF


@final
@mypyc_attr(acyclic=True)
class Message:
    """What was published; `body` and `payload_at` as in `packets.Publish`."""

    __slots__ = (
        "_head",
        "_key",
        "_tail",
        "body",
        "expires_ms",
        "expiry_at",
        "group",
        "payload_at",
        "place",
        "publisher",
        "qos",
        "retain",
        "topic",
        "ts_ms",
    )

    def __init__(
        self,
        topic: bytes,
        qos: int,
        retain: bool,
        body: bytes,
        payload_at: int,
        expiry_at: int,
        publisher: str,
        ts_ms: int,
    ) -> None:
        self.topic: bytes = topic
        self.qos: int = qos
        self.retain: bool = retain
        self.body: bytes = body
        self.payload_at: int = payload_at
        self.expiry_at: int = expiry_at
        self.publisher: str = publisher
        self.ts_ms: int = ts_ms
        self.expires_ms: int = 0  # 0: never
        if expiry_at:
            self.expires_ms = ts_ms + 1000 * Reader(body, expiry_at, len(body)).u32()
        self.group: int = 0  # the commit group which stores this message, 0: none so far
        self.place: int = 0  # its number among the messages of that group
        self._key: int = -1
        self._head: bytes = b""
        self._tail: bytes = b""

    def payload(self) -> bytes:
        return self.body[self.payload_at :] if self.payload_at else self.body

    def properties(self) -> bytes:
        """The encoded MQTT 5 properties, without their length."""
        if self.payload_at < 2:
            return b""
        reader = Reader(self.body, 0, self.payload_at)
        reader.varint()
        return reader.rest()

    def size(self) -> int:
        return len(self.topic) + len(self.body)

    def frame(self, version: int, first: int, packet_id: int, ids: bytes, now_ms: int) -> bytes:
        """The PUBLISH for one subscriber; `ids` are its encoded subscription identifiers."""
        if version == V5 and (ids or self.expires_ms):
            return self.frame_with(first, self.topic, packet_id, ids, now_ms)
        key = version << 8 | first
        if key != self._key:
            self._prepare(key, version, first)
        if first & 6:
            return b"".join([self._head, PACKET_IDS[packet_id], self._tail])
        return self._head

    def frame_with(
        self, first: int, topic: bytes, packet_id: int, extra: bytes, now_ms: int
    ) -> bytes:
        """The MQTT 5 PUBLISH with properties of its own: identifiers, an alias, a fresh expiry."""
        own = self.properties()
        if self.expires_ms:
            at = self.expiry_at - (self.payload_at - len(own))
            # The clock may stand before `ts_ms` after a restart: more than 32 bits can be left.
            left_s = min(max(0, (self.expires_ms - now_ms + 999) // 1000), EXPIRY_S_MAX)
            own = own[:at] + left_s.to_bytes(4, "big") + own[at + 4 :]
        parts = [PACKET_IDS[len(topic)], topic]
        if first & 6:
            parts.append(PACKET_IDS[packet_id])
        parts.append(varint(len(extra) + len(own)))
        parts.append(extra)
        parts.append(own)
        parts.append(self.payload())
        rest = b"".join(parts)
        return b"".join([bytes((first,)), varint(len(rest)), rest])

    def _prepare(self, key: int, version: int, first: int) -> None:
        if version == V5:
            tail = self.body if self.payload_at else b"\0" + self.body
        else:
            tail = self.payload()
        topic = self.topic
        length = 2 + len(topic) + (2 if first & 6 else 0) + len(tail)
        head = b"".join([bytes((first,)), varint(length), PACKET_IDS[len(topic)], topic])
        self._head = head if first & 6 else head + tail
        self._tail = tail
        self._key = key


def make_message(
    topic: bytes,
    payload: bytes,
    ts_ms: int,
    qos: int = 0,
    retain: bool = False,
    properties: bytes = b"",
    publisher: str = "",
) -> Message:
    """A message of the server itself; `properties` without an expiry interval."""
    head = varint(len(properties)) + properties
    return Message(topic, qos, retain, head + payload, len(head), 0, publisher, ts_ms)


def encode_ids(ids: list[int]) -> bytes:
    """Subscription identifiers as they stand in the properties of a PUBLISH."""
    return b"".join([p.write_number(p.SUBSCRIPTION_ID, number) for number in ids])
