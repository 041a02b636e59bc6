"""Which partition a message goes to, and which consumer a partition belongs to."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

_OFFSET: Final = 0x811C9DC5
_PRIME: Final = 0x01000193


def fnv1a(key: bytes) -> int:
    """FNV-1a, 32 bit: the hash which producers and consumers can compute too."""
    value: i64 = _OFFSET
    for byte in key:
        value = (value ^ byte) * _PRIME & 0xFFFFFFFF
    return value


def ranges(partitions: int, consumers: int) -> list[tuple[int, int]]:
    """First partition and count for each consumer: contiguous, the first ones get one more."""
    share, extra = divmod(partitions, consumers)
    found: list[tuple[int, int]] = []
    first = 0
    for number in range(consumers):
        count = share + (1 if number < extra else 0)
        found.append((first, count))
        first += count
    return found
