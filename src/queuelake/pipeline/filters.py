"""Filters of a query, as far as a place in the table answers them: partition, seqno, ts.

What is taken here completely is not evaluated again by Spark; of `ts` and of lists it is, row by
row. Times of a shard do not fall while a broker runs, but the clock of a machine may be set back
while it is down: up to an hour of that changes no answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from queuelake.pipeline.offsets import Offsets
from queuelake.tables import Table

SEQNO_MAX = (1 << 63) - 1
CLOCK_SLACK_MS = 60 * 60 * 1000


@dataclass(frozen=True)
class Bounds:
    """What has to be read at all: sequences (after, upto] of some shards, between two times."""

    after: int = 0
    upto: int = SEQNO_MAX
    partitions: tuple[Filter, ...] = ()
    ts_ms_min: int | None = None
    ts_ms_end: int | None = None  # nothing of this time or later

    def keeps(self, shard: int) -> bool:
        return all(_holds(one, shard) for one in self.partitions)

    def raised(self, start: Offsets) -> Offsets:
        return {
            q: {s: max(n, self.after) for s, n in shards.items()} for q, shards in start.items()
        }

    def lowered(self, end: Offsets) -> Offsets:
        return {q: {s: min(n, self.upto) for s, n in shards.items()} for q, shards in end.items()}


def take_filters(table: Table, filters: Iterable[Filter]) -> tuple[Bounds, list[Filter]]:
    """The bounds all of these mean together, and the filters Spark has to evaluate still."""
    bounds = Bounds()
    rest: list[Filter] = []
    for one in filters:
        column = getattr(one, "attribute", None)
        # In `events` the partition is that of the message, not of the table.
        if column == ("partition",) and table == "messages" and _whole_number(one):
            bounds = replace(bounds, partitions=(*bounds.partitions, one))
        elif column == ("seqno",) and _whole_number(one):
            bounds = _by_seqno(bounds, one)
            if isinstance(one, In):
                rest.append(one)
        else:
            if column == ("ts",):
                bounds = _by_time(bounds, one)
            rest.append(one)
    return bounds, rest


def _by_seqno(bounds: Bounds, one: Filter) -> Bounds:
    after, upto = bounds.after, bounds.upto
    match one:
        case EqualTo(_, value):
            after, upto = max(after, value - 1), min(upto, value)
        case GreaterThan(_, value):
            after = max(after, value)
        case GreaterThanOrEqual(_, value):
            after = max(after, value - 1)
        case LessThan(_, value):
            upto = min(upto, value - 1)
        case LessThanOrEqual(_, value):
            upto = min(upto, value)
        case In(_, values):
            after, upto = max(after, min(values) - 1), min(upto, max(values))
    return replace(bounds, after=after, upto=upto)


def _by_time(bounds: Bounds, one: Filter) -> Bounds:
    match one:
        case EqualTo(_, datetime() as when):
            lower = upper = True
        case GreaterThan(_, datetime() as when) | GreaterThanOrEqual(_, datetime() as when):
            lower, upper = True, False
        case LessThan(_, datetime() as when) | LessThanOrEqual(_, datetime() as when):
            lower, upper = False, True
        case _:
            return bounds
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    ts_ms = int(when.timestamp() * 1000)
    if lower:
        first = max(0, ts_ms - CLOCK_SLACK_MS, bounds.ts_ms_min or 0)
        bounds = replace(bounds, ts_ms_min=first)
    if upper:
        end = ts_ms + CLOCK_SLACK_MS
        known = bounds.ts_ms_end
        bounds = replace(bounds, ts_ms_end=end if known is None else min(end, known))
    return bounds


def _whole_number(one: Filter) -> bool:
    """Whether this compares with whole numbers, in a way we know."""
    match one:
        case In(_, values):
            return bool(values) and all(type(value) is int for value in values)
        case (
            EqualTo(_, value)
            | GreaterThan(_, value)
            | GreaterThanOrEqual(_, value)
            | LessThan(_, value)
            | LessThanOrEqual(_, value)
        ):
            return type(value) is int
    return False


def _holds(one: Filter, number: int) -> bool:
    match one:
        case EqualTo(_, value):
            return bool(number == value)
        case GreaterThan(_, value):
            return bool(number > value)
        case GreaterThanOrEqual(_, value):
            return bool(number >= value)
        case LessThan(_, value):
            return bool(number < value)
        case LessThanOrEqual(_, value):
            return bool(number <= value)
        case In(_, values):
            return number in values
    raise AssertionError(f"not a filter of a partition: {one!r}")
