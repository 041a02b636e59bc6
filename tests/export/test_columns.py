"""Chunks as Arrow columns: what a decoder which goes row by row would give, whatever is in them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuelake.errors import RefusedError, StorageError
from queuelake.export.chunks import Chunks
from queuelake.export.messages import MessageColumns, numbered
from queuelake.export.schemas import schema_of
from queuelake.protocol import properties as p
from queuelake.storage.chunk import Record, decode_chunk, encode_chunk
from queuelake.tables import COLUMNS, Table

QUEUE, QUEUE_ID, SHARD = "$queue/q", "5707e-7", 3
ALL = schema_of("messages", [])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Few different values, so that columns of one value and nearly of one value are common.
texts = st.one_of(st.just(b""), st.sampled_from([b"a", b"bb", b"\xff\xfe"]), st.binary(max_size=9))
times = st.one_of(st.just(0), st.integers(0, 1 << 42))
pairs = st.lists(st.tuples(texts, texts), max_size=3)


# What encoded properties say: the content type, the user properties.
SAID: dict[bytes, tuple[bytes | None, list[tuple[bytes, bytes]]]] = {b"": (None, [])}


@st.composite
def encoded_properties(draw: st.DrawFn) -> bytes:
    user, content_type, more = draw(pairs), draw(st.none() | texts), draw(pairs)
    encoded = p.write_user(user)
    if content_type is not None:
        encoded += p.write_value(p.CONTENT_TYPE, content_type)
    if draw(st.booleans()):
        encoded += p.write_number(p.MESSAGE_EXPIRY, 60) + p.write_number(p.PAYLOAD_FORMAT, 1)
    if draw(st.booleans()):
        encoded += p.write_value(p.CORRELATION_DATA, draw(texts))
    encoded += p.write_user(more)
    SAID[encoded] = (content_type, user + more)
    return encoded


properties = st.one_of(st.just(b""), encoded_properties())
records = st.builds(
    Record,
    *(texts, texts, texts, texts, properties, texts),
    *(st.integers(0, 2), st.integers(0, 9), times, times),
)
chunks = st.lists(st.lists(records, min_size=1, max_size=6), min_size=1, max_size=6)


def table_of(values: list[bytes], after: int, upto: int, columns: list[str]) -> pa.RecordBatch:
    found = MessageColumns(QUEUE, QUEUE_ID, SHARD, Chunks(values, after, upto))
    batch = found.batch(schema_of("messages", columns))
    batch.validate(full=True)
    return batch


def text(value: bytes) -> str | None:
    return value.decode("utf-8", "replace") if value else None


def time(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def row(one: Record) -> dict[str, Any]:
    """A row of the table, from the record, one thing after the other."""
    content_type, said = SAID[one.properties]
    user = {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in said}
    return {
        "queue": QUEUE,
        "queue_id": QUEUE_ID,
        "partition": SHARD,
        "seqno": one.seq,
        "message_id": text(one.message_id) or f"{QUEUE}:{SHARD}:{one.seq}",
        "key": text(one.key),
        "owner": None,
        "topic": text(one.topic) or QUEUE,
        "payload": one.payload,
        "content_type": None if content_type is None else content_type.decode("utf-8", "replace"),
        "properties": list(user.items()),
        "publisher": text(one.publisher),
        "qos": one.qos,
        "ts": time(one.ts_ms),
        "expires": time(one.expires_ms) if one.expires_ms else None,
    }


@settings(deadline=None)
@given(
    given_chunks=chunks,
    gaps=st.lists(st.integers(1, 3), min_size=6, max_size=6),
    cut=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    columns=st.lists(st.sampled_from(list(COLUMNS["messages"])), unique=True, max_size=4),
)
def test_columns_hold_what_the_records_say(
    given_chunks: list[list[Record]], gaps: list[int], cut: tuple[int, int], columns: list[str]
) -> None:
    values: list[bytes] = []
    first = 1
    for gap, part in zip(gaps, given_chunks, strict=False):
        first += gap
        values.append(encode_chunk(first, part))
        first += len(part)
    after, upto = cut[0], cut[0] + cut[1]
    expected = [one for value in values for one in decode_chunk(value) if after < one.seq <= upto]
    rows = [row(one) for one in expected]
    batch = table_of(values, after, upto, columns)
    assert batch.to_pylist() == [{name: one[name] for name in batch.schema.names} for one in rows]


def test_text_which_is_no_utf_8_breaks_nothing() -> None:
    bad = b"\xff\xfea"
    user = p.write_user([(bad, bad)]) + p.write_value(p.CONTENT_TYPE, bad)
    odd = Record(bad, bad, bad, bad, user, bad, 1, 4, 5, 0)
    good = Record(b"t", b"k", b"m", b"p", b"", b"x", 1, 4, 5, 0)
    for value in (encode_chunk(1, [odd, good, odd]), encode_chunk(1, [odd])):
        found = table_of([value], 0, 9, []).to_pylist()[0]
        shown = "\ufffd\ufffda"
        for name in ("topic", "key", "message_id", "publisher", "content_type"):
            assert found[name] == shown
        assert found["properties"] == [(shown, shown)]
        assert found["payload"] == bad


def test_of_a_user_property_which_is_there_twice_the_last_one_counts() -> None:
    user = p.write_user([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])
    value = encode_chunk(1, [Record(b"", b"", b"", b"", user, b"", 1, 4, 5, 0)])
    assert table_of([value], 0, 1, ["properties"]).to_pylist() == [
        {"properties": [("a", "3"), ("b", "2")]}
    ]


@settings(deadline=None)
@given(
    part=st.lists(records, min_size=1, max_size=4), at=st.integers(0, 500), byte=st.integers(0, 255)
)
def test_a_changed_byte_is_refused_or_read_as_the_decoder_reads_it(
    part: list[Record], at: int, byte: int
) -> None:
    value = bytearray(encode_chunk(1, part))
    value[at % len(value)] = byte
    try:
        expected = decode_chunk(bytes(value))
    except StorageError:
        expected = None
    if expected and any(one.seq >= 1 << 62 for one in expected):
        return
    columns = ["seqno", "payload", "qos"]
    try:
        batch = table_of([bytes(value)], -1, 1 << 62, columns)
    except StorageError:
        assert expected is None
        return
    if expected is not None:  # else there is a mistake in what was not asked for
        assert batch["payload"].to_pylist() == [one.payload for one in expected]
        assert batch["seqno"].to_pylist() == [one.seq for one in expected]


@pytest.mark.parametrize("table", COLUMNS)
def test_schemas_are_what_spark_expects(table: Table) -> None:
    types = pytest.importorskip("pyspark.sql.types")
    from pyspark.sql.pandas.types import to_arrow_schema

    kinds = {
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "tinyint": types.ByteType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "double": types.DoubleType(),
        "timestamp": types.TimestampType(),
        "map<string,string>": types.MapType(types.StringType(), types.StringType()),
    }
    columns = COLUMNS[table].items()
    struct = types.StructType([types.StructField(name, kinds[kind]) for name, kind in columns])
    assert schema_of(table, []).equals(to_arrow_schema(struct, timezone="UTC"), check_metadata=True)


def test_a_column_which_is_none_is_refused() -> None:
    with pytest.raises(RefusedError, match="no column 'x'; it has queue, "):
        schema_of("events", ["seqno", "x"])
    with pytest.raises(RefusedError, match="once"):
        schema_of("events", ["seqno", "seqno"])


def test_columns_come_in_the_order_in_which_they_were_asked_for() -> None:
    assert schema_of("stats", ["ts", "queue"]).names == ["ts", "queue"]
    assert schema_of("stats", []).names == list(COLUMNS["stats"])


@pytest.mark.parametrize("first", [1, 5, 95, 999_990, 10**18 - 3])
def test_ids_are_numbered_over_the_powers_of_ten(first: int) -> None:
    numbers = np.array([first, first + 1, first + 7, first + 1000])
    assert numbered("$queue/ü:3:", numbers).to_pylist() == [f"$queue/ü:3:{n}" for n in numbers]


def test_batches_of_many_chunks_are_in_order() -> None:
    part = [Record(b"", b"", b"", b"c", b"", b"%d" % n, 1, 4, 5, 0) for n in range(100)]
    values = [encode_chunk(1 + 100 * n, part) for n in range(50)]
    found = table_of(values, 50, 4_950, ["seqno", "payload"])["seqno"].to_pylist()
    assert found[0] == 51
    assert len(found) == 4_900
    assert all(b == a + 1 for a, b in pairwise(found))
