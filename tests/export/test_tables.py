"""Ranges and shards of a store which was written beforehand: events, minutes, stages, losses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from queuelake.control import ExportStart
from queuelake.control_pipeline import QueueFlags
from queuelake.engine.events import Events
from queuelake.errors import DataLostError, NotFoundError
from queuelake.export import logs, messages, records, shards
from queuelake.export.ranges import read_range
from queuelake.export.schemas import schema_of
from queuelake.export.server import FlightServer
from queuelake.export.shards import find_shards
from queuelake.export.stores import Stores
from queuelake.flight import PayloadSchema, Range, Shard, ShardsAsked, encode, parse_error
from queuelake.storage import ecq_tables, log_tables, queue_records, stage_tables
from queuelake.storage import pipeline_tables as t
from queuelake.storage.api import (
    ARCHIVED,
    CHUNKS,
    ECQ_LOG,
    ECQ_PAYLOAD,
    META,
    QUEUES,
    STAGED,
    STATS,
    Batch,
)
from queuelake.storage.archive_tables import Archived, archived_key, archived_value
from queuelake.storage.chunk import Record, encode_chunk
from queuelake.storage.lmdb_store import LmdbStore
from queuelake.storage.queue_tables import chunk_key, put_chunk, queue_key
from queuelake.storage.reader import StoreReader
from queuelake.tables import FAILURES, STEPS, Table
from tests.contract.chunks import record

QUEUE = 7
NAME = "$queue/q"

Write = Callable[[Batch], object]
Open = Callable[[Write], StoreReader]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """A reader of a store with a queue and what the function puts."""
    readers: list[StoreReader] = []

    def make(write: Write) -> StoreReader:
        store = LmdbStore(tmp_path)
        batch = Batch()
        put_queue(batch, QUEUE, "q")
        write(batch)
        store.commit(batch)
        store.close()
        readers.append(StoreReader(tmp_path))
        return readers[-1]

    yield make
    for reader in readers:
        reader.close()


def put_queue(batch: Batch, number: int, name: str, partitions: int = 1) -> None:
    known = queue_records.QueueRecord(name, queue_records.DURABLE, 0, partitions=partitions)
    batch.put(QUEUES, queue_key(number), queue_records.encode(known))


def rows(
    reader: StoreReader, table: Table, after: int, upto: int, **fields: Any
) -> list[dict[str, Any]]:
    wanted = Range(table, f"{reader.id}-{QUEUE}", 0, after, upto, **fields)
    schema, batches = read_range(reader, wanted)
    assert schema == schema_of(table, wanted.columns)
    found: pa.Table = pa.Table.from_batches(list(batches), schema)
    found.validate(full=True)
    return list(found.to_pylist())


def all_shards(reader: StoreReader, table: Table = "messages", **fields: Any) -> list[Shard]:
    asked = ShardsAsked(table, **{"queue": "$queue/*", **fields})
    return [one for part in find_shards(reader, {}, asked) for one in part]


def time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


# Events


def random_events(count: int) -> Events:
    dice = random.Random(count)
    events = Events()
    for n in range(count):
        events.add(
            dice.randrange(len(STEPS)),
            1_700_000_000_000 + 10 * n,
            dice.randrange(1000),
            dice.randrange(1 << 40),
            dice.choice(["", "g1", "g2"]),
            dice.choice(["", f"consumer {n}", "ü"]),
            dice.randrange(5),
            dice.choice(["", "because " + "x" * dice.randrange(100)]),
        )
    return events


def event_rows(reader: StoreReader, after: int, upto: int) -> list[dict[str, Any]]:
    """The same from the reader which goes row by row."""
    with reader.view() as view:
        values = list(t.read_events(view, QUEUE, after, upto))
    return [
        {
            "queue": NAME,
            "queue_id": f"{reader.id}-{QUEUE}",
            "seqno": one.seqno,
            "event": one.step,
            "partition": one.partition,
            "message_seqno": one.message_seqno,
            "group": one.group or None,
            "consumer": one.consumer or None,
            "attempt": one.attempt,
            "reason": one.reason or None,
            "ts": time(one.ts_ms),
        }
        for value in values
        for one in t.decode_events(value)
        if after < one.seqno <= upto
    ]


@pytest.mark.rule("P2")
@pytest.mark.parametrize("batch_bytes", [1, 100_000_000])
def test_events_are_what_was_written(
    opened: Open, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    monkeypatch.setattr(records, "BATCH_BYTES", batch_bytes)
    reader = opened(lambda batch: t.put_events(batch, QUEUE, 1, random_events(3000)))
    (shard,) = all_shards(reader, "events")
    assert (shard.queue, shard.after, shard.upto) == (NAME, 0, 3000)
    for after, upto in ((0, 3000), (17, 2444), (999, 1001), (2999, 3000), (5, 5)):
        found = rows(reader, "events", after, upto)
        assert found == event_rows(reader, after, upto)
        assert len(found) == upto - after
    assert {row["event"] for row in found} <= set(STEPS)
    lean = rows(reader, "events", 0, 10, columns=["event", "seqno"])
    assert list(lean[0]) == ["event", "seqno"]


def test_events_of_a_deleted_queue_keep_its_name(opened: Open) -> None:
    def write(batch: Batch) -> None:
        t.put_events(batch, QUEUE, 1, random_events(3))
        batch.delete(QUEUES, queue_key(QUEUE))
        t.put_deleted(batch, QUEUE, queue_records.QueueRecord("q", queue_records.DURABLE, 0))

    reader = opened(write)
    (shard,) = all_shards(reader, "events")
    assert shard.queue == NAME
    assert [row["queue"] for row in rows(reader, "events", 0, 3)] == [NAME] * 3
    assert all_shards(reader) == []


def test_events_by_time(opened: Open) -> None:
    reader = opened(lambda batch: t.put_events(batch, QUEUE, 1, random_events(3000)))
    for ts_ms, after in (
        (1, 0),
        (1_700_000_000_000, 0),
        (1_700_000_000_001, 1),
        (1_700_000_012_345, 1235),
        (1_800_000_000_000, 3000),
    ):
        (shard,) = all_shards(reader, "events", ts_ms=ts_ms)
        assert (shard.after, shard.upto) == (after, 3000), ts_ms


# Minutes


def put_minutes(batch: Batch, count: int) -> None:
    for n in range(1, count + 1):
        counts = tuple(n * 10 + step for step in range(len(STEPS)))
        minute = t.Minute(n, 60_000 * n, counts, n, 1 << 40, 0.5 * n, 1.5, 2.25)
        batch.put(STATS, t.record_key(QUEUE, n), minute.encode())


@pytest.mark.rule("P2")
def test_minutes_are_what_was_written(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "BATCH_MINUTES", 3)
    reader = opened(lambda batch: put_minutes(batch, 10))
    (shard,) = all_shards(reader, "stats")
    assert (shard.after, shard.upto) == (0, 10)
    found = rows(reader, "stats", 2, 9)
    assert [row["seqno"] for row in found] == list(range(3, 10))
    steps = {step: 30 + n for n, step in enumerate(STEPS)}
    assert found[0] == {
        "queue": NAME,
        "queue_id": f"{reader.id}-{QUEUE}",
        "seqno": 3,
        "ts": time(180_000),
        **steps,
        "depth": 3,
        "bytes": 1 << 40,
        "latency_p50_ms": 1.5,
        "latency_p99_ms": 1.5,
        "latency_max_ms": 2.25,
    }
    (shard,) = all_shards(reader, "stats", ts_ms=240_000)
    assert shard.after == 3
    assert set(FAILURES) < set(found[0])


# Messages which were staged


def test_staged_chunks_are_read_through_their_pointers(opened: Open) -> None:
    staged = [record(n, size=50_000 if n == 2 else 10, ts_ms=0) for n in range(4)]

    def write(batch: Batch) -> None:
        put_chunk(batch, QUEUE, 0, 1, [record(0, ts_ms=500)])
        first = 2
        for number, part in enumerate((staged[:2], staged[2:3], staged[3:])):
            chunk = encode_chunk(0, part)
            for key, value in stage_tables.staged_rows(9, number, chunk):
                batch.put(STAGED, key, value)
            pointer = stage_tables.Pointer(first, len(part), 9, number, 1000, len(chunk))
            batch.put(CHUNKS, chunk_key(QUEUE, 0, first), pointer.encode())
            first += len(part)
        put_chunk(batch, QUEUE, 0, first, [record(9, ts_ms=2000)])

    reader = opened(write)
    (shard,) = all_shards(reader)
    assert (shard.after, shard.upto) == (0, 6)
    found = rows(reader, "messages", 0, 6)
    expected = [record(0), *staged, record(9)]
    assert [row["payload"] for row in found] == [one.payload for one in expected]
    assert [row["ts"] for row in found] == [time(ms) for ms in (500, *[1000] * 4, 2000)]
    assert [row["seqno"] for row in rows(reader, "messages", 2, 5)] == [3, 4, 5]


def test_what_is_stored_once_for_many_rows_counts_for_each(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million rows with the same long topic are little in the store, and much in a batch."""
    monkeypatch.setattr(messages, "BATCH_BYTES", 1_000_000)
    part = [Record(b"t" * 5000, b"", b"", b"", b"", b"", 1, 4, 5, 0) for _ in range(300)]

    def write(batch: Batch) -> None:
        for n in range(20):
            put_chunk(batch, QUEUE, 0, 1 + 300 * n, part)

    reader = opened(write)
    wanted = Range("messages", f"{reader.id}-{QUEUE}", 0, 0, 6000)
    sizes = [(batch.num_rows, batch.nbytes) for batch in read_range(reader, wanted)[1]]
    assert sum(rows for rows, _ in sizes) == 6000
    assert max(size for _, size in sizes) < 4_000_000


