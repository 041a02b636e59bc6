"""Events, minutes and logs in the store: what is put is what is read, in ranges."""

from __future__ import annotations

import pytest

from queuelake.engine import events as e
from queuelake.engine.events import Events
from queuelake.errors import StorageError
from queuelake.storage import api, ecq_tables, log_tables, sdv_tables
from queuelake.storage import pipeline_tables as t
from queuelake.storage.api import Batch, Store
from queuelake.storage.chunk import Record
from queuelake.storage.queue_records import QueueRecord

QUEUE = 7


def some_events(count: int, consumer: str = "worker") -> Events:
    events = Events()
    for n in range(count):
        events.add(e.NACKED + n % 6, 1000 + n, n % 3, n, "g", consumer, n % 5, f"why {n % 2}")
    return events


def put(store: Store, first: int, events: Events, queue: int = QUEUE) -> int:
    batch = Batch()
    size = t.put_events(batch, queue, first, events)
    store.commit(batch)
    return size


def read(store: Store, after: int, upto: int, queue: int = QUEUE) -> list[t.Event]:
    with store.view() as view:
        values = list(t.read_events(view, queue, after, upto))
    return [one for value in values for one in t.decode_events(value) if after < one.seqno <= upto]


def test_events_are_read_as_they_were_put(store: Store) -> None:
    put(store, 1, some_events(3))
    assert read(store, 0, 3) == [
        t.Event(1, "nacked", 0, 0, "g", "worker", 0, "why 0", 1000),
        t.Event(2, "rejected", 1, 1, "g", "worker", 1, "why 1", 1001),
        t.Event(3, "timed_out", 2, 2, "g", "worker", 2, "why 0", 1002),
    ]


def test_many_events_are_split_into_values_of_limited_size(store: Store) -> None:
    events = some_events(5000)
    for n in range(5000):
        events.consumers[n] = f"consumer-{n}-{'x' * 50}"
    size = put(store, 11, events)
    with store.view() as view:
        values = [value for _, value in view.scan(api.EVENTS, b"", b"\xff" * 17)]
    assert max(map(len, values)) <= t.VALUE_BYTES_MAX
    assert size == sum(map(len, values)) + len(values) * t.KEY_BYTES
    assert [one.seqno for one in read(store, 10, 5010)] == list(range(11, 5011))
    assert [one.seqno for one in read(store, 700, 2300)] == list(range(701, 2301))


def test_the_same_step_of_many_messages_is_a_range_and_reads_like_one_by_one(store: Store) -> None:
    came, later = Events(), Events()
    came.add(e.NACKED, 1, 0, 1, "g")
    came.add_range(e.ENQUEUED, 2, 3, 10, 2509)
    later.add(e.NACKED, 3, 0, 2, "g")
    later.add_range(e.DROPPED, 4, 3, 11, 1010, "purged")
    later.add_range(e.DROPPED, 4, 3, 2000, 2001, "purged")
    came.extend(later)
    assert len(came.steps) == 4, "a million messages must not be a million rows in memory"
    assert len(came) == 1 + 2500 + 1 + 1000 + 2
    put(store, 5, came)
    found = read(store, 4, 10_000)
    assert [one.seqno for one in found] == list(range(5, 5 + len(came)))
    expected = [("nacked", 1, 0, "g", "", 1)]
    expected += [("enqueued", seq, 3, "", "", 2) for seq in range(10, 2510)]
    expected += [("nacked", 2, 0, "g", "", 3)]
    expected += [("dropped", seq, 3, "", "purged", 4) for seq in [*range(11, 1011), 2000, 2001]]
    assert expected == [
        (one.step, one.message_seqno, one.partition, one.group, one.reason, one.ts_ms)
        for one in found
    ]
    with store.view() as view:
        values = [value for _, value in view.scan(api.EVENTS, b"", b"\xff" * 17)]
    assert max(map(len, values)) <= t.VALUE_BYTES_MAX


def test_one_event_may_be_longer_than_a_value(store: Store) -> None:
    put(store, 1, some_events(2, consumer="c" * 60_000))
    assert [len(one.consumer) for one in read(store, 0, 2)] == [60_000, 60_000]


def test_events_of_queues_do_not_mix_and_ranges_tell_where_they_end(store: Store) -> None:
    put(store, 5, some_events(2), 6)
    put(store, 1, some_events(4), 7)
    put(store, 5, some_events(3), 7)
    with store.view() as view:
        assert t.record_range(view, api.EVENTS, 6) == (4, 6)
        assert t.record_range(view, api.EVENTS, 7) == (0, 7)
        assert t.record_range(view, api.EVENTS, 8) == (0, 0)
        assert list(t.recorded_queues(view, api.EVENTS)) == [6, 7]
    assert [one.seqno for one in read(store, 0, 100, 6)] == [5, 6]


def test_a_row_without_events_tells_what_comes_next(store: Store) -> None:
    batch = Batch()
    batch.put(api.EVENTS, t.record_key(QUEUE, 9), t.no_events(10))
    store.commit(batch)
    with store.view() as view:
        assert t.record_range(view, api.EVENTS, QUEUE) == (8, 9)
    assert read(store, 0, 9) == []


