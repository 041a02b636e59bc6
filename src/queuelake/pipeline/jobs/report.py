"""`report`: what the queues did, from the lake: one HTML file, and tables with `--json`.

The counts are sums over `stats`, which has a row for each queue and minute, always. The reasons of
dead letters are counted in `events`. Spark adds up; what reaches this process is what is shown.
"""

from __future__ import annotations

import fnmatch
import os
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from queuelake.errors import NotFoundError
from queuelake.names import DEAD_LETTERS
from queuelake.pipeline.jobs.job import JobContext, Summary
from queuelake.pipeline.jobs.report_charts import SERIES_MAX
from queuelake.pipeline.jobs.report_figures import DeadLetters, Figures, Row
from queuelake.pipeline.jobs.report_page import page

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUEUES_MAX = 200
HOURS_MAX = 2_000
REASON_ROWS_MAX = 500
MINUTES_SPAN_MAX = timedelta(hours=3)  # up to here a point of a chart is a minute
HOURS_SPAN_MAX = timedelta(days=14)  # and up to here an hour, else a day

SUMS = """
    sum(enqueued) AS enqueued, sum(delivered) AS delivered, sum(acked) AS acked,
    sum(nacked) + sum(timed_out) AS retried, sum(dead_lettered) AS dead_lettered,
    sum(expired) AS expired, sum(dropped) AS dropped
"""
# A minute in which the broker started again has two rows.
LAST_DEPTH = "max_by(depth, struct(ts, seqno))"
LATENCY = """
    percentile(latency_p50_ms, 0.5, delivered) FILTER (WHERE delivered > 0) AS latency_p50_ms,
    max(latency_p99_ms) FILTER (WHERE delivered > 0) AS latency_p99_ms
"""


@dataclass(frozen=True, slots=True)
class Options:
    out: Path
    title: str = "Queue report"
    queue: str = "*"
    since: datetime | None = None
    until: datetime | None = None


def run(context: JobContext, options: Options) -> Summary:
    """Count, draw, write the file."""
    from queuelake.pipeline.lake.lake import Lake

    lake = Lake(context.lake)
    context.progress.unit = "queues"
    context.progress.message = "counting"
    stats = selected(lake.read(context.spark, "stats"), options)
    events = selected(lake.read(context.spark, "events"), options)
    context.check()
    figures = count(stats, events)
    context.progress.done = len(figures.queues) + figures.queues_left_out
    write_whole(options.out, page(figures, options.title, datetime.now(UTC)))
    totals = figures.totals
    words = (
        f"{totals.enqueued:,} messages in, {totals.delivered:,} delivered, "
        f"{totals.dead_lettered:,} dead letters: {options.out}"
    )
    return Summary(words, {"file": str(options.out)}, figures.tables())


def selected(table: DataFrame, options: Options) -> DataFrame:
    """The rows of the queues and of the time which are asked for."""
    from pyspark.sql import functions as F

    if options.queue != "*":
        table = table.where(F.col("queue").rlike(fnmatch.translate(options.queue)))
    if options.since is not None:
        table = table.where(F.col("ts") >= F.lit(options.since))
    if options.until is not None:
        table = table.where(F.col("ts") < F.lit(options.until))
    return table


def count(stats: DataFrame, events: DataFrame) -> Figures:
    """All figures of a report over these rows.

    Raises:
        NotFoundError: there are none.
    """
    from pyspark.sql import functions as F

    stats = stats.cache()
    try:
        # `until` is the end of the last minute.
        span = stats.agg(F.min("ts").alias("since"), F.max("ts").alias("until")).first()
        if span is None or span["since"] is None:
            raise NotFoundError("the lake has no statistics of these queues in this time")
        since, until = _utc(span["since"]), _utc(span["until"]) + timedelta(minutes=1)
        minutes = point_minutes(until - since)
        queues = _rows(_by(stats, "queue, timestamp'1970-01-01' AS ts", "queue"), QUEUES_MAX)
        queue_count = stats.select("queue").distinct().count()
        hourly = _by(stats, "queue, date_trunc('HOUR', ts) AS ts", "queue, date_trunc('HOUR', ts)")
        busy = hourly.where("enqueued + delivered + acked + retried + dead_lettered + dropped > 0")
        hour_count = busy.count()
        hours = _rows(busy, HOURS_MAX, "ts, queue")
        return Figures(
            since=since,
            until=until,
            point_minutes=minutes,
            totals=_totals(came_in(stats)),
            queues=queues,
            hours=hours,
            points=_points(came_in(stats), minutes),
            depths=_depths(stats, minutes, [row.queue for row in queues]),
            dead_letters=_reasons(events),
            queues_left_out=queue_count - len(queues),
            hours_left_out=hour_count - len(hours),
        )
    finally:
        stats.unpersist()