# What was lost


def put_lost(batch: Batch) -> None:
    put_chunk(batch, QUEUE, 0, 21, [record(n) for n in range(10)])
    archived = Archived(15, "", [(3, 5), (15, 20)])
    batch.put(ARCHIVED, archived_key("messages", QUEUE, 0), archived_value(archived))


@pytest.mark.rule("P3")
def test_what_was_promised_and_dropped_is_an_error_which_names_it(opened: Open) -> None:
    reader = opened(put_lost)
    (shard,) = all_shards(reader)
    assert (shard.after, shard.upto, shard.archived) == (20, 30, 15)
    assert shard.lost == [(3, 5), (15, 20)]
    for after, upto, lost in ((0, 30, (3, 5)), (5, 30, (15, 20)), (18, 19, (15, 20))):
        with pytest.raises(DataLostError) as caught:
            rows(reader, "messages", after, upto)
        words = f"queue '$queue/q', shard 0: ({lost[0]}, {lost[1]}] was dropped"
        assert words in str(caught.value)
    assert [row["seqno"] for row in rows(reader, "messages", 20, 30)] == list(range(21, 31))
    assert rows(reader, "messages", 5, 15) == []
    assert len(rows(reader, "messages", 0, 30, fail_on_loss=False)) == 10


def test_a_loss_is_an_error_of_the_call(opened: Open, tmp_path: Path) -> None:
    reader = opened(put_lost)
    (tmp_path / "api-key").write_text("k:s\n")
    server = FlightServer(ExportStart(str(tmp_path), "127.0.0.1", 0), Stores(tmp_path, [reader]))
    options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer k:s")])
    wanted = Range("messages", f"{reader.id}-{QUEUE}", 0, 0, 30)
    with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
        with pytest.raises(flight.FlightServerError) as caught:
            client.do_get(flight.Ticket(encode(wanted)), options).read_all()
        code, words = parse_error(str(caught.value))
        assert code == "DATA_LOST"
        assert words.startswith("messages of queue '$queue/q', shard 0: (3, 5] was dropped")
    server.shutdown()


