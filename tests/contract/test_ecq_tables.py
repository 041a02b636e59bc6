"""Rows of mailboxes, on every store: one entry for a key, in both tables or in none."""

from __future__ import annotations

from queuelake.storage import api
from queuelake.storage import ecq_tables as t
from queuelake.storage.api import Batch, Store
from queuelake.storage.check import problems
from queuelake.storage.chunk import Record

OWNER = t.digest(b"o")


def put(batch: Batch, seq: int, key: bytes, payload: bytes = b"", owner: bytes = b"o") -> None:
    record = Record(b"", key, b"", b"", b"\x01\x01", payload, 1, 0, 1000 + seq, 0, seq)
    t.put_entry(batch, t.digest(owner) + t.digest(key), record)
    t.put_seqno(batch, t.digest(owner), seq + 1, 1000 + seq, owner)


def entries(store: Store, owner: bytes = b"o") -> list[tuple[int, bytes, bytes]]:
    found = []
    with store.view() as view:
        # Nothing is logged here.
        assert [one for one in problems(view, 1000) if "ecq_log" not in one] == []
        for row in t.read_index(view, t.digest(owner), 0, 1000):
            record = t.read_entry(view, t.digest(owner), row)
            assert record is not None
            assert (record.seq, record.key, record.ts_ms) == (row.seq, row.key, 1000 + row.seq)
            assert record.properties == b"\x01\x01"
            found.append((row.seq, row.key, record.payload))
    return found


def test_a_newer_entry_of_a_key_takes_the_place_of_the_older(store: Store) -> None:
    first = Batch()
    for seq, key in enumerate([b"a", b"b", b"c", b"d" * 60_000], 1):
        put(first, seq, key, b"%d" % seq)
    put(first, 1, b"a", b"other", b"p")
    store.commit(first)
    second = Batch()
    put(second, 5, b"a", b"5")
    put(second, 6, b"d" * 60_000, b"6")
    store.commit(second)
    assert second.replaced == 2
    assert entries(store) == [
        (2, b"b", b"2"),
        (3, b"c", b"3"),
        (5, b"a", b"5"),
        (6, b"d" * 60_000, b"6"),
    ]
    assert entries(store, b"p") == [(1, b"a", b"other")]


def test_a_batch_can_be_applied_again(store: Store) -> None:
    batch = Batch()
    put(batch, 1, b"a", b"1")
    for _ in range(2):
        store.commit(batch)
    assert entries(store) == [(1, b"a", b"1")]


def test_an_entry_can_be_deleted_while_its_key_is_written_anew(store: Store) -> None:
    first = Batch()
    put(first, 1, b"a", b"1")
    store.commit(first)
    second = Batch()
    t.delete_entry(second, OWNER, t.IndexRow(1, 1001, 0, 0, b"a"))
    put(second, 2, b"a", b"2")
    store.commit(second)
    assert entries(store) == [(2, b"a", b"2")]
    with store.view() as view:
        assert view.count(api.ECQ_INDEX) == view.count(api.ECQ_PAYLOAD) == 1


def test_the_doctor_finds_entries_which_are_in_one_table_only(store: Store) -> None:
    batch = Batch()
    put(batch, 1, b"a")
    put(batch, 2, b"b")
    store.commit(batch)
    broken = Batch()
    broken.delete(api.ECQ_INDEX, t.index_key(OWNER, 1))
    broken.delete(api.ECQ_PAYLOAD, t.payload_key(OWNER, t.IndexRow(2, 1002, 0, 0, b"b")))
    t.put_seqno(broken, OWNER, 2, 0, b"o")
    store.commit(broken)
    with store.view() as view:
        found = " ".join(problems(view, 1000))
    assert "has no payload" in found
    assert "is not in the index" in found
    assert "above the sequence of its owner" in found
