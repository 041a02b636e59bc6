"""MQTT properties of messages as columns: the content type, and the user properties as a map."""

from __future__ import annotations

import pyarrow as pa

from queuelake.errors import StorageError
from queuelake.export.chunks import Texts
from queuelake.export.schemas import TYPES
from queuelake.protocol import properties as p

_MAP = TYPES["map<string,string>"]
_SIZES = {p.FLAG: 2, p.U16: 3, p.U32: 5}


class Properties:
    """Of the messages of a batch. Most of them have the same: each distinct value is read once."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        encoded = texts.values.dictionary_encode()
        self._indices = encoded.indices
        self._found = [_read(one) for one in encoded.dictionary.to_pylist()]

    def content_types(self) -> pa.Array:
        """Null where a message has none."""
        return self._spread(pa.array([found[0] for found in self._found], pa.string()))

    def user_properties(self) -> pa.Array:
        """Of a name which is there twice, the last value."""
        return self._spread(pa.array([found[1] for found in self._found], _MAP))

    def _spread(self, values: pa.Array) -> pa.Array:
        return self._texts.spread(values.take(self._indices))


def _read(encoded: bytes) -> tuple[str | None, list[tuple[str, str]]]:
    """The content type and the user properties."""
    content_type: str | None = None
    user: dict[str, str] = {}
    for identifier, first, second in _each(encoded):
        if identifier == p.USER_PROPERTY:
            user[first.decode("utf-8", "replace")] = second.decode("utf-8", "replace")
        elif identifier == p.CONTENT_TYPE:
            content_type = first.decode("utf-8", "replace")
    return content_type, list(user.items())


def _each(encoded: bytes) -> list[tuple[int, bytes, bytes]]:
    """Identifier and bytes of each property, checked by the decoder when they came; the second
    value is that of a user property."""
    found: list[tuple[int, bytes, bytes]] = []
    at = 0
    while at < len(encoded):
        identifier = encoded[at]
        if identifier not in p.TYPES:
            raise StorageError(f"0x{identifier:02X} is no property of a message")
        size = _SIZES.get(p.TYPES[identifier], 0)
        if size:
            at += size
            continue
        first, at = _text(encoded, at + 1)
        second = b""
        if identifier == p.USER_PROPERTY:
            second, at = _text(encoded, at)
        found.append((identifier, first, second))
    return found


def _text(encoded: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + int.from_bytes(encoded[at : at + 2], "big")
    return encoded[at + 2 : end], end
