"""Records of queues for tests of chunks and of the tables which hold them."""

from __future__ import annotations

from queuelake.storage import api
from queuelake.storage.api import Batch, Store
from queuelake.storage.chunk import Record
from queuelake.storage.queue_tables import put_chunk, read_chunk_at

Q, P = 5, 3  # the queue and the partition of most tests
KIB = 1024


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
    texts = (one.topic, one.key, one.message_id, one.publisher, one.properties, one.payload)
    return (*texts, one.qos, one.priority, one.ts_ms, one.expires_ms)


def put(store: Store, first: int, records: list[Record], queue_id: int = Q, part: int = P) -> None:
    batch = Batch()
    put_chunk(batch, queue_id, part, first, records)
    store.commit(batch)


def everything(store: Store, queue_id: int = Q, part: int = P) -> list[Record]:
    found: list[Record] = []
    with store.view() as view:
        while records := read_chunk_at(view, queue_id, part, found[-1].seq + 1 if found else 0):
            found += records
    return found


def trim(store: Store, upto: int) -> None:
    batch = Batch()
    batch.trim_chunks(Q, P, upto)
    store.commit(batch)


def firsts(store: Store) -> list[int]:
    with store.view() as view:
        keys = view.scan_keys(api.CHUNKS, b"", b"\xff" * 40)
        return sorted({int.from_bytes(key[10:18], "big") for key in keys})
