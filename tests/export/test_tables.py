"""Ranges and shards of a store which was written beforehand: events, minutes, stages, losses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from queuelake.control_pipeline import QueueFlags
from queuelake.engine.events import Events
from queuelake.errors import DataLostError, NotFoundError
from queuelake.export import records, shards
from queuelake.export.ranges import read_range
from queuelake.export.schemas import schema_of
from queuelake.export.shards import find_shards
from queuelake.flight import PayloadSchema, Range, Shard, ShardsAsked
from queuelake.storage import pipeline_tables as t
from queuelake.storage import queue_records, stage_tables
from queuelake.storage.api import ARCHIVED, CHUNKS, QUEUES, STAGED, STATS, Batch
from queuelake.storage.archive_tables import Archived, archived_key, archived_value
from queuelake.storage.chunk import encode_chunk
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


# What was lost


def put_lost(batch: Batch) -> None:
    put_chunk(batch, QUEUE, 0, 21, [record(n) for n in range(10)])
    archived = Archived(15, "", [(3, 5), (15, 20)])
    batch.put(ARCHIVED, archived_key("messages", QUEUE, 0), archived_value(archived))


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
