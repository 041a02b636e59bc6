"""Which rows a round takes: bounded, fair, without holes and without overlaps."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from queuelake.flight import Shard
from queuelake.pipeline.lake.ranges import Reach, Slice, cut, level, packed, plan, task_rows


def reach(committed: int, after: int, upto: int, number: int = 0) -> Reach:
    return Reach(Shard(f"q{number}", f"id-{number}", "durable", 0, after, upto), committed, upto)


@st.composite
def reached(draw: st.DrawFn) -> list[Reach]:
    sizes = draw(st.lists(st.tuples(*[st.integers(0, 1000)] * 3), max_size=20))
    # committed may be below what is still there (rows are gone), or above it.
    return [reach(a, b, max(a, b) + rows, n) for n, (a, b, rows) in enumerate(sizes)]


def test_a_backlog_does_not_keep_others_waiting() -> None:
    long, short = reach(0, 0, 1_000_000, 1), reach(90, 0, 100, 2)
    moving = plan([long, short], 1000)
    assert [(one.shard.queue, one.committed, one.upto) for one in moving] == [
        ("q1", 0, 990),
        ("q2", 90, 100),
    ]


def test_what_is_gone_is_passed_without_counting() -> None:
    assert [one.upto for one in plan([reach(0, 500, 500)], 10)] == [500]
    assert [one.upto for one in plan([reach(0, 500, 600)], 10)] == [510]


@given(reached(), st.integers(1, 5000))
def test_a_round_is_bounded_and_goes_on(reached: list[Reach], rows_max: int) -> None:
    moving = plan(reached, rows_max)
    assert sum(one.pending for one in moving) <= max(rows_max, len(reached))
    for one in moving:
        assert one.committed < one.upto <= one.shard.upto
    waiting = [one for one in reached if one.upto > one.committed]
    assert {one.shard.queue for one in moving} == {one.shard.queue for one in waiting}


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(1, 5000))
def test_the_share_is_the_greatest_which_fits(pending: list[int], rows_max: int) -> None:
    share = level(pending, rows_max)
    taken = sum(min(rows, share) for rows in pending)
    assert taken <= max(rows_max, len(pending))
    if any(rows > share for rows in pending):
        assert sum(min(rows, share + 1) for rows in pending) > rows_max


@given(reached(), st.integers(1, 700), st.lists(st.integers(1, 3000), unique=True))
def test_tasks_hold_every_row_once(reached: list[Reach], length: int, skip: list[int]) -> None:
    slices = [
        Slice(one.shard.queue, one.shard.queue_id, 0, one.after, one.upto, False, skip)
        for one in reached
        if one.pending
    ]
    tasks = list(packed(slices, length))
    assert all(sum(part.rows for part in task) <= length for task in tasks)
    for whole in slices:
        parts = [part for task in tasks for part in task if part.queue == whole.queue]
        assert parts[0].after == whole.after
        assert parts[-1].upto == whole.upto
        assert all(one.upto == next_.after for one, next_ in pairwise(parts))
        inside = sorted(place for place in skip if whole.after < place <= whole.upto)
        assert sorted(place for part in parts for place in part.skip) == inside


def test_a_short_slice_is_not_cut() -> None:
    whole = Slice("q", "id", 0, 5, 10)
    assert list(cut(whole, 100)) == [whole]


def test_tasks_use_all_cores_and_are_neither_tiny_nor_endless() -> None:
    assert task_rows(100, 8) == 20_000
    assert task_rows(800_000, 8) == 100_000
    assert task_rows(100_000_000, 8) == 500_000