def came_in(stats: DataFrame) -> DataFrame:
    """For sums over queues: a dead letter came in once, not again in the queue of dead letters."""
    return stats.selectExpr(
        "* EXCEPT (enqueued)", f"if(queue LIKE '$queue/{DEAD_LETTERS}%', 0, enqueued) AS enqueued"
    )


def point_minutes(span: timedelta) -> int:
    """How many minutes one point of a chart stands for."""
    if span <= MINUTES_SPAN_MAX:
        return 1
    return 60 if span <= HOURS_SPAN_MAX else 1440


def _by(stats: DataFrame, columns: str, group: str) -> DataFrame:
    """Sums of each group; the depth is that of its last minute."""
    query = f"""
        SELECT {columns}, {SUMS}, {LAST_DEPTH} AS depth, max(depth) AS depth_max, {LATENCY}
        FROM {{stats}} GROUP BY {group}
    """
    return stats.sparkSession.sql(query, stats=stats)


def _rows(
    frame: DataFrame, limit: int, order: str = "enqueued + delivered DESC, queue"
) -> list[Row]:
    frame = frame.sparkSession.sql(
        f"SELECT * FROM {{frame}} ORDER BY {order} LIMIT {limit}", frame=frame
    )
    return [_row(row.asDict()) for row in frame.collect()]


def _row(values: dict[str, Any]) -> Row:
    return Row(**{**values, "ts": _utc(values["ts"])})


def _totals(stats: DataFrame) -> Row:
    """Everything together; the depth is the sum of what each queue has now."""
    query = f"""
        SELECT '' AS queue, min(ts) AS ts, {SUMS}, {LATENCY},
            (SELECT sum(last) FROM (SELECT {LAST_DEPTH} AS last FROM {{stats}} GROUP BY queue))
                AS depth
        FROM {{stats}}
    """
    values = stats.sparkSession.sql(query, stats=stats).collect()[0].asDict()
    return _row({**values, "depth_max": values["depth"]})


def _points(stats: DataFrame, minutes: int) -> list[Row]:
    """Points of the charts, all queues together, without a hole where no row is."""
    unit = {1: "MINUTE", 60: "HOUR", 1440: "DAY"}[minutes]
    place = f"date_trunc('{unit}', ts)"
    rows = _rows(_by(stats, f"'' AS queue, {place} AS ts", place), 1_000_000, "ts")
    found = {row.ts: row for row in rows}
    filled: list[Row] = []
    ts, step = rows[0].ts, timedelta(minutes=minutes)
    while ts <= rows[-1].ts:
        filled.append(found.get(ts) or Row("", ts, 0, 0, 0, 0, 0, 0, 0, 0, 0, None, None))
        ts += step
    return filled


def _depths(
    stats: DataFrame, minutes: int, queues: list[str]
) -> dict[str, list[tuple[datetime, int]]]:
    """How deep the deepest queues were, the deepest first."""
    from pyspark.sql import functions as F

    unit = {1: "MINUTE", 60: "HOUR", 1440: "DAY"}[minutes]
    deepest = [
        row["queue"]
        for row in stats.groupBy("queue")
        .agg(F.max("depth").alias("depth"))
        .orderBy(F.desc("depth"), "queue")
        .limit(SERIES_MAX)
        .collect()
    ]
    points = (
        stats.where(F.col("queue").isin(deepest))
        .groupBy("queue", F.date_trunc(unit, "ts").alias("at"))
        .agg(F.expr(LAST_DEPTH).alias("depth"))
        .orderBy("at")
        .collect()
    )
    depths: dict[str, list[tuple[datetime, int]]] = {queue: [] for queue in deepest}
    for point in points:
        depths[point["queue"]].append((_utc(point["at"]), point["depth"]))
    return depths


def _reasons(events: DataFrame) -> list[DeadLetters]:
    from pyspark.sql import functions as F

    rows = (
        events.where(F.col("event") == "dead_lettered")
        .groupBy("queue", F.coalesce("reason", F.lit("")).alias("reason"))
        .agg(F.count(F.lit(1)).alias("n"))
        .orderBy(F.desc("n"), "queue", "reason")
        .limit(REASON_ROWS_MAX)
        .collect()
    )
    return [DeadLetters(row["queue"], row["reason"] or "unknown", row["n"]) for row in rows]


def _utc(value: datetime) -> datetime:
    """Spark hands out times of the driver's zone without saying so."""
    return value.astimezone(UTC)


def write_whole(path: Path, text: str) -> None:
    """Under another name first, so that nobody sees half a page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
