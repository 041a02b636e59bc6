"""`replay`: rows of the lake go to a queue again, in order, each once.

A message gets the id `replay:{job}:{n}` and keeps the time at which it was first published as the
property `original-ts`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from queuelake.errors import RefusedError
from queuelake.pipeline.jobs.expressions import check_expression
from queuelake.pipeline.jobs.job import JobContext, Summary
from queuelake.pipeline.jobs.plan import Batch, plan_of, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER: Final = "ts"
# Rows with the same time come in the order of their place, so that the order is one and only.
PLACE: Final = ("queue_id", "partition", "seqno")
BATCH_ROWS: Final = 20_000
STAGED: Final = ["payload", "key", "properties", "content_type"]
ORIGINAL_TS: Final = "original-ts"


@dataclass(frozen=True, slots=True)
class Options:
    queue: str
    to: str
    where: str = ""
    order_by: str = ORDER
    rate: float = 0.0  # rows a second; 0: as fast as it goes
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.where:
            check_expression(self.where, "--where")
        check_expression(self.order_by, "--order-by")
        if self.rate < 0:
            raise RefusedError(f"--rate {self.rate:g}: allowed: rows a second, above 0")


def run(context: JobContext, options: Options) -> Summary:
    """Replay, or with `dry_run` only count."""
    if options.dry_run:
        return _count(context, options)
    fixed = {
        "queue": options.queue,
        "to": options.to,
        "where": options.where,
        "order_by": options.order_by,
    }
    plan = plan_of(
        context,
        fixed,
        lambda: _ordered(chosen(context, options), options),
        # A slow replay sends about once a second, so that the rate is one also in small.
        max(1, min(BATCH_ROWS, round(options.rate))) if options.rate else BATCH_ROWS,
        options.to,
    )
    job = context.id
    rows = send(context, plan, lambda batch, rows: staged(job, batch, rows), rate=options.rate)
    plan.forget()
    return Summary(f"{rows:,} messages of {options.queue} are in {options.to}", {"rows": rows})


def chosen(context: JobContext, options: Options) -> DataFrame:
    """The rows of the lake which are meant."""
    from queuelake.pipeline.lake.lake import Lake

    lake = Lake(context.lake)
    rows = lake.read(context.spark, "messages", queues=[options.queue])
    return rows.where(options.where) if options.where else rows


def _count(context: JobContext, options: Options) -> Summary:
    from pyspark.sql import functions as F

    found = (
        chosen(context, options)
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.sum(F.length("payload")).alias("bytes"),
            F.date_format(F.min("ts"), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").alias("first"),
            F.date_format(F.max("ts"), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").alias("last"),
        )
        .collect()[0]
    )
    detail: dict[str, object] = {
        "rows": found["rows"],
        "bytes": found["bytes"] or 0,
        "first": found["first"] or "-",
        "last": found["last"] or "-",
    }
    return Summary(f"{found['rows']:,} messages would go to {options.to}; nothing was sent", detail)


def _ordered(rows: DataFrame, options: Options) -> DataFrame:
    from pyspark.sql import functions as F

    first_published = F.coalesce(
        F.col("properties")[ORIGINAL_TS],
        F.date_format("ts", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"),
    )
    own = F.map_filter(
        F.coalesce("properties", F.create_map().cast("map<string,string>")),
        lambda name, _: name != ORIGINAL_TS,
    )
    properties = F.map_concat(own, F.create_map(F.lit(ORIGINAL_TS), first_published))
    view = f"replay_{uuid.uuid4().hex}"
    rows.withColumn("properties", properties).createOrReplaceTempView(view)
    # Names in the order and in the place mean columns of the view, `ts` as it was.
    order = f"{options.order_by}, {', '.join(PLACE)}"
    return rows.sparkSession.sql(f"SELECT {', '.join(STAGED)} FROM {view} ORDER BY {order}")


def staged(job: str, batch: Batch, rows: pa.Table) -> pa.Table:
    """Rows of a plan as they are staged: with an id which says the job and the number."""
    ids = [f"replay:{job}:{n}" for n in range(batch.first, batch.first + batch.rows)]
    return rows.append_column("message_id", pa.array(ids, pa.string()))