def test_a_deleted_queue_keeps_its_name(store: Store) -> None:
    batch = Batch()
    t.put_deleted(batch, QUEUE, QueueRecord("a/b", "durable", 3))
    store.commit(batch)
    put(store, 1, some_events(1))
    with store.view() as view:
        found = t.read_deleted(view, QUEUE)
        assert t.record_range(view, api.EVENTS, QUEUE) == (0, 1)
    assert found is not None
    assert found.name == "a/b"
    assert len(read(store, 0, 1)) == 1


def test_broken_events_are_refused() -> None:
    with pytest.raises(StorageError):
        t.EventsLayout(b"short")
    with pytest.raises(StorageError):
        t.EventsLayout(t.no_events(1) + b"more")


def test_minutes_are_read_as_they_were_put(store: Store) -> None:
    batch = Batch()
    minutes = [t.Minute(n, 60_000 * n, (n,) * 9, 4, 5, 1.5, 2.5, 3.5) for n in (1, 2, 3)]
    for one in minutes:
        batch.put(api.STATS, t.record_key(QUEUE, one.seqno), one.encode())
    store.commit(batch)
    with store.view() as view:
        found = [t.decode_minute(*row) for row in t.read_minutes(view, QUEUE, 1, 3)]
        assert t.record_range(view, api.STATS, QUEUE) == (0, 3)
    assert found == minutes[1:]


def entry_keys(count: int, shard: int) -> list[bytes]:
    return [bytes((shard, 0)) + n.to_bytes(46, "big") for n in range(count)]


def test_a_log_is_read_in_ranges_dense_or_sparse(store: Store) -> None:
    keys = entry_keys(2000, 3)
    batch = Batch()
    log_tables.put_rows(batch, api.ECQ_LOG, 3, 1, keys[:1500])
    batch.put(
        api.ECQ_LOG,
        log_tables.log_key(3, 1501),
        log_tables.sparse_row([(1503, keys[1502]), (1700, keys[1699])], 1501),
    )
    log_tables.put_rows(batch, api.ECQ_LOG, 4, 1, entry_keys(3, 4))
    state = log_tables.LogState()
    state.next[3] = 2001
    batch.put(api.META, log_tables.META_KEYS[api.ECQ_LOG], state.encode())
    store.commit(batch)
    with store.view() as view:
        assert log_tables.log_range(view, api.ECQ_LOG, 3) == (0, 2000)
        for after, upto in ((0, 2000), (681, 682), (682, 683), (700, 1503), (1503, 1699)):
            expected = [n for n in range(after + 1, upto + 1) if n <= 1500 or n in (1503, 1700)]
            found = list(log_tables.read_log(view, api.ECQ_LOG, 3, after, upto))
            assert found == [(n, keys[n - 1]) for n in expected]
    with store.view() as view:
        sizes = [len(value) for _, value in view.scan(api.ECQ_LOG, b"", b"\xff")]
    assert max(sizes) <= log_tables.ROW_BYTES_MAX


def test_a_mailbox_entry_which_is_gone_is_not_read(store: Store) -> None:
    owner = ecq_tables.digest(b"car")
    shard = log_tables.shard_of(owner)
    keys: list[bytes] = []
    for seq, name in ((1, b"a"), (2, b"b"), (3, b"a")):
        batch = Batch()
        record = Record(b"", name, b"", b"", b"", b"value %d" % seq, 1, 0, 100 + seq, 0, seq)
        keys.append(ecq_tables.put_entry(batch, owner + ecq_tables.digest(name), record))
        ecq_tables.put_seqno(batch, owner, seq + 1, 0, b"car")
        log_tables.put_rows(batch, api.ECQ_LOG, shard, seq, keys[-1:])
        store.commit(batch)
    with store.view() as view:
        found = list(log_tables.read_mailboxes(view, shard, 0, 3))
    assert found == [
        log_tables.MailboxEntry(2, b"car", b"b", b"", b"value 2", 102, 0),
        log_tables.MailboxEntry(3, b"car", b"a", b"", b"value 3", 103, 0),
    ]


def test_rows_of_a_trigger_under_way_are_not_within_reach(store: Store) -> None:
    vehicle, request = sdv_tables.digest("vin"), sdv_tables.digest("r")
    shard = log_tables.shard_of(vehicle)
    state = log_tables.LogState()
    batch = Batch()
    for seq, ts_ms in ((1, 10), (2, 20)):
        key = sdv_tables.row_key(vehicle, ts_ms, request)
        batch.put(api.SDV_IDS, key, sdv_tables.row_value_head("r", "d") + b"vin")
        log_tables.put_rows(batch, api.SDV_LOG, shard, seq, [key])
        if ts_ms == 20:
            batch.put(api.SDV_TRIGGERS, sdv_tables.time_key(ts_ms), log_tables.open_trigger(state))
        state.next[shard] = seq + 1
    batch.put(api.META, log_tables.META_KEYS[api.SDV_LOG], state.encode())
    store.commit(batch)

    def seen() -> tuple[int, list[int]]:
        with store.view() as view:
            upto = log_tables.log_range(view, api.SDV_LOG, shard)[1]
            rows = log_tables.read_fanout(view, shard, 0, upto)
            return upto, [one.row.ts_ms for one in rows]

    assert seen() == (1, [10])
    given_up = Batch()
    given_up.put(api.SDV_TRIGGERS, sdv_tables.time_key(20), b"")
    store.commit(given_up)
    assert seen() == (2, [10])
    complete = Batch()
    complete.delete(api.SDV_TRIGGERS, sdv_tables.time_key(20))
    store.commit(complete)
    assert seen() == (2, [10, 20])
