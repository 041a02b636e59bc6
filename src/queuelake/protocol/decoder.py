"""Bytes in, packets out: the receiving half of MQTT 3.1.1 and 5.0 for a server.

`feed` only keeps bytes; `next_packet` returns one whole packet, or None when more bytes are needed.
A packet longer than the limit is refused as soon as its length is known, before its bytes arrive,
and the bytes of a long packet are collected, not joined with each read: neither its work nor its
memory grows with the number of pieces. The first packet must be a CONNECT; it decides which
protocol level all later packets are read with.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from queuelake.errors import MalformedPacketError, PacketTooLargeError, ProtocolViolationError
from queuelake.protocol import control, packets
from queuelake.protocol.connect import decode_connect, offered_level
from queuelake.protocol.packets import Connect, Packet, Pingreq, Publish
from queuelake.protocol.publish import decode_publish
from queuelake.protocol.wire import Reader

TOPIC_BYTES_KEPT_MAX: Final = 128


@final
class Decoder:
    """The packets of one connection."""

    __slots__ = (
        "_at",
        "_data",
        "_limit",
        "_missing",
        "_poisoned",
        "_rest",
        "_topic",
        "offered",
        "version",
    )

    def __init__(self, packet_size_max: int) -> None:
        self.version: int = 0  # 0 until CONNECT has been read
        self.offered: int = -1  # the level CONNECT named, even when it was refused
        self._limit: i64 = packet_size_max
        self._data: bytes = b""
        self._at: i64 = 0
        self._missing: i64 = 0  # bytes until the packet which begins in `_data` is whole
        self._rest: bytearray | None = None  # what came behind `_data`, when two reads were too few
        self._topic: bytes = b""  # of the last PUBLISH, unless it is long
        self._poisoned: bool = False

    def feed(self, data: bytes) -> None:
        """Take what the network brought."""
        if self._missing > 0:
            self._missing -= len(data)
            rest = self._rest
            if self._missing > 0:
                if rest is None:
                    self._rest = bytearray(data)
                else:
                    rest += data
                return
            if rest is None:  # the usual case: a packet on the border of two reads
                data = self._data + data
            else:
                data = b"".join((self._data, rest, data))
                self._rest = None
            self._missing = 0
        elif self._at < len(self._data):
            data = self._data[self._at :] + data
        self._data = data
        self._at = 0

    def next_packet(self) -> Packet | None:
        """Return the next whole packet, or None when more bytes are needed.

        Raises:
            PeerError: the peer sent what no peer may send; answer its reason code and close.
        """
        if self._poisoned:
            raise MalformedPacketError("bytes after a malformed packet")
        if self._missing > 0:
            return None
        data = self._data
        size: i64 = len(data)
        at = self._at
        if size - at < 2:
            self._forget_consumed()
            return None
        self._poisoned = True  # cleared below, on every way out which is not an error
        head: i64 = data[at]
        length: i64 = data[at + 1]
        at += 2
        if length >= 0x80:
            length &= 0x7F
            shift: i64 = 7
            while True:
                if at >= size:
                    self._poisoned = False
                    return None
                byte: i64 = data[at]
                at += 1
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 21:
                    raise MalformedPacketError("remaining length is longer than four bytes")
        packet: Packet | None = None
        end = at + length
        if self._is_whole(head, end):
            self._at = end
            if head >> 4 == packets.PUBLISH:
                packet = self._decode_publish(head, at, end)
            else:
                packet = self._decode(head, at, end)
        self._poisoned = False
        return packet

    def _is_whole(self, head: i64, end: i64) -> bool:
        if self.version == 0 and head >> 4 != packets.CONNECT:
            raise ProtocolViolationError(f"first packet is of type {head >> 4}, not CONNECT")
        if end - self._at > self._limit:
            raise PacketTooLargeError(
                f"packet of {end - self._at} bytes is longer than the limit of {self._limit}"
            )
        missing = end - len(self._data)
        if missing <= 0:
            return True
        self._forget_consumed()  # all that stays is the first piece of this packet
        self._missing = missing
        return False

    def _forget_consumed(self) -> None:
        if self._at:
            self._data = self._data[self._at :]
            self._at = 0

    def _decode_publish(self, head: i64, at: i64, end: i64) -> Publish:
        last_topic = self._topic
        packet = decode_publish(self._data, head, at, end, self.version, last_topic)
        topic = packet.topic
        if topic is not last_topic and len(topic) <= TOPIC_BYTES_KEPT_MAX:
            self._topic = topic
        return packet

    def _decode(self, head: i64, at: i64, end: i64) -> Packet:
        kind = head >> 4
        if kind == packets.PUBREL or kind == packets.SUBSCRIBE or kind == packets.UNSUBSCRIBE:
            if head & 0x0F != 2:
                raise MalformedPacketError(f"flags 0x{head & 15:X} in a packet of type {kind}")
        elif head & 0x0F != 0:
            raise MalformedPacketError(f"flags 0x{head & 15:X} in a packet of type {kind}")
        if packets.PUBACK <= kind <= packets.PUBCOMP:
            return control.decode_ack(self._data, kind, at, end, self.version)
        return self._decode_rare(kind, Reader(self._data, at, end))

    def _decode_rare(self, kind: int, reader: Reader) -> Packet:
        version = self.version
        if kind == packets.PINGREQ:
            reader.expect_end()
            return Pingreq()
        if kind == packets.CONNECT:
            if version:
                raise ProtocolViolationError("second CONNECT on one connection")
            self.offered = offered_level(reader.data, reader.at, reader.end)
            connect: Connect = decode_connect(reader)
            self.version = connect.version
            return connect
        if kind == packets.SUBSCRIBE:
            return control.decode_subscribe(reader, version)
        if kind == packets.UNSUBSCRIBE:
            return control.decode_unsubscribe(reader, version)
        if kind == packets.DISCONNECT:
            return control.decode_disconnect(reader, version)
        if kind == packets.AUTH and version == packets.V5:
            return control.decode_auth(reader)
        if kind == 0 or kind == packets.AUTH:
            raise MalformedPacketError(f"packet type {kind} does not exist")
        raise ProtocolViolationError(f"packet type {kind} is sent by servers only")
