"""The figures of a report, as plain values: what Spark counted, and what the page shows.

Everything is per queue and per hour. What cannot be added is not: a percentile of an hour is made
of its minutes, the p50 weighted by what was delivered in each, the p99 that of the worst.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import datetime

COUNTS = ("enqueued", "delivered", "acked", "retried", "dead_lettered", "expired", "dropped")


@dataclass(frozen=True, slots=True)
class Row:
    """A queue in a span of time. `retried`: nacked, timed out; `rejected` is a dead letter."""

    queue: str
    ts: datetime
    enqueued: int
    delivered: int
    acked: int
    retried: int
    dead_lettered: int
    expired: int
    dropped: int
    depth: int  # at the end
    depth_max: int
    latency_p50_ms: float | None
    latency_p99_ms: float | None


@dataclass(frozen=True, slots=True)
class DeadLetters:
    queue: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Figures:
    """A whole report. `queues` and `totals` are over the period, `hours` per queue and hour;
    `points` are for the charts, as fine as the period allows."""

    since: datetime
    until: datetime
    point_minutes: int
    totals: Row
    queues: list[Row]
    hours: list[Row]
    points: list[Row]  # all queues together
    depths: dict[str, list[tuple[datetime, int]]]  # of the deepest queues
    dead_letters: list[DeadLetters]
    queues_left_out: int = 0
    hours_left_out: int = 0

    def tables(self) -> dict[str, object]:
        """What `--json` has: the tables of the page."""
        return {
            "since": self.since.isoformat(),
            "until": self.until.isoformat(),
            "totals": _plain(self.totals, ("queue", "ts")),
            "queues": [_plain(row, ("ts",)) for row in self.queues],
            "hours": [_plain(row, ()) for row in self.hours],
            "dead_letters": [asdict(one) for one in self.dead_letters],
            "queues_left_out": self.queues_left_out,
            "hours_left_out": self.hours_left_out,
        }


def by_reason(dead_letters: Iterable[DeadLetters]) -> list[tuple[str, int]]:
    """Dead letters of all queues together, the most frequent reason first."""
    counts: dict[str, int] = {}
    for one in dead_letters:
        counts[one.reason] = counts.get(one.reason, 0) + one.count
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))


def _plain(row: Row, without: tuple[str, ...]) -> dict[str, object]:
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
        if name not in without
    }
