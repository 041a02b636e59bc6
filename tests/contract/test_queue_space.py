"""The space of queues is freed: trimmed, swept, and refused when there is no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queuelake.errors import StorageError
from queuelake.settings import Storage
from queuelake.storage import api, queue_space, queue_tables
from queuelake.storage.api import Batch, Store
from queuelake.storage.check import problems
from queuelake.storage.delayed import Delayed, delete_delayed, put_delayed
from queuelake.storage.lmdb_store import LmdbStore
from queuelake.storage.memory import MemoryStore
from queuelake.storage.queue_tables import PIECE_BYTES, doomed_queues, put_chunk, scan_prefix
from tests.contract.chunks import KIB, P, Q, everything, firsts, put, record, trim
from tests.contract.rows import count


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
    if not queue_space.__file__.endswith(".py"):
        pytest.skip("a compiled constant cannot be replaced")
    monkeypatch.setattr(queue_space, "TRIM_CHUNKS_MAX", 3)
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
@given(steps=st.lists(st.tuples(st.sampled_from("ppptcg"), st.integers(1, 40)), max_size=30))
def test_nothing_is_lost_by_any_puts_and_trims(store: Store, steps: list[tuple[str, int]]) -> None:
    trim(store, 1 << 40)
    stored: dict[int, bytes] = {}
    seq, low = 1, 0
    for step, number in steps:
        if step == "p":
            records = [record(seq + n, size=number * 90) for n in range(number)]
            stored.update({seq + n: one.payload for n, one in enumerate(records)})
            put(store, seq, records)
            seq += number
        elif step == "t":
            low = max(low, seq - number)
            trim(store, low)
        elif step == "c":
            with store.view() as view:
                assert [line for line in problems(view, 1000) if "no queue" not in line] == []
        else:
            seq += number
        found = {one.seq: one.payload for one in everything(store)}
        assert found.items() <= stored.items()
        assert {one for one in stored if one > low} <= set(found)


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
