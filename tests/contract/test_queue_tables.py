"""Queues in the store: chunks are found by sequence and by time, and nothing is left behind."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queuelake.errors import StorageError
from queuelake.storage import api, queue_tables
from queuelake.storage.api import Batch, Store
from queuelake.storage.chunk import Record
from queuelake.storage.delayed import (
    Delayed,
    delete_delayed,
    next_due_ms,
    put_delayed,
    read_delayed,
)
from queuelake.storage.queue_tables import (
    PIECE_BYTES,
    first_at_time,
    first_sequence,
    last_sequence,
    read_chunk_at,
    scan_prefix,
)
from tests.contract.chunks import KIB, P, Q, everything, fields, firsts, put, record, trim
from tests.contract.rows import count


def sequences(store: Store, seq: int) -> list[int]:
    with store.view() as view:
        return [one.seq for one in read_chunk_at(view, Q, P, seq)]


def test_a_chunk_is_found_by_any_of_its_sequences(store: Store) -> None:
    put(store, 1, [record(n) for n in (1, 2, 3)])
    put(store, 4, [record(4)])
    put(store, 5, [record(n) for n in (5, 6)])
    for seq, expected in ((0, [1, 2, 3]), (2, [1, 2, 3]), (4, [4]), (5, [5, 6]), (6, [5, 6])):
        assert sequences(store, seq) == expected
    assert sequences(store, 7) == []


def test_after_a_gap_comes_the_next_chunk(store: Store) -> None:
    put(store, 1, [record(1), record(2)])
    put(store, 10, [record(10), record(11)])
    assert sequences(store, 3) == [10, 11]
    assert sequences(store, 9) == [10, 11]


def test_neighbours_in_the_table_are_not_taken_for_ours(store: Store) -> None:
    for queue_id, part in ((Q - 1, P), (Q, P - 1), (Q, P + 1), (Q + 1, P)):
        put(store, 1, [record(1), record(2)], queue_id, part)
    assert sequences(store, 0) == sequences(store, 2) == sequences(store, 3) == []
    with store.view() as view:
        assert first_sequence(view, Q, P) == last_sequence(view, Q, P) == 0
        assert first_at_time(view, Q, P, 0) == 1
    trim(store, 100)
    assert count(store, api.CHUNKS) == 4


def test_many_records_become_chunks_which_fill_their_pages(store: Store) -> None:
    records = [record(n, size=KIB) for n in range(100)]
    put(store, 1, records)
    assert [fields(one) for one in everything(store)] == [fields(one) for one in records]
    with store.view() as view:
        lengths = [len(value) for _, value in view.scan(api.CHUNKS, b"", b"\xff" * 40)]
    assert len(lengths) == 4
    assert max(lengths) <= PIECE_BYTES
    assert min(lengths[:3]) > 31 * KIB


def test_many_empty_records_are_not_one_chunk(store: Store) -> None:
    put(store, 1, [record(n, size=0) for n in range(10_000)])
    assert [one.seq for one in everything(store)] == list(range(1, 10_001))


@pytest.mark.parametrize("size", [PIECE_BYTES - 100, PIECE_BYTES, 3 * PIECE_BYTES, 1024 * KIB])
def test_a_long_message_is_alone_in_its_chunk(store: Store, size: int) -> None:
    records = [record(1), record(2, size=size), record(3)]
    put(store, 1, records)
    assert [fields(one) for one in everything(store)] == [fields(one) for one in records]
    assert firsts(store) == [1, 2, 3]
    with store.view() as view:
        assert last_sequence(view, Q, P) == 3
    trim(store, 2)
    assert firsts(store) == [3]
    assert count(store, api.CHUNKS) == 1


def test_a_long_message_at_the_end_is_the_last_sequence(store: Store) -> None:
    put(store, 1, [record(1), record(2, size=100 * KIB)])
    with store.view() as view:
        assert first_sequence(view, Q, P) == 1
        assert last_sequence(view, Q, P) == 2
    assert sequences(store, 3) == []


def test_a_missing_piece_is_told(store: Store) -> None:
    put(store, 1, [record(1, size=100 * KIB)])
    batch = Batch()
    batch.delete(api.CHUNKS, queue_tables.chunk_key(Q, P, 1, 1))
    store.commit(batch)
    with store.view() as view, pytest.raises(StorageError, match="piece 1 of queue chunk"):
        read_chunk_at(view, Q, P, 1)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
@given(
    chunks=st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.integers(0, 2), min_size=1, max_size=4)),
        max_size=8,
    ),
    ts_ms=st.integers(0, 40),
)
def test_the_first_sequence_at_a_time_is_found(
    store: Store, chunks: list[tuple[int, list[int]]], ts_ms: int
) -> None:
    trim(store, 1000)
    times: dict[int, int] = {}
    seq, now = 1, 0
    for gap, steps in chunks:
        seq += gap
        records: list[Record] = []
        for step in steps:
            now += step
            times[seq + len(records)] = now
            records.append(record(1, ts_ms=now))
        put(store, seq, records)
        seq += len(records)
    with store.view() as view:
        found = first_at_time(view, Q, P, ts_ms)
    later = [one for one, at in times.items() if at >= ts_ms]
    assert found == (min(later) if later else max(times, default=0) + 1)


def test_delayed_messages_come_in_the_order_in_which_they_are_due(store: Store) -> None:
    batch = Batch()
    for due_ms, number, size in ((300, 1, 10), (100, 2, 100 * KIB), (200, 4, 10), (200, 3, 10)):
        put_delayed(batch, Q, Delayed(due_ms, number, number, record(number, size=size)))
    put_delayed(batch, Q + 1, Delayed(50, 9, 0, record(9)))
    store.commit(batch)
    with store.view() as view:
        assert next_due_ms(view, Q) == 100
        assert next_due_ms(view, Q + 2) == 0
        assert [one.number for one in read_delayed(view, Q, 99, 10)] == []
        assert [one.number for one in read_delayed(view, Q, 200, 2)] == [2, 3]
        found = read_delayed(view, Q, 299, 10)
    assert [(one.due_ms, one.number, one.partition) for one in found] == [
        (100, 2, 2),
        (200, 3, 3),
        (200, 4, 4),
    ]
    assert fields(found[0].record) == fields(record(2, size=100 * KIB))
    batch = Batch()
    for one in found:
        delete_delayed(batch, Q, one)
    store.commit(batch)
    with store.view() as view:
        assert [one.number for one in read_delayed(view, Q, 1000, 10)] == [1]
    assert count(store, api.DELAYED) == 2


def test_scan_prefix_gives_the_rows_of_one_group(store: Store) -> None:
    batch = Batch()
    for group in (1, 2, 3):
        for part in (0, 0xFFFF):
            state = queue_tables.lane_state(group, part)
            batch.put(api.LANES, queue_tables.lane_key(Q, group, part), state)
    store.commit(batch)
    with store.view() as view:
        rows = list(scan_prefix(view, api.LANES, queue_tables.group_key(Q, 2)))
    assert [queue_tables.read_lane_state(value) for _, value in rows] == [(2, 0), (2, 0xFFFF)]


def test_small_states_survive() -> None:
    assert queue_tables.read_partition_state(queue_tables.partition_state(1, 2, 3)) == (1, 2, 3)
    assert queue_tables.read_tally(queue_tables.tally(1, 2, 3)) == (1, 2, 3)
    assert queue_tables.read_hashes(b"a" * 16 + b"b" * 16) == [b"a" * 16, b"b" * 16]
