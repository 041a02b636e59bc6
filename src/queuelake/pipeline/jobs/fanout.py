"""`fanout`: one payload for every vehicle of a table, a million of them in one commit.

The ids come from a file, a table, or a query over them. Tasks stage them; the commit makes them
pending rows of one request, as a trigger with all of them would, exactly once for each job id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from queuelake.control_sdv import VINS_PER_CANCEL_MAX
from queuelake.errors import NotFoundError, RefusedError
from queuelake.flight import CommitAsked, Stage
from queuelake.pipeline.jobs.expressions import check_query
from queuelake.pipeline.jobs.inputs import read_input
from queuelake.pipeline.jobs.job import JobContext, Summary
from queuelake.pipeline.jobs.staging import stage_frame
from queuelake.tables import SDV_NAME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DATA_BYTES_MAX: Final = 8 * 1024 * 1024
CANCEL_AT_ONCE: Final = min(20_000, VINS_PER_CANCEL_MAX)
BATCH: Final = 0
SHOWN: Final = ("triggered", "pending", "in_flight", "acked", "rejected", "expired", "cancelled")
WATCH_EVERY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Options:
    request: str
    source: str = ""  # a file or folder
    sql: str = ""
    tables: dict[str, str] = field(default_factory=dict)  # names in the query, and where they are
    id_column: str = "id"
    data: Path | None = None
    data_id: str = ""
    cancel: bool = False
    watch: bool = False

    def __post_init__(self) -> None:
        if self.source and self.sql:
            raise RefusedError("--from and --sql: give one of them")
        if self.sql:
            check_query(self.sql, "--sql")
        if self.cancel:
            return
        if not (self.source or self.sql):
            raise RefusedError("whom to? give --from PATH or --sql QUERY")
        if self.data is None and not self.data_id:
            raise RefusedError("what? give --data FILE, or --data-id of data which was published")


def run(context: JobContext, options: Options) -> Summary:
    context.progress.unit = "vehicles"
    if options.cancel:
        return _cancel(context, options)
    payload, data_id = _data(options)
    connection = context.connection
    ids = ids_of(context, options)
    stage = Stage(context.id, BATCH, SDV_NAME, "", options.request, data_id)
    context.progress.message = "staging"
    files, staged = stage_frame(ids, connection.endpoint, stage)
    context.progress.total = staged
    if not files:
        raise NotFoundError("there is no id in it: nothing was fanned out")
    context.check()
    context.progress.message = "committing"
    asked = CommitAsked(context.id, BATCH, SDV_NAME, files, options.request, data_id, payload)
    done = connection.commit(asked)
    context.progress.done = done.rows
    context.progress.message = ""
    again = ", as they were before" if done.repeated else ""
    words = f"{done.rows:,} vehicles have {options.request!r} pending{again}"
    detail: dict[str, object] = {"vehicles": done.rows, "data": data_id}
    if done.rejected:
        detail["ids which are none"] = done.rejected
    follow = watch if options.watch else request
    return Summary(words, detail | follow(context, options.request))


def ids_of(context: JobContext, options: Options) -> DataFrame:
    """Every id once, as text."""
    from pyspark.sql import functions as F

    spark = context.spark
    if options.sql:
        for name, place in options.tables.items():
            read_input(spark, place).createOrReplaceTempView(name)
        rows = spark.sql(options.sql)
    else:
        rows = read_input(spark, options.source)
    if options.id_column not in rows.columns:
        there = ", ".join(rows.columns[:20])
        raise RefusedError(f"--id-column {options.id_column!r} is not there; columns: {there}")
    ids = rows.select(F.col(f"`{options.id_column}`").cast("string").alias("id"))
    return ids.where(F.col("id").isNotNull()).distinct()


def request(context: JobContext, request_id: str) -> dict[str, object]:
    """How far a request has come."""
    found = context.connection.call("sdv_request", {"request_id": request_id})
    numbers = cast(dict[str, Any], found)
    return {name: numbers[name] for name in SHOWN if name in numbers}


def watch(context: JobContext, request_id: str) -> dict[str, object]:
    """Follow a request until nobody waits any more, or until it is stopped."""
    context.progress.unit = "acknowledged"
    while True:
        found = request(context, request_id)
        left = int(str(found["pending"])) + int(str(found["in_flight"]))
        context.progress.total = int(str(found["triggered"]))
        context.progress.done = context.progress.total - left
        context.progress.message = f"{found['in_flight']} in flight"
        if not left:
            return found
        context.wait(WATCH_EVERY_S)


def _data(options: Options) -> tuple[bytes, str]:
    """The payload, if it is to be sent, and its id: its SHA-1 unless named."""
    if options.data is None:
        return b"", options.data_id
    payload = options.data.read_bytes()
    if not payload or len(payload) > DATA_BYTES_MAX:
        allowed = f"allowed: 1 to {DATA_BYTES_MAX} bytes"
        raise RefusedError(f"--data {options.data}: has {len(payload)} bytes; {allowed}")
    return payload, options.data_id or hashlib.sha1(payload, usedforsecurity=False).hexdigest()


def _cancel(context: JobContext, options: Options) -> Summary:
    """Call off what was not sent yet: for all vehicles, or for those of a table."""
    cancelled = in_flight = 0
    chosen: Iterator[tuple[str, ...]] = iter([()])  # none named: everybody
    if options.source or options.sql:
        rows = ids_of(context, options)
        context.progress.total = rows.count()
        chosen = _portions(row["id"] for row in rows.toLocalIterator())
    for vins in chosen:
        context.check()
        args: dict[str, object] = {"request_id": options.request, "vins": list(vins)}
        found = cast(dict[str, int], context.connection.call("sdv_cancel", args))
        cancelled += found["cancelled"]
        in_flight = found["in_flight"]
        context.progress.add(len(vins))
    words = f"{cancelled:,} vehicles will not get {options.request!r}"
    return Summary(words, {"cancelled": cancelled, "on their way": in_flight})


def _portions(ids: Iterator[str]) -> Iterator[tuple[str, ...]]:
    while portion := tuple(islice(ids, CANCEL_AT_ONCE)):
        yield portion
