"""Records of queues for tests of chunks and of the tables which hold them."""

from __future__ import annotations

from queuelake.storage.chunk import Record


def record(
    n: int,
    *,
    topic: bytes = b"",
    key: bytes = b"",
    message_id: bytes = b"",
    properties: bytes = b"",
    size: int = 100,
    ts_ms: int = 1000,
) -> Record:
    """Record number `n`: its payload says which one it is."""
    payload = (b"%d:" % n).ljust(size, b"x")
    return Record(topic, key, message_id, b"client", properties, payload, 1, 4, ts_ms, 0)


def fields(one: Record) -> tuple[object, ...]:
    """All of a record but its sequence, which only a stored one has."""
    return tuple(getattr(one, name) for name in Record.__slots__ if name != "seq")
