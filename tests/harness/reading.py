"""The reading half of the tests' codec: any packet a server may send becomes one flat `Packet`.

It is strict: bytes left over, an unknown or repeated property, reserved flags or a bad string
raise `WireError`, so every test also checks that what the server sends is well formed.
"""

from __future__ import annotations

from typing import Any

from tests.harness.packets import LISTED, PROPERTY_TABLE, PUBLISH, PUBREL, Packet, WireError


class Reader:
    """A cursor over the body of one packet."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise WireError(f"field of {count} bytes at {self.at} runs past {self.data.hex()}")
        self.at += count
        return self.data[self.at - count : self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int.from_bytes(self.take(2))

    def varint(self) -> int:
        value = 0
        for shift in (0, 7, 14, 21):
            digit = self.byte()
            value |= (digit & 0x7F) << shift
            if digit < 0x80:
                if digit == 0 and shift:
                    raise WireError("variable byte integer is longer than needed")
                return value
        raise WireError("variable byte integer of more than 4 bytes")

    def binary(self) -> bytes:
        return self.take(self.u16())

    def text(self) -> str:
        value = self.binary().decode()
        if "\0" in value:
            raise WireError(f"U+0000 in string {value!r}")
        return value

    def left(self) -> int:
        return len(self.data) - self.at

    def properties(self) -> dict[str, Any]:
        length = self.varint()
        inner = Reader(self.take(length))
        found: dict[str, Any] = {}
        while inner.left():
            name, kind = PROPERTY_TABLE[inner.varint()]
            value = inner.property_value(kind)
            if name in LISTED:
                found.setdefault(name, []).append(value)
            elif name in found:
                raise WireError(f"property {name} occurs twice")
            else:
                found[name] = value
        return found

    def property_value(self, kind: str) -> Any:
        match kind:
            case "byte":
                return self.byte()
            case "u16":
                return self.u16()
            case "u32":
                return int.from_bytes(self.take(4))
            case "varint":
                return self.varint()
            case "pair":
                return (self.text(), self.text())
            case "text":
                return self.text()
            case _:
                return self.binary()


def parse(raw: bytes, version: int) -> Packet:
    """Read one whole packet; `raw` starts at the first byte."""
    head = Reader(raw[1:])
    length = head.varint()
    body = Reader(head.take(length))
    packet = Packet(raw[0] >> 4, raw[0] & 15, raw)
    _parse_body(packet, body, version)
    if body.left():
        raise WireError(f"{body.left()} bytes too many in {packet}")
    if packet.type != PUBLISH and packet.flags != (2 if packet.type == PUBREL else 0):
        raise WireError(f"reserved flags are {packet.flags} in {packet}")
    return packet


def _parse_body(packet: Packet, body: Reader, version: int) -> None:
    match packet.type:
        case 2:
            acknowledge_flags = body.byte()
            if acknowledge_flags > 1:
                raise WireError(f"reserved connect acknowledge flags in {packet}")
            packet.session_present = acknowledge_flags == 1
            packet.reason_code = body.byte()
            packet.properties = body.properties() if version == 5 else {}
        case 3:
            packet.topic = body.text()
            packet.packet_id = body.u16() if packet.qos else 0
            packet.properties = body.properties() if version == 5 else {}
            packet.payload = body.take(body.left())
        case 4 | 5 | 6 | 7:
            packet.packet_id = body.u16()
            _parse_reason(packet, body, version)
        case 9 | 11:
            packet.packet_id = body.u16()
            packet.properties = body.properties() if version == 5 else {}
            packet.reason_codes = list(body.take(body.left()))
        case 14 | 15:
            _parse_reason(packet, body, version)
        case 13:
            pass
        case _:
            raise WireError(f"a server may not send {packet}")


def _parse_reason(packet: Packet, body: Reader, version: int) -> None:
    """Reason code and properties, both of which MQTT 5 lets end early."""
    if version == 5 and body.left():
        packet.reason_code = body.byte()
        packet.properties = body.properties() if body.left() else {}
