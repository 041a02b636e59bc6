"""Several stores of one node: each queue, vehicle and topic is in one of them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuelake.control_pipeline import StageTarget
from queuelake.errors import StorageError
from queuelake.export.staged_parts import part_of
from queuelake.export.stores import divide, place
from queuelake.flight import ArchivedTold, Mark
from queuelake.placing import Placing

IDS = ["00aa", "11bb", "22-c", "33dd"]
stores = st.integers(1, len(IDS)).map(lambda count: IDS[:count])
marks = st.builds(
    lambda store, number, shard, upto: Mark(f"{store}-{number}", shard, upto),
    st.sampled_from(IDS),
    st.integers(0, 1 << 64),
    st.integers(0, 3),
    st.integers(0, 99),
)
topics = st.sampled_from(["a", "a/b", "a/b/c", "ü", "$SDV-FANOUT/x", "ecp/v1/online", "x" * 300])


@settings(deadline=None)
@given(stores, st.lists(marks), st.booleans())
def test_each_mark_is_told_to_one_store_in_order(
    ids: list[str], told: list[Mark], adopt: bool
) -> None:
    parts = divide(ids, ArchivedTold("events", "lake", told, adopt))
    assert [(one.table, one.lake, one.adopt) for one in parts] == [("events", "lake", adopt)] * len(
        ids
    )
    for number, part in enumerate(parts):
        assert part.marks == [mark for mark in told if place(ids, mark.queue_id) == number]
    for mark in told:
        store = mark.queue_id.rpartition("-")[0]
        assert place(ids, mark.queue_id) == (ids.index(store) if store in ids else 0)


def test_stores_with_the_same_id_are_refused() -> None:
    with pytest.raises(StorageError, match="the same id: aa, aa"):
        place(["aa", "aa"], "aa-1")


@settings(deadline=None)
@given(st.integers(1, 5), st.lists(st.lists(st.text(max_size=5) | st.none()), max_size=3))
def test_each_vehicle_is_in_one_part(shards: int, blocks: list[list[str | None]]) -> None:
    placing = Placing(shards)
    tables = [pa.table({"id": pa.array(ids, pa.string())}) for ids in blocks]
    found: list[str | None] = []
    for number in range(shards):
        choose = part_of(placing, StageTarget("fanout"), number)
        part = [vin for table in choose(iter(tables)) for vin in table["id"].to_pylist()]
        assert all(placing.of(vin.encode()) == number for vin in part if vin is not None)
        found += part
    assert sorted(found, key=repr) == sorted([vin for ids in blocks for vin in ids], key=repr)


@settings(deadline=None)
@given(st.integers(1, 5), st.lists(st.none() | st.just("") | topics), topics, st.booleans())
def test_each_message_is_in_one_part_in_order(
    shards: int, named: list[str | None], own: str, has_topics: bool
) -> None:
    """A row which names no topic has that of the queue, if this is one."""
    placing = Placing(shards, ["ecp/{VIN}/online"])
    target = StageTarget("message", topic_filter=own)
    columns = {"n": pa.array(range(len(named)), pa.int64())}
    if has_topics:
        columns["topic"] = pa.array(named, pa.string())
    whole = pa.table(columns)
    found: list[int] = []
    for number in range(shards):
        rows = [
            n
            for part in part_of(placing, target, number)(iter([whole]))
            for n in part["n"].to_pylist()
        ]
        assert rows == sorted(rows)
        for n in rows:
            topic = (named[n] if has_topics else None) or own
            assert number == max(0, placing.of_topic(topic.encode()))
        found += rows
    assert sorted(found) == list(range(len(named)))
