"""Queues in the store: chunks are found by sequence and by time, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queuelake.errors import StorageError
from queuelake.settings import Storage
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
from queuelake.storage.lmdb_store import LmdbStore
from queuelake.storage.memory import MemoryStore
from queuelake.storage.queue_tables import (
    PIECE_BYTES,
    doomed_queues,
    first_at_time,
    first_sequence,
    last_sequence,
    put_chunk,
    read_chunk_at,
    scan_prefix,
)
from tests.contract.chunks import fields, record
from tests.contract.rows import count

Q, P = 5, 3
KIB = 1024


def put(store: Store, first: int, records: list[Record], queue_id: int = Q, part: int = P) -> None:
    batch = Batch()
    put_chunk(batch, queue_id, part, first, records)
    store.commit(batch)


def sequences(store: Store, seq: int) -> list[int]:
    with store.view() as view:
        return [one.seq for one in read_chunk_at(view, Q, P, seq)]


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


def test_trimming_leaves_chunks_of_which_something_is_needed(store: Store) -> None:
    put(store, 1, [record(n) for n in (1, 2, 3)])
    put(store, 4, [record(n) for n in (4, 5, 6)])
    put(store, 10, [record(10)])
    for upto, left in ((0, [1, 4, 10]), (2, [1, 4, 10]), (3, [4, 10]), (5, [4, 10])):
        trim(store, upto)
        assert firsts(store) == left
    trim(store, 8)
    assert firsts(store) == [10]
    trim(store, 10)
    assert firsts(store) == []


def test_trimming_everything_takes_the_last_chunk_too(store: Store) -> None:
    put(store, 1, [record(1)])
    put(store, 2, [record(2), record(3)])
    trim(store, 3)
    assert firsts(store) == []


def test_a_trim_does_no_more_than_its_share_in_one_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not queue_tables.__file__.endswith(".py"):
        pytest.skip("a compiled constant cannot be replaced")
    monkeypatch.setattr(queue_tables, "TRIM_CHUNKS_MAX", 3)
    for seq in range(1, 9):
        put(store, seq, [record(seq)])
    left = []
    for _ in range(4):
        trim(store, 8)
        left.append(len(firsts(store)))
    assert left == [5, 2, 0, 0]


def test_what_a_batch_puts_it_may_trim(store: Store) -> None:
    batch = Batch()
    put_chunk(batch, Q, P, 1, [record(1)])
    put_chunk(batch, Q, P, 2, [record(2)])
    batch.trim_chunks(Q, P, 1)
    store.commit(batch)
    store.commit(batch)
    assert firsts(store) == [2]


def test_a_chunk_can_be_deleted_and_written_anew_in_one_commit(store: Store) -> None:
    put(store, 1, [record(1, size=100 * KIB)])
    put(store, 2, [record(2)])
    batch = Batch()
    batch.delete_chunk(Q, P, 1)
    assert not batch.is_empty()
    put_chunk(batch, Q, P, 1, [record(7)])
    store.commit(batch)
    assert [one.payload[:2] for one in everything(store)] == [b"7:", b"2:"]
    assert count(store, api.CHUNKS) == 2


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


def fill_every_table(store: Store, queue_id: int) -> None:
    batch = Batch()
    batch.put(api.QUEUES, queue_tables.queue_key(queue_id), b"name")
    for n in range(3):
        put_chunk(batch, queue_id, n, 1, [record(n, size=40 * KIB)])
        put_delayed(batch, queue_id, Delayed(100, n, 0, record(n)))
        batch.put(api.PARTITIONS, queue_tables.partition_key(queue_id, n), b"x")
        batch.put(api.GROUPS, queue_tables.group_key(queue_id, n), b"x")
        batch.put(api.LANES, queue_tables.lane_key(queue_id, 1, n), b"x")
        batch.put(api.SETTLED, queue_tables.settled_key(queue_id, 1, n, 1), b"x")
        batch.put(api.TALLIES, queue_tables.tally_key(queue_id, 1, n, 1), b"x")
        batch.put(api.DEDUPE, queue_tables.dedupe_key(queue_id, 1, n), b"x")
    store.commit(batch)


def queue_rows(store: Store, queue_id: int) -> int:
    prefix = queue_tables.queue_key(queue_id)
    with store.view() as view:
        return sum(len(list(scan_prefix(view, table, prefix))) for table in range(api.QUEUES, 19))


def sweep(store: Store, rows: int) -> None:
    batch = Batch()
    batch.sweep(rows)
    store.commit(batch)


def test_a_dropped_queue_goes_in_slices_and_its_neighbours_stay(store: Store) -> None:
    for queue_id in (Q - 1, Q, Q + 1):
        fill_every_table(store, queue_id)
    whole = queue_rows(store, Q)
    batch = Batch()
    batch.drop_queue(Q)
    store.commit(batch)
    with store.view() as view:
        assert view.get(api.QUEUES, queue_tables.queue_key(Q)) is None, "its name goes at once"
        assert doomed_queues(view) == [Q]
    left = [queue_rows(store, Q)]
    while left[-1]:
        sweep(store, 4)
        left.append(queue_rows(store, Q))
        assert left[-2] - left[-1] <= 5, "a slice, and the mark when it was the last"
    with store.view() as view:
        assert doomed_queues(view) == []
    assert queue_rows(store, Q - 1) == queue_rows(store, Q + 1) == whole
    sweep(store, 4)


def test_several_dropped_queues_go_together(store: Store) -> None:
    batch = Batch()
    for queue_id in (1, 2, 300):
        fill_every_table(store, queue_id)
        batch.drop_queue(queue_id)
    batch.sweep(10_000)
    store.commit(batch)
    assert [count(store, table) for table in range(api.QUEUES, 19)] == [0] * 10


def test_a_dropped_queue_is_remembered_over_a_restart(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    fill_every_table(store, Q)
    batch = Batch()
    batch.drop_queue(Q)
    batch.sweep(1)
    store.commit(batch)
    store.close()
    store = LmdbStore(tmp_path)
    with store.view() as view:
        assert doomed_queues(view) == [Q]
    sweep(store, 1000)
    assert queue_rows(store, Q) == 0
    store.close()


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


def test_a_failed_commit_trims_and_deletes_nothing(store: Store) -> None:
    put(store, 1, [record(1)])
    put(store, 2, [record(2)])
    batch = Batch()
    batch.trim_chunks(Q, P, 1)
    batch.delete_chunk(Q, P, 2)
    batch.drop_queue(Q)
    batch.sweep(100)
    if isinstance(store, MemoryStore):
        store.fail_commits = 1
    else:
        batch.put(api.WILLS, b"k" * 600, b"no key may be this long")
    with pytest.raises(StorageError):
        store.commit(batch)
    assert firsts(store) == [1, 2]
    with store.view() as view:
        assert doomed_queues(view) == []


def test_a_full_store_refuses_messages_and_takes_what_deletes_them(tmp_path: Path) -> None:
    limit = 4 * KIB * KIB
    store = LmdbStore(tmp_path, Storage(map_size_bytes_initial=limit, map_size_bytes_max=limit))
    for number in range(limit // PIECE_BYTES):
        last = 1 + 30 * number
        try:
            put(store, last, [record(n, size=KIB) for n in range(30)])
        except StorageError as error:
            assert "map_size_bytes_max" in str(error)
            break
    assert number > 50, "most of it can be used"
    batch = Batch()
    put_delayed(batch, Q, Delayed(1, 1, 0, record(1, size=40 * KIB)))
    with pytest.raises(StorageError, match="map_size_bytes_max"):
        store.commit(batch)
    batch = Batch()
    batch.delete_chunk(Q, P, 1)
    batch.trim_chunks(Q, P, last // 2)
    delete_delayed(batch, Q, Delayed(1, 1, 0, record(1)))
    store.commit(batch)
    put(store, last, [record(n, size=KIB) for n in range(30)])
    store.close()
