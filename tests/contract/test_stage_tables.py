"""Chunks which are seen through pointers: read like all others, deleted with their pointers."""

from __future__ import annotations

import pytest

from queuelake.errors import StorageError
from queuelake.storage import api, check
from queuelake.storage import queue_tables as t
from queuelake.storage.api import Batch, Store
from queuelake.storage.chunk import chunk_range, chunk_times, decode_chunk, encode_chunk
from queuelake.storage.queue_records import QueueRecord, encode
from queuelake.storage.stage_tables import (
    Pointer,
    open_stages,
    placed,
    stage_keys,
    stored_bytes,
)
from tests.contract.chunks import KIB, P, Q, everything, put, record, trim
from tests.contract.staged import hidden, show, stage, staged_count


def two_chunks(store: Store, first: int = 1, number: int = 77) -> None:
    chunks = [hidden([record(n) for n in range(3)]), hidden([record(n) for n in range(3, 5)])]
    stage(store, number, chunks)
    show(store, number, chunks, [3, 2], first, 5000)


def test_what_is_staged_is_in_no_queue(store: Store) -> None:
    stage(store, 77, [hidden([record(0)])])
    assert everything(store) == []
    with store.view() as view:
        assert open_stages(view) == [77]
        assert t.last_sequence(view, Q, P) == 0


def test_a_pointer_gives_records_their_sequences_and_time(store: Store) -> None:
    two_chunks(store, first=11)
    found = everything(store)
    assert [one.seq for one in found] == [11, 12, 13, 14, 15]
    assert {one.ts_ms for one in found} == {5000}
    assert [one.payload[:2] for one in found] == [b"0:", b"1:", b"2:", b"3:", b"4:"]
    with store.view() as view:
        assert open_stages(view) == []
        assert t.last_sequence(view, Q, P) == 15
        assert t.first_at_time(view, Q, P, 4000) == 11
        assert t.first_at_time(view, Q, P, 6000) == 16


def test_a_pointer_says_when_its_records_came_and_what_they_take(store: Store) -> None:
    chunk = hidden([record(0, size=KIB)])
    stage(store, 77, [chunk])
    show(store, 77, [chunk], [1], 9, 5000)
    with store.view() as view:
        value = view.get(api.CHUNKS, t.chunk_key(Q, P, 9)) or b""
    assert chunk_range(value) == (9, 9)
    assert chunk_times(value) == (5000, 5000)
    assert stored_bytes(t.chunk_key(Q, P, 9), value) == len(chunk) > KIB


def test_a_life_begins_when_the_records_are_shown() -> None:
    chunk = hidden([record(0), record(1)], life_ms=100)
    assert [one.expires_ms for one in decode_chunk(placed(chunk, 7, 5000))] == [5100, 5100]
    chunk = hidden([record(0)], life_ms=0)
    assert decode_chunk(placed(chunk, 7, 5000))[0].expires_ms == 0


def test_a_chunk_with_times_of_its_own_cannot_be_placed() -> None:
    chunk = encode_chunk(0, [record(0, ts_ms=1), record(1, ts_ms=2)])
    with pytest.raises(StorageError, match="times of its own"):
        placed(chunk, 7, 5000)


def test_a_staged_chunk_in_pieces_is_read_whole(store: Store) -> None:
    chunk = hidden([record(0, size=100 * KIB)])
    stage(store, 77, [chunk])
    assert staged_count(store) == 4 + 1  # and its mark
    show(store, 77, [chunk], [1], 9, 5000)
    (one,) = everything(store)
    assert (one.seq, len(one.payload)) == (9, 100 * KIB)
    trim(store, 9)
    assert staged_count(store) == 0


def test_trimming_frees_what_is_behind_the_pointers(store: Store) -> None:
    two_chunks(store)
    trim(store, 2)
    assert staged_count(store) == 2, "the first chunk is not over yet"
    trim(store, 3)
    assert staged_count(store) == 1
    trim(store, 5)
    assert staged_count(store) == 0
    assert everything(store) == []


def test_a_chunk_written_anew_takes_the_place_of_the_pointer(store: Store) -> None:
    two_chunks(store)
    batch = Batch()
    batch.delete_chunk(Q, P, 1)
    batch.put(api.CHUNKS, t.chunk_key(Q, P, 1), encode_chunk(1, [record(n) for n in range(3)]))
    store.commit(batch)
    assert [one.seq for one in everything(store)] == [1, 2, 3, 4, 5]
    assert staged_count(store) == 1


def test_a_deleted_queue_takes_its_staged_chunks_along(store: Store) -> None:
    put(store, 1, [record(0)])
    two_chunks(store, first=2)
    batch = Batch()
    batch.drop_queue(Q)
    batch.sweep(2)
    store.commit(batch)
    for _ in range(5):
        batch = Batch()
        batch.sweep(2)
        store.commit(batch)
    assert staged_count(store) == 0
    with store.view() as view:
        assert t.doomed_queues(view) == []


def test_a_message_whose_end_looks_like_a_pointer_is_none(store: Store) -> None:
    """The last piece of a long message can be as long as a pointer, and its publisher chooses what
    is in it: here, where the chunks of another queue are."""
    two_chunks(store)
    forged = Pointer(1, 3, 77, 0, 5000, 1 << 30).encode()
    long = record(0, size=2 * t.PIECE_BYTES)
    surplus = len(encode_chunk(1, [long])) - t.PIECE_BYTES - len(forged)
    long.payload = long.payload[: -surplus - len(forged)] + forged
    put(store, 1, [long], queue_id=Q + 1)
    prefix = t.partition_key(Q + 1, P)
    with store.view() as view:
        rows = list(t.scan_prefix(view, api.CHUNKS, prefix))
    assert [value == forged for _, value in rows] == [False, True]
    assert sum([stored_bytes(*row) for row in rows]) == t.PIECE_BYTES + len(forged)
    batch = Batch()
    batch.drop_queue(Q + 1)
    batch.sweep(100)
    store.commit(batch)
    assert [one.seq for one in everything(store)] == [1, 2, 3, 4, 5]


def test_the_rows_of_a_stage_which_came_to_nothing_are_found_a_few_at_a_time(store: Store) -> None:
    stage(store, 76, [hidden([record(n)]) for n in range(3)])
    two_chunks(store)
    seen = 0
    with store.view() as view:
        assert open_stages(view) == [76]
    while True:
        with store.view() as view:
            keys = stage_keys(view, 76, 2)
        if not keys:
            break
        seen += len(keys)
        batch = Batch()
        for key in keys:
            batch.delete(api.STAGED, key)
        store.commit(batch)
    assert seen == 4
    assert len(everything(store)) == 5


def test_a_missing_chunk_is_reported(store: Store) -> None:
    batch = Batch()
    batch.put(api.QUEUES, t.queue_key(Q), encode(QueueRecord("a", "durable", 1)))
    store.commit(batch)
    two_chunks(store)
    with store.view() as view:
        assert check.problems(view, 100) == []
        key = stage_keys(view, 77, 1)[0]
    batch = Batch()
    batch.delete(api.STAGED, key)
    store.commit(batch)
    with store.view() as view:
        assert "staged chunk 77:0 is missing" in check.problems(view, 100)[0]
    with pytest.raises(StorageError, match="missing"):
        everything(store)
