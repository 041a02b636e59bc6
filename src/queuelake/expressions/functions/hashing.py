"""Digests, and numbers made of them."""

from __future__ import annotations

import hashlib
from typing import Final

from queuelake.expressions.functions.function import Function
from queuelake.expressions.values import Value, anything, integer, octets, text

DIGESTS: Final = frozenset(
    {
        *("md5", "sha", "sha1", "sha224", "sha256", "sha384", "sha512"),
        *("sha3_224", "sha3_256", "sha3_384", "sha3_512", "blake2b", "blake2s"),
    }
)
# These have a digest of any length; the names are without the '_' of hashlib, as OTP has them.
EXTENDABLE_BYTES: Final = {"shake128": 16, "shake256": 32}


def _hash(algorithm: str, data: bytes) -> str:
    if algorithm == "shake128":
        return hashlib.shake_128(data).hexdigest(EXTENDABLE_BYTES[algorithm])
    if algorithm == "shake256":
        return hashlib.shake_256(data).hexdigest(EXTENDABLE_BYTES[algorithm])
    if algorithm not in DIGESTS:
        known = ", ".join(sorted({*DIGESTS, *EXTENDABLE_BYTES}))
        raise ValueError(f"no such algorithm: {algorithm!r}; use one of {known}")
    name = "sha1" if algorithm == "sha" else algorithm
    return hashlib.new(name, data, usedforsecurity=False).hexdigest()


def _hash_to_range(data: bytes, least: int, most: int) -> int:
    if not data:
        raise ValueError("an empty text has no place in a range")
    digest = hashlib.sha256(data, usedforsecurity=False).digest()
    return _to_range(int.from_bytes(digest), least, most)


def _map_to_range(value: Value, least: int, most: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return _to_range(value, least, most)
    data = octets(value)
    if not data:
        raise ValueError("an empty text has no place in a range")
    return _to_range(int.from_bytes(data), least, most)


def _to_range(value: int, least: int, most: int) -> int:
    if least > most:
        raise ValueError(f"the range from {least} to {most} is empty")
    return least + value % (most - least + 1)


HASHING: Final[dict[str, Function]] = {
    "hash": Function(_hash, text, octets),
    "hash_to_range": Function(_hash_to_range, octets, integer, integer),
    "map_to_range": Function(_map_to_range, anything, integer, integer),
}
