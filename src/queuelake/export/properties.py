"""MQTT properties of messages as columns: the content type, and the user properties as a map."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from queuelake.errors import StorageError
from queuelake.export.chunks import Texts
from queuelake.export.schemas import TYPES
from queuelake.protocol import properties as p

_MAP = TYPES["map<string,string>"]
_SIZES = {p.FLAG: 2, p.U16: 3, p.U32: 5}


def content_types(texts: Texts) -> pa.Array:
    """Null where a message has none."""
    return _of_each_distinct(texts, _content_type, pa.string())


def user_properties(texts: Texts) -> pa.Array:
    """Of a name which is there twice, the last value."""
    return _of_each_distinct(texts, _user_properties, _MAP)


def _of_each_distinct(texts: Texts, read: Callable[[bytes], object], kind: pa.DataType) -> pa.Array:
    """Most messages of a batch have the same properties: each are read once."""
    encoded = texts.values.dictionary_encode()
    found = pa.array([read(one) for one in encoded.dictionary.to_pylist()], kind)
    return texts.spread(found.take(encoded.indices))


def _content_type(encoded: bytes) -> str | None:
    for identifier, value, _ in _each(encoded):
        if identifier == p.CONTENT_TYPE:
            return value.decode("utf-8", "replace")
    return None


def _user_properties(encoded: bytes) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for identifier, name, value in _each(encoded):
        if identifier == p.USER_PROPERTY:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return list(found.items())


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
