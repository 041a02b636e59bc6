"""Rows laid out as chunks, whole columns at a time, are what a publish makes of each of them."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import example, given, settings

from queuelake.control_pipeline import StageTarget
from queuelake.engine.partitioning import fnv1a
from queuelake.export import staged_chunks
from queuelake.export.staged_columns import COLUMNS
from queuelake.export.staged_rows import Rows
from queuelake.protocol import properties as p
from queuelake.protocol.properties import write_user
from queuelake.storage.chunk import PIECE_BYTES, Record, decode_chunk
from queuelake.storage.prepared import HAS_PRIORITIES, IS_DELAYED

PARTITIONS = 3
LIFE_MS = 5_000
TARGET = StageTarget("durable", "$queue/q", 1, PARTITIONS, LIFE_MS, 1 << 20)

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
names = st.one_of(
    texts.filter(lambda name: name not in ("deliver-at", "priority", "delay-ms")),
    st.sampled_from(["partition-key", "message-id", "queue", "offset", "reason"]),
)
pairs = st.lists(
    st.tuples(names, st.one_of(st.none(), texts)), max_size=3, unique_by=lambda t: t[0]
)
timing = st.sampled_from([[], [("priority", "9")], [("priority", "99")], [("delay-ms", "70")]])
rows = st.fixed_dictionaries(
    {
        "payload": st.one_of(st.none(), st.binary(max_size=40), st.just(b"x" * 40_000)),
        "key": st.one_of(st.none(), texts),
        "properties": st.one_of(st.none(), st.builds(lambda a, b: a + b, pairs, timing)),
        "content_type": st.one_of(st.none(), texts),
        "delay_ms": st.sampled_from([None, 0, 5]),
        "message_id": st.one_of(st.none(), texts),
        "topic": st.sampled_from([None, "$queue/q", "$queue/q/sub", "plain"]),
    }
)


def expected(row: dict[str, Any]) -> tuple[object, ...]:
    """What a publish makes of it: key, id, properties, priority, delay."""
    found = row["properties"] or []
    said = {name: value or "" for name, value in found}
    key = row["key"] or said.get("partition-key", "")
    message_id = row["message_id"] or said.get("message-id", "")
    encoded = b""
    if row["content_type"]:
        content_type = row["content_type"].encode()
        encoded += bytes([p.CONTENT_TYPE]) + len(content_type).to_bytes(2, "big") + content_type
    user = [(b"partition-key", key.encode())] if key else []
    dropped = ("partition-key", "message-id", "queue", "offset")
    user += [(a.encode(), (b or "").encode()) for a, b in found if a not in dropped]
    priority = min(int(said.get("priority", "4")), 31)
    delay_ms = row["delay_ms"] or int(said.get("delay-ms", "0"))
    topic = row["topic"] or ""
    return (
        b"" if topic == "$queue/q" else topic.encode(),
        key.encode(),
        message_id.encode(),
        b"me",
        encoded + write_user(user),
        row["payload"] or b"",
        priority,
        delay_ms,
    )


def found_of(record: Record, is_delayed: bool) -> tuple[object, ...]:
    delay_ms = record.ts_ms if is_delayed else 0
    assert is_delayed == (delay_ms > 0)
    texts = (record.topic, record.key, record.message_id, record.publisher, record.properties)
    return (*texts, record.payload, record.priority, delay_ms)


@given(st.lists(rows, min_size=1, max_size=12), st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
@example([{**dict.fromkeys(COLUMNS), "payload": b"", "properties": [("a", None)]}], 0, 0)
def test_chunks_hold_what_publishes_would(
    given_rows: list[dict[str, Any]], before: int, after: int
) -> None:
    kinds = {name: COLUMNS[name] for name in given_rows[0] if name in COLUMNS}
    other = dict.fromkeys(given_rows[0])
    # Slices of longer columns have offsets of their own.
    padded = [other] * before + given_rows + [other] * after
    whole = pa.table({n: pa.array([row[n] for row in padded], kinds[n]) for n in kinds})
    block = whole.slice(before, len(given_rows))
    layout = staged_chunks.Layout(PARTITIONS, LIFE_MS, b"me")
    found: list[tuple[object, ...]] = []
    for chunk in layout.chunks(Rows(block, TARGET)):
        value = b"".join(chunk.parts)
        records = decode_chunk(value)
        is_delayed = bool(chunk.flags & IS_DELAYED)
        assert chunk.size == len(value)
        assert len(value) <= PIECE_BYTES or len(records) == 1
        assert chunk.count == len(records)
        assert chunk.largest == max(len(one.payload) for one in records)
        assert chunk.payload_bytes == sum(len(one.payload) for one in records)
        assert bool(chunk.flags & HAS_PRIORITIES) == any(one.priority != 4 for one in records)
        assert records[0].seq == (chunk.partition if is_delayed else 0)
        for record in records:
            assert (record.qos, record.expires_ms) == (1, LIFE_MS)
            if record.key:
                assert chunk.partition == fnv1a(record.key) % PARTITIONS
            found.append(found_of(record, is_delayed))
    assert sorted(found, key=repr) == sorted(map(expected, given_rows), key=repr)


@given(st.lists(st.binary(max_size=300), min_size=1), st.integers(0, 2))
def test_the_hash_of_many_keys_is_the_hash_of_each(keys: list[bytes], skipped: int) -> None:
    values = pa.array([b"skipped"] * skipped + keys, pa.binary()).slice(skipped)
    assert staged_chunks.fnv1a(values).tolist() == [fnv1a(key) for key in keys]


def test_rows_of_a_partition_stay_in_order() -> None:
    count = 5_000
    table = pa.table({"payload": [b"%08d" % n for n in range(count)]})
    layout = staged_chunks.Layout(PARTITIONS, 0, b"me")
    lasts = [b""] * PARTITIONS
    seen = 0
    for chunk in layout.chunks(Rows(table, TARGET)):
        for record in decode_chunk(b"".join(chunk.parts)):
            assert record.payload > lasts[chunk.partition]
            lasts[chunk.partition] = record.payload
            seen += 1
    assert seen == count
