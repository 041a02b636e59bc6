"""The primitive types of the MQTT wire, read from one packet's bytes.

`Reader` walks over one whole packet and raises `MalformedPacketError` as soon as a field would
reach behind its end, so that no decoder needs to count for itself.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from queuelake.errors import MalformedPacketError

ONE_BYTE: Final[list[bytes]] = [bytes((number,)) for number in range(256)]
TWO_BYTES: Final[list[bytes]] = [high + low for high in ONE_BYTE for low in ONE_BYTE]

SHORT_TEXT_BYTES_MAX: Final = 64


@final
class Reader:
    """A cursor over `data[at:end]`."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data: bytes = data
        self.at: int = at
        self.end: int = end

    def u8(self) -> int:
        at = self.at
        if at >= self.end:
            raise MalformedPacketError("packet ends before a byte it needs")
        self.at = at + 1
        return self.data[at]

    def u16(self) -> int:
        at = self.at
        if at + 2 > self.end:
            raise MalformedPacketError("packet ends inside a two-byte integer")
        self.at = at + 2
        return self.data[at] << 8 | self.data[at + 1]

    def u32(self) -> int:
        return self.u16() << 16 | self.u16()

    def varint(self) -> int:
        """A variable byte integer in its shortest form, of at most four bytes."""
        value = 0
        shift = 0
        while True:
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift > 0:
                    raise MalformedPacketError("variable byte integer is longer than needed")
                return value
            shift += 7
            if shift > 21:
                raise MalformedPacketError("variable byte integer is longer than four bytes")

    def binary(self) -> bytes:
        length = self.u16()
        at = self.at
        if at + length > self.end:
            raise MalformedPacketError(
                f"field of {length} bytes reaches behind the end of the packet"
            )
        self.at = at + length
        return self.data[at : at + length]

    def string(self) -> bytes:
        """A UTF-8 string, checked, still as bytes: that is how topics travel."""
        text = self.binary()
        check_utf8(text)
        return text

    def text(self) -> str:
        return self.string().decode()

    def rest(self) -> bytes:
        at = self.at
        self.at = self.end
        return self.data[at : self.end]

    def expect_end(self) -> None:
        if self.at != self.end:
            raise MalformedPacketError(f"{self.end - self.at} bytes behind the last field")


def check_text(data: bytes, start: i64, stop: i64) -> None:
    """As `check_utf8`, for a part of a packet: the usual short text needs no copy."""
    if stop - start > SHORT_TEXT_BYTES_MAX:
        check_utf8(data[start:stop])
        return
    at: i64 = start
    while at < stop:
        byte: i64 = data[at]
        if byte == 0 or byte >= 0x80:
            check_utf8(data[start:stop])
            return
        at += 1


def check_utf8(text: bytes) -> None:
    """Refuse what no MQTT string may hold: bad UTF-8, surrogates, U+0000."""
    if text.isascii():
        if 0 in text:  # as a number: a bytes object is tried as one first, and fails slowly
            raise MalformedPacketError("string holds U+0000")
        return
    try:
        decoded = text.decode()  # strict: refuses surrogates too
    except UnicodeDecodeError:
        raise MalformedPacketError("string is not UTF-8") from None
    if "\0" in decoded:
        raise MalformedPacketError("string holds U+0000")


def varint(value: int) -> bytes:
    """Encode a variable byte integer."""
    assert 0 <= value <= 268_435_455
    if value < 0x80:
        return ONE_BYTE[value]
    if value < 0x4000:
        return TWO_BYTES[(value & 0x7F | 0x80) << 8 | value >> 7]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def binary(value: bytes) -> bytes:
    """Encode binary data or a UTF-8 string: two bytes of length, then the bytes."""
    assert len(value) <= 65535
    return len(value).to_bytes(2, "big") + value
