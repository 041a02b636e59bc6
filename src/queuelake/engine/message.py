"""What a machine knows of a message: where it is and what decides about it, never its payload."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

PRIORITY_DEFAULT: Final = 4
PRIORITY_MAX: Final = 31


@final
@mypyc_attr(acyclic=True)
class Entry:
    """A stored message."""

    __slots__ = ("expires_ms", "key", "partition", "priority", "rest", "seq", "size", "ts_ms")

    def __init__(
        self,
        partition: int,
        size: int,
        key: int,
        ts_ms: int,
        expires_ms: int,
        priority: int = PRIORITY_DEFAULT,
        rest: bytes = b"",
        seq: int = 0,
    ) -> None:
        self.partition: int = partition
        self.seq: int = seq  # given by the machine; 0: not yet
        self.size: int = size
        self.key: int = key  # hash of the partition key, 0: none
        self.ts_ms: int = ts_ms
        self.expires_ms: int = expires_ms  # 0: never
        self.priority: int = priority
        self.rest: bytes = rest  # levels of the topic behind the queue's name


def sequence_of(entry: Entry) -> int:
    return entry.seq
