"""Staged chunks for tests: as the export process lays them out, but record by record."""

from __future__ import annotations

from queuelake.storage import api
from queuelake.storage.api import Batch, Store
from queuelake.storage.chunk import Record, encode_chunk
from queuelake.storage.queue_tables import chunk_key
from queuelake.storage.stage_tables import OPEN, Pointer, stage_key, staged_rows
from tests.contract.chunks import P, Q


def hidden(records: list[Record], life_ms: int = 0) -> bytes:
    """A chunk which does not know its place yet."""
    for one in records:
        one.ts_ms, one.expires_ms = 0, life_ms
    return encode_chunk(0, records)


def stage(store: Store, number: int, chunks: list[bytes]) -> None:
    batch = Batch()
    batch.put(api.STAGED, stage_key(number) + OPEN, b"")
    for n, chunk in enumerate(chunks):
        batch.tables[api.STAGED].update(staged_rows(number, n, chunk))
    store.commit(batch)


def show(
    store: Store, number: int, chunks: list[bytes], counts: list[int], first: int, ts_ms: int
) -> None:
    """The commit which makes them part of the queue."""
    batch = Batch()
    batch.delete(api.STAGED, stage_key(number) + OPEN)
    for n, (chunk, count) in enumerate(zip(chunks, counts, strict=True)):
        pointer = Pointer(first, count, number, n, ts_ms, len(chunk))
        batch.put(api.CHUNKS, chunk_key(Q, P, first), pointer.encode())
        first += count
    store.commit(batch)


def staged_count(store: Store) -> int:
    with store.view() as view:
        return view.count(api.STAGED)
