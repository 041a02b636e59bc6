"""The arithmetic on places, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThan, Not

from queuelake.errors import RefusedError
from queuelake.flight import Shard
from queuelake.pipeline import offsets
from queuelake.pipeline.filters import CLOCK_SLACK_MS, take_filters
from queuelake.pipeline.offsets import Offsets, Position, Slice, parse_position, plan_end, share

KEYS = st.tuples(st.sampled_from("abc"), st.integers(0, 3))


def shard(number: int, after: int, upto: int, **fields: object) -> Shard:
    return Shard("$queue/a", "s-1", "durable", number, after, upto, **fields)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.dictionaries(KEYS, st.integers(0, 50), max_size=8), st.integers(0, 200))
def test_a_budget_is_used_and_nobody_gets_less_than_others_without_reason(
    wanted: dict[tuple[str, int], int], budget: int
) -> None:
    granted = share(wanted, budget)
    assert sum(granted.values()) == min(budget, sum(wanted.values()))
    assert all(0 <= granted[key] <= wanted[key] for key in wanted)
    unhappy = [granted[key] for key in wanted if granted[key] < wanted[key]]
    if unhappy:  # whoever gets more than another, gets one more at most
        assert max(granted.values()) <= min(unhappy) + 1


@settings(deadline=None)
@given(st.dictionaries(KEYS, st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=8))
def test_batches_of_any_size_reach_the_end(
    ranges: dict[tuple[str, int], tuple[int, int]],
) -> None:
    shards = [
        Shard(queue, queue, "durable", number, begin, begin + length)
        for (queue, number), (begin, length) in ranges.items()
    ]
    begins, ends = offsets.begins_of(shards), offsets.ends_of(shards)
    start: offsets.Offsets = {}
    read: list[Slice] = []
    for _ in range(1000):
        end = plan_end(start, begins, ends, 7)
        batch = offsets.slices(start, begins, end, 3)
        assert sum(one.upto - one.after for one in batch) <= 7
        assert all(one.upto - one.after <= 3 for one in batch)
        read += batch
        if end == start:
            break
        start = end
    rows = [(one.queue_id, one.shard, n) for one in read for n in range(one.after, one.upto)]
    assert len(set(rows)) == len(rows)
    assert len(rows) == sum(length for _, length in ranges.values())
    assert start == ends


def test_offsets_are_sorted_whatever_the_order_of_the_shards() -> None:
    mixed = [shard(10, 0, 1), shard(2, 0, 1), shard(0, 0, 1)]
    assert list(offsets.ends_of(mixed)["s-1"]) == ["0", "2", "10"]


def test_deleted_queues_leave_and_an_end_is_never_before_its_start() -> None:
    start = {"s-1": {"0": 9}, "s-2": {"0": 4}}
    assert plan_end(start, {}, {"s-1": {"0": 7}}, None) == {"s-1": {"0": 9}}


@pytest.mark.rule("P3")
def test_p3_what_was_lost_is_found_within_the_range_only() -> None:
    damaged = [shard(0, 20, 30, lost=[(4, 8), (12, 20)])]
    start, end = {"s-1": {"0": 5}}, {"s-1": {"0": 15}}
    assert [gone for _, gone in offsets.lost_between(damaged, start, end)] == [
        Slice("s-1", 0, 5, 8),
        Slice("s-1", 0, 12, 15),
    ]
    assert not offsets.lost_between(damaged, {"s-1": {"0": 20}}, {"s-1": {"0": 30}})


@pytest.mark.rule("P3")
@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("Earliest", Position("earliest")),
        ("1700000000000", Position(ts_ms=1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", Position(ts_ms=1_700_000_000_000)),
        ("2023-11-14 22:13:20", Position(ts_ms=1_700_000_000_000)),
        ("2023-11-15T00:13:20+02:00", Position(ts_ms=1_700_000_000_000)),
        ('{"s-1": {"0": 5}}', Position(exact={"s-1": {"0": 5}})),
    ],
)
def test_p3_places_as_users_say_them(text: str, position: Position) -> None:
    assert parse_position("startingOffsets", text) == position


@pytest.mark.rule("P3")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tomorrow", "option 'startingOffsets': 'tomorrow' is not earliest, latest, a time"),
        ('{"a": ', "is not JSON"),
        ('{"a": 5}', "'a' needs {shard: sequence}"),
        ('{"a": {"0": -1}}', "shard '0' of 'a': -1 is not a sequence, 0 or more"),
        ('{"a": {"x": 1}}', "shard 'x' of 'a': 1 is not"),
    ],
)
def test_p3_a_wrong_place_is_named(text: str, words: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_position("startingOffsets", text)
    assert words in str(caught.value)


@pytest.mark.rule("P3")
def test_p3_a_place_in_a_shard_which_is_not_there_is_named() -> None:
    position = Position(exact={"$queue/a": {"7": 1}})
    with pytest.raises(RefusedError, match="there is no shard '7' of"):
        offsets.resolve("startingOffsets", position, [shard(0, 0, 9)], lambda _: [], "earliest")


@pytest.mark.rule("P3")
def test_p3_a_queue_with_parts_in_several_stores_is_named_by_their_ids() -> None:
    parts = [replace(shard(0, 0, 9), queue="$q/a", queue_id=f"{store}-1") for store in "xy"]

    def start(exact: dict[str, dict[str, int]]) -> Offsets:
        position = Position(exact=exact)
        return offsets.resolve("startingOffsets", position, parts, lambda _: [], "earliest")

    with pytest.raises(RefusedError, match=r"several parts of the cluster.*: x-1, y-1"):
        start({"$q/a": {"0": 4}})
    assert start({"y-1": {"0": 4}}) == {"x-1": {"0": 0}, "y-1": {"0": 4}}


@pytest.mark.rule("P4")
def test_p4_filters_on_partition_and_seqno_are_taken_whole() -> None:
    filters = [EqualTo(("partition",), 1), GreaterThan(("seqno",), 5), LessThan(("seqno",), 9)]
    bounds, rest = take_filters("messages", filters)
    assert rest == []
    assert [n for n in range(4) if bounds.keeps(n)] == [1]
    assert (bounds.after, bounds.upto) == (5, 8)


@pytest.mark.rule("P4")
def test_p4_filters_which_say_more_than_a_range_stay_with_spark() -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    filters = [
        In(("seqno",), (3, 7)),
        GreaterThan(("ts",), when),
        LessThan(("ts",), when),
        Not(EqualTo(("partition",), 1)),
        IsNotNull(("ts",)),
        EqualTo(("key",), "a"),
    ]
    bounds, rest = take_filters("messages", filters)
    assert rest == filters
    assert (bounds.after, bounds.upto) == (2, 7)
    ts_ms = int(when.timestamp() * 1000)
    assert (bounds.ts_ms_min, bounds.ts_ms_end) == (ts_ms - CLOCK_SLACK_MS, ts_ms + CLOCK_SLACK_MS)


@pytest.mark.rule("P4")
def test_p4_the_partition_of_an_event_is_not_that_of_the_table() -> None:
    filters = [EqualTo(("partition",), 1)]
    bounds, rest = take_filters("events", filters)
    assert rest == filters
    assert bounds.keeps(0)
