"""The report: its numbers are those of a plain count, and the page shows them (acceptance 19)."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from queuelake.errors import NotFoundError
from queuelake.pipeline.jobs.report import Options, count, point_minutes, selected
from queuelake.pipeline.jobs.report_charts import (
    Series,
    column_chart,
    decade_ticks,
    even_ticks,
    line_chart,
    number,
    time_ticks,
)
from queuelake.pipeline.jobs.report_figures import Figures
from queuelake.pipeline.jobs.report_page import page
from queuelake.tables import EVENTS, STATS, STEPS, ddl

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from pyspark.sql import DataFrame, SparkSession

BEGIN = datetime(2026, 11, 14, 22, 0, tzinfo=UTC)
MINUTES = 200
LETTERS = "$queue/dlq/orders"
QUEUES = ["$queue/orders", "$queue/<b>bold</b>", "$q/plant/+/state", LETTERS]
REASONS = ["max_retries", "rejected", "timeout"]

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def stats_rows() -> Rows:
    dice = random.Random(7)
    rows = []
    for minute in range(MINUTES):
        for number_of_queue, queue in enumerate(QUEUES):
            steps = {step: dice.randrange(20) for step in STEPS}
            if minute % 50 == 3:
                steps["delivered"] = 0
            latency = dice.uniform(0.5, 30) if steps["delivered"] else None
            rows.append(
                {
                    "queue": queue,
                    "queue_id": f"s-{number_of_queue}",
                    "seqno": minute + 1,
                    "ts": BEGIN + timedelta(minutes=minute),
                    **steps,
                    "depth": dice.randrange(500),
                    "bytes": dice.randrange(10_000),
                    "latency_p50_ms": latency,
                    "latency_p99_ms": latency and latency * 5,
                    "latency_max_ms": latency and latency * 9,
                }
            )
    return rows


@pytest.fixture(scope="module")
def events_rows() -> Rows:
    dice = random.Random(8)
    return [
        {
            "queue": dice.choice(QUEUES),
            "queue_id": "s-0",
            "seqno": n + 1,
            "event": dice.choice(["dead_lettered", "nacked"]),
            "partition": 0,
            "message_seqno": n,
            "group": "g",
            "consumer": "c",
            "attempt": 1,
            "reason": dice.choice([*REASONS, None]),
            "ts": BEGIN + timedelta(minutes=dice.randrange(MINUTES)),
        }
        for n in range(400)
    ]


def frame(spark: SparkSession, rows: Rows, columns: dict[str, str]) -> DataFrame:
    return spark.createDataFrame(
        [tuple(row[name] for name in columns) for row in rows], ddl(columns)
    )


@pytest.fixture(scope="module")
def figures(spark: SparkSession, stats_rows: Rows, events_rows: Rows) -> Figures:
    return count(frame(spark, stats_rows, STATS), frame(spark, events_rows, EVENTS))


def total(rows: Rows, *names: str) -> int:
    return sum(row[name] for row in rows for name in names)


def came_in(rows: Rows) -> int:
    """A dead letter came in once, in the queue it was published to."""
    return total([row for row in rows if row["queue"] != LETTERS], "enqueued")


def test_totals_equal_a_direct_count(figures: Figures, stats_rows: Rows) -> None:
    totals = figures.totals
    for name in ("delivered", "acked", "dead_lettered", "expired", "dropped"):
        assert getattr(totals, name) == total(stats_rows, name)
    assert totals.enqueued == came_in(stats_rows)
    assert sum(point.enqueued for point in figures.points) == came_in(stats_rows)
    assert totals.retried == total(stats_rows, "nacked", "timed_out")
    last = [row for row in stats_rows if row["seqno"] == MINUTES]
    assert totals.depth == total(last, "depth")
    assert totals.latency_p99_ms == max(row["latency_p99_ms"] or 0 for row in stats_rows)
    assert (figures.since, figures.until) == (BEGIN, BEGIN + timedelta(minutes=MINUTES))


def test_queues_and_hours_equal_a_direct_count(figures: Figures, stats_rows: Rows) -> None:
    assert {row.queue for row in figures.queues} == set(QUEUES)
    for row in figures.queues:
        mine = [one for one in stats_rows if one["queue"] == row.queue]
        assert row.enqueued == total(mine, "enqueued")
        assert row.depth == mine[-1]["depth"]
        assert row.depth_max == max(one["depth"] for one in mine)
    assert len(figures.hours) == len(QUEUES) * 4  # 22:00 to 01:20
    for row in figures.hours:
        mine = [
            one
            for one in stats_rows
            if one["queue"] == row.queue and row.ts <= one["ts"] < row.ts + timedelta(hours=1)
        ]
        assert row.delivered == total(mine, "delivered")


def test_the_p50_of_an_hour_is_the_weighted_median_of_its_minutes(
    figures: Figures, stats_rows: Rows
) -> None:
    row = figures.hours[0]
    values = sorted(
        latency
        for one in stats_rows
        if one["queue"] == row.queue and row.ts <= one["ts"] < row.ts + timedelta(hours=1)
        for latency in [one["latency_p50_ms"]] * one["delivered"]
    )
    assert row.latency_p50_ms is not None
    middle = len(values) // 2
    assert values[middle - 1] - 1e-9 <= row.latency_p50_ms <= values[middle] + 1e-9


def test_dead_letters_are_counted_by_reason(figures: Figures, events_rows: Rows) -> None:
    dead = [row for row in events_rows if row["event"] == "dead_lettered"]
    assert sum(one.count for one in figures.dead_letters) == len(dead)
    for one in figures.dead_letters:
        reason = None if one.reason == "unknown" else one.reason
        mine = [r for r in dead if r["queue"] == one.queue and r["reason"] == reason]
        assert one.count == len(mine)


def test_queue_and_time_select(spark: SparkSession, stats_rows: Rows) -> None:
    until = BEGIN + timedelta(minutes=10)
    options = Options(Path("x"), queue="$queue/*", since=BEGIN + timedelta(minutes=2), until=until)
    rows = selected(frame(spark, stats_rows, STATS), options).collect()
    durable = {queue for queue in QUEUES if queue.startswith("$queue/")}
    assert {row["queue"] for row in rows} == durable
    assert len(rows) == len(durable) * 8


def test_a_time_without_rows_is_told(spark: SparkSession) -> None:
    nothing = spark.createDataFrame([], ddl(STATS))
    with pytest.raises(NotFoundError, match="no statistics"):
        count(nothing, spark.createDataFrame([], ddl(EVENTS)))


@pytest.mark.rule("acceptance 19")
def test_acceptance_19_the_page_opens_in_a_browser_and_has_the_numbers(
    figures: Figures, browser_page: Page, tmp_path: Path, stats_rows: Rows
) -> None:
    problems: list[str] = []
    browser_page.on("console", lambda message: problems.append(message.text))
    browser_page.on("requestfailed", lambda request: problems.append(request.url))
    path = tmp_path / "report.html"
    path.write_text(page(figures, "Plant & fleet", datetime.now(UTC)), encoding="utf-8")
    browser_page.goto(path.as_uri())
    assert browser_page.title() == "Plant & fleet"
    assert browser_page.inner_text("#enqueued") == f"{came_in(stats_rows):,}"
    for name in ("delivered", "acked", "dead_lettered"):
        assert browser_page.inner_text(f"#{name}") == f"{total(stats_rows, name):,}"
    rows = browser_page.locator("#queues tbody tr")
    assert rows.count() == len(QUEUES)
    shown = {row.split("\t")[0]: row.split("\t")[1] for row in rows.all_inner_texts()}
    for queue in QUEUES:
        mine = [row for row in stats_rows if row["queue"] == queue]
        assert shown[queue] == f"{total(mine, 'enqueued'):,}"
    assert browser_page.locator("section svg").count() == 5
    # Nothing sticks out to the right, also on a telephone.
    for width in (1280, 390):
        browser_page.set_viewport_size({"width": width, "height": 900})
        assert browser_page.evaluate("document.documentElement.scrollWidth") <= width
    assert problems == []


def test_the_page_loads_nothing_and_escapes_what_it_shows(figures: Figures) -> None:
    text = page(figures, "A <script> title", datetime.now(UTC))
    assert "<b>bold" not in text
    assert "<script" not in text
    for foreign in ("http://", "https://", "url(", "@import"):
        assert foreign not in text


def test_a_point_of_a_chart_is_a_minute_an_hour_or_a_day() -> None:
    assert point_minutes(timedelta(hours=3)) == 1
    assert point_minutes(timedelta(days=14)) == 60
    assert point_minutes(timedelta(days=15)) == 1440


def test_axes_have_round_numbers_and_hold_every_value() -> None:
    for most in (1, 3, 7, 12, 99, 100, 1234, 9_999_999):
        ticks = even_ticks(most)
        assert ticks[0] == 0
        assert ticks[-1] >= most
        assert 2 <= len(ticks) <= 7
    assert even_ticks(0) == [0, 1]
    assert decade_ticks([0.4, 250]) == [0.1, 1, 10, 100, 1000]
    assert decade_ticks([]) == [1, 10]


@pytest.mark.parametrize("minutes", [1, 10, 59, 180, 1440, 20_000, 600_000])
def test_a_time_axis_has_few_round_times(minutes: int) -> None:
    ticks = time_ticks(BEGIN, BEGIN + timedelta(minutes=minutes))
    assert 1 <= len(ticks) <= 9


def test_numbers_are_short() -> None:
    shown = [number(value) for value in (0, 7, 1234, 12_300, 4_560_000, 0.25, 3.14159)]
    assert shown == ["0", "7", "1,234", "12.3k", "4.56M", "0.25", "3.1"]


def test_charts_of_one_point_and_with_gaps() -> None:
    assert "<circle" in line_chart([BEGIN], [Series("a", [3])], "ms")
    times = [BEGIN + timedelta(minutes=n) for n in range(5)]
    gap = line_chart(times, [Series("a", [1, 2, None, 2, 1])], "ms", decades=True)
    assert gap.count("<polyline") == 2
    assert column_chart(times, [Series("a", [0, 0, 0, 0, 1])], "n").count('class="fill s0"') == 1