# Mailboxes and fan-out


def test_windows_of_a_log_in_which_everything_is_gone_are_passed(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "BATCH_SEQUENCES", 2)
    owner = ecq_tables.digest(b"car")
    shard = log_tables.shard_of(owner)

    def write(batch: Batch) -> None:
        ecq_tables.put_seqno(batch, owner, 100, 1, b"car")
        keys = []
        for n in range(1, 12):
            one = Record(b"", b"k%d" % n, b"", b"", b"", b"p%d" % n, 1, 0, 1000 + n, 0, n)
            key = ecq_tables.put_entry(batch, owner + ecq_tables.digest(one.key), one)
            keys.append(key)
            if 3 < n < 10:
                batch.delete(ECQ_PAYLOAD, key)
        log_tables.put_rows(batch, ECQ_LOG, shard, 5, keys)
        state = log_tables.LogState()
        state.next[shard] = 16
        batch.put(META, log_tables.META_KEYS[ECQ_LOG], state.encode())

    reader = opened(write)
    asked = ShardsAsked(queue="$ECQ", ts_ms=1010)
    (found,) = find_shards(reader, {}, asked)
    assert (found[shard].after, found[shard].upto) == (13, 15)
    wanted = Range("messages", found[shard].queue_id, shard, 0, 15)
    batches = list(read_range(reader, wanted)[1])
    table = pa.Table.from_batches(batches)
    assert table["seqno"].to_pylist() == [5, 6, 7, 14, 15]
    assert table["payload"].to_pylist() == [b"p1", b"p2", b"p3", b"p10", b"p11"]
    assert all(batch.num_rows for batch in batches)


# Shards


def test_many_queues_are_found_some_at_a_time(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SHARDS_PER_VIEW_MAX", 3)

    def write(batch: Batch) -> None:
        for number in range(10, 20):
            put_queue(batch, number, f"n/{number}", partitions=2)

    reader = opened(write)
    asked = ShardsAsked(queue="*")
    parts = list(find_shards(reader, {}, asked))
    found = [(one.queue, one.shard) for part in parts for one in part]
    assert len(parts) > 4
    expected = [(NAME, 0)]
    expected += [(f"$queue/n/{number}", shard) for number in range(10, 20) for shard in (0, 1)]
    expected += [(name, shard) for name in ("$ECQ", "$SDV-FANOUT") for shard in range(16)]
    assert found == expected


def test_shards_say_what_the_settings_say(opened: Open) -> None:
    reader = opened(lambda batch: None)
    schema = PayloadSchema("json", "a int")
    flags = {QUEUE: QueueFlags(QUEUE, True, schema)}
    (found,) = find_shards(reader, flags, ShardsAsked(queue="q"))
    assert (found[0].archive, found[0].schema) == (True, schema)


def test_an_id_of_another_store_is_refused(opened: Open) -> None:
    reader = opened(lambda batch: None)
    for wrong in ("", "7", "x-7", f"{reader.id}-", f"{reader.id}--7", f"{reader.id}-{1 << 64}"):
        with pytest.raises(NotFoundError):
            read_range(reader, Range("messages", wrong, 0, 0, 1))
    assert len(reader.id) == 16
