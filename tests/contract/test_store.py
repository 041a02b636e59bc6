"""The contract of a store: commits are whole, the last change wins, tables are ordered."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queuelake.errors import StorageError
from queuelake.storage.api import META, RETAINED, SESSIONS, WILLS, Batch, Store
from queuelake.storage.memory import MemoryStore
from tests.contract.rows import Queues, message, payloads, row_counts

KEYS = st.binary(min_size=1, max_size=3)
shared_store = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)


def get(store: Store, table: int, key: bytes) -> bytes | None:
    with store.view() as view:
        return view.get(table, key)


def put(store: Store, table: int, rows: dict[bytes, bytes | None]) -> None:
    batch = Batch()
    for key, value in rows.items():
        if value is None:
            batch.delete(table, key)
        else:
            batch.put(table, key, value)
    store.commit(batch)


def break_commit(store: Store, batch: Batch) -> None:
    """Make the next commit of this batch fail, as late as possible."""
    if isinstance(store, MemoryStore):
        store.fail_commits = 1
    else:
        batch.put(WILLS, b"k" * 600, b"no key may be this long")


def test_a_committed_batch_is_there_in_every_table(store: Store) -> None:
    batch = Batch()
    batch.put(SESSIONS, b"a", b"1")
    batch.put(RETAINED, b"a", b"2")
    batch.put(META, b"a", b"")
    store.commit(batch)
    assert get(store, SESSIONS, b"a") == b"1"
    assert get(store, RETAINED, b"a") == b"2"
    assert get(store, META, b"a") == b""
    assert get(store, WILLS, b"a") is None


def test_the_last_change_of_a_key_wins(store: Store) -> None:
    batch = Batch()
    batch.put(SESSIONS, b"twice", b"old")
    batch.put(SESSIONS, b"twice", b"new")
    batch.put(SESSIONS, b"gone", b"x")
    batch.delete(SESSIONS, b"gone")
    batch.delete(SESSIONS, b"back")
    batch.put(SESSIONS, b"back", b"y")
    store.commit(batch)
    assert get(store, SESSIONS, b"twice") == b"new"
    assert get(store, SESSIONS, b"gone") is None
    assert get(store, SESSIONS, b"back") == b"y"


def test_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    put(store, SESSIONS, {b"never": None})
    assert get(store, SESSIONS, b"never") is None


def test_a_failed_commit_changes_nothing(store: Store) -> None:
    put(store, SESSIONS, {b"a": b"before", b"b": b"before"})
    queues = Queues(store)
    queues.store([message(1)], [7])
    before = row_counts(store)
    batch = Batch()
    batch.put(SESSIONS, b"a", b"after")
    batch.delete(SESSIONS, b"b")
    batch.trim(7, 1)
    Queues(store).add(batch, [message(2)], [8])
    break_commit(store, batch)
    with pytest.raises(StorageError):
        store.commit(batch)
    assert get(store, SESSIONS, b"a") == b"before"
    assert get(store, SESSIONS, b"b") == b"before"
    assert row_counts(store) == before
    assert payloads(store, 7) == [message(1).payload()]
    assert payloads(store, 8) == []


def test_several_batches_are_applied_in_order(store: Store) -> None:
    """Not as one merged batch: what the first puts, a trim of the second deletes, and so on."""
    queues = Queues(store)
    batches = [Batch(), Batch(), Batch()]
    queues.add(batches[0], [message(1), message(2)], [1])
    batches[1].trim(1, 2)
    batches[1].put(META, b"a", b"1")
    queues.add(batches[2], [message(3)], [1])
    batches[2].delete(META, b"a")
    store.commit_all(batches)
    assert row_counts(store) == (1, 0, 1)
    assert len(payloads(store, 1)) == 1
    assert get(store, META, b"a") is None


def test_several_batches_are_stored_all_or_none(store: Store) -> None:
    good, bad = Batch(), Batch()
    good.put(META, b"a", b"1")
    bad.put(META, b"b", b"1")
    break_commit(store, bad)
    with pytest.raises(StorageError):
        store.commit_all([good, bad])
    assert get(store, META, b"a") is None
    store.commit_all([good])
    assert get(store, META, b"a") == b"1"


def test_a_batch_can_be_committed_again_after_a_failure(store: Store) -> None:
    queues = Queues(store)
    queues.store([message(1)], [7])
    batch = Batch()
    queues.add(batch, [message(2), message(3)], [7])
    batch.trim(7, 1)
    break_commit(store, batch)
    with pytest.raises(StorageError):
        store.commit(batch)
    batch.tables[WILLS].clear()
    store.commit(batch)
    store.commit(batch)
    assert payloads(store, 7) == [message(2).payload(), message(3).payload()]
    assert row_counts(store) == (1, 0, 1)


@shared_store
@given(rows=st.dictionaries(KEYS, st.binary(max_size=4), max_size=20), start=KEYS, stop=KEYS)
def test_scan_gives_the_half_open_range_in_order(
    store: Store, rows: dict[bytes, bytes], start: bytes, stop: bytes
) -> None:
    _replace_all(store, rows)
    with store.view() as view:
        found = list(view.scan(RETAINED, start, stop))
    assert found == sorted((key, rows[key]) for key in rows if start <= key < stop)


@shared_store
@given(rows=st.dictionaries(KEYS, st.binary(max_size=4), max_size=20), key=KEYS)
def test_last_below_gives_the_greatest_key_up_to_and_with_the_one_asked_for(
    store: Store, rows: dict[bytes, bytes], key: bytes
) -> None:
    _replace_all(store, rows)
    with store.view() as view:
        found = view.last_below(RETAINED, key)
    below = [one for one in rows if one <= key]
    assert found == ((max(below), rows[max(below)]) if below else None)


def test_a_scan_from_the_empty_key_starts_at_the_first(store: Store) -> None:
    put(store, RETAINED, {b"\0": b"1", b"z" * 500: b"2"})
    with store.view() as view:
        assert [value for _, value in view.scan(RETAINED, b"", b"\xff" * 512)] == [b"1", b"2"]


def test_a_scan_which_is_left_early_harms_nobody(store: Store) -> None:
    put(store, RETAINED, {bytes([n]): b"x" for n in range(50)})
    with store.view() as view:
        for _ in view.scan(RETAINED, b"\0", b"\xff"):
            break
        assert view.get(RETAINED, b"\7") == b"x"
    put(store, RETAINED, {b"\7": None})
    assert get(store, RETAINED, b"\7") is None


def test_size_tells_what_is_in_use(store: Store) -> None:
    before, _ = store.size_bytes()
    put(store, RETAINED, {b"%d" % n: bytes(4000) for n in range(100)})
    used, _ = store.size_bytes()
    assert used >= before + 400_000


def _replace_all(store: Store, rows: dict[bytes, bytes]) -> None:
    with store.view() as view:
        old: dict[bytes, bytes | None] = {
            key: None for key, _ in view.scan(RETAINED, b"", b"\xff" * 512)
        }
    put(store, RETAINED, {**old, **rows})
