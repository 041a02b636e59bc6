"""`redrive`: dead letters go back to the queue they came from, those which a condition chooses.

A message is sent as it was: its key, its id, its own properties; its payload may be mended by an
expression. It leaves the dead letters in the commit which makes it visible, so it is always in
exactly one of the two queues. The lake keeps a row for each, in the table `redrives`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from queuelake.errors import NotFoundError
from queuelake.flight import Committed
from queuelake.pipeline.jobs.expressions import check_expression
from queuelake.pipeline.jobs.job import JobContext, Summary
from queuelake.pipeline.jobs.journal import Journal
from queuelake.pipeline.jobs.plan import Plan, after_last, plan_of, send
from queuelake.pipeline.lake.definitions import Definition
from queuelake.pipeline.lake.table import Move

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH_ROWS: Final = 10_000
DEAD: Final = "dlq-"
# What a dead letter says of itself, as columns for conditions and expressions.
STORY: Final = {
    "reason": "properties['dlq-reason']",
    "reason_text": "properties['dlq-reason-text']",
    "original_queue": "properties['dlq-original-queue']",
    "consumer_group": "properties['dlq-group']",
    "delivery_count": "CAST(properties['dlq-delivery-count'] AS INT)",
    "first_attempt": "CAST(NULLIF(properties['dlq-first-attempt'], '') AS TIMESTAMP)",
}
STAGED: Final = [
    *("payload", "key", "properties", "content_type", "message_id", "topic"),
    *("from_queue_id", "from_partition", "from_seqno"),
]
REDRIVES: Final = Definition(
    "redrives",
    {
        "job": "string",
        "batch": "bigint",
        "ts": "timestamp",
        "from_queue": "string",
        "from_queue_id": "string",
        "from_partition": "int",
        "from_seqno": "bigint",
        "to_queue": "string",
        "message_id": "string",
        "key": "string",
        "reason": "string",
        "changed": "boolean",  # its payload
        "moved": "boolean",  # null: others took some of its batch meanwhile, and maybe this one
    },
)


@dataclass(frozen=True, slots=True)
class Options:
    queue: str  # of dead letters
    where: str = ""
    set_payload: str = ""
    to: str = ""  # instead of where they came from
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.where:
            check_expression(self.where, "--where")
        if self.set_payload:
            check_expression(self.set_payload, "--set-payload")


def run(context: JobContext, options: Options) -> Summary:
    """Send dead letters back, or with `dry_run` count them by reason."""
    if options.dry_run:
        return _count(context, options)
    fixed = {
        "queue": options.queue,
        "where": options.where,
        "set_payload": options.set_payload,
        "to": options.to,
    }
    plan = plan_of(context, fixed, lambda: rows_to_send(context, options), BATCH_ROWS)
    audit = Audit(context, plan)
    audit.catch_up(after_last(context.connection, context.id, len(plan.batches)))
    rows = send(context, plan, lambda batch, rows: rows.select(STAGED), audit.add)
    plan.forget()
    detail: dict[str, object] = {"rows": rows}
    if rows < plan.rows:
        # Settled letters are read as long as the store has them; the commit leaves them alone.
        detail["no longer there"] = plan.rows - rows
    words = f"{rows:,} dead letters of {options.queue} are back"
    return Summary(words, detail)


class Audit:
    """A row for each message, exactly once: the table knows which batches it has."""

    def __init__(self, context: JobContext, plan: Plan) -> None:
        self._journal = Journal(context, context.connection)
        self._job = context.id
        self._plan = plan
        self._source = f"redrive:{context.id}"

    def catch_up(self, batches: int) -> None:
        """Rows of batches which were committed just before somebody stopped the job."""
        for number in range(self._journal.lake.table(REDRIVES).applied(self._source), batches):
            self._write(number, self._plan.read(self._plan.batches[number]), None)

    def add(self, number: int, rows: pa.Table, done: Committed) -> None:
        self._write(number, rows, True if done.rows == rows.num_rows else None)

    def _write(self, number: int, rows: pa.Table, moved: bool | None) -> None:
        count = rows.num_rows
        now = datetime.now(UTC)
        schema = REDRIVES.schema()
        constant = {"job": self._job, "batch": number, "ts": now, "moved": moved}
        columns = [
            pa.array([constant[field.name]] * count, field.type)
            if field.name in constant
            else rows["target" if field.name == "to_queue" else field.name].cast(field.type)
            for field in schema
        ]
        table = pa.Table.from_arrays(columns, schema=schema)
        self._journal.add(REDRIVES, table, {self._source: Move(number, number + 1)})


def chosen(context: JobContext, options: Options) -> DataFrame:
    """The dead letters which are meant, with their story as columns."""
    from pyspark.sql import functions as F

    if not context.connection.shards("messages", options.queue):
        raise NotFoundError(f"there is no queue {options.queue!r}")
    letters = (
        context.spark.read.format("queuelake")
        .options(**context.place.options())
        .option("queue", options.queue)
        .load()
        .withColumns({name: F.expr(text) for name, text in STORY.items()})
    )
    return letters.where(options.where) if options.where else letters


def rows_to_send(context: JobContext, options: Options) -> DataFrame:
    """What is staged, what is written down, and where it goes; in the order of the queue."""
    from pyspark.sql import functions as F

    letters = chosen(context, options)
    target = F.lit(options.to) if options.to else F.col("original_queue")
    payload = F.col("payload")
    if options.set_payload:
        payload = F.expr(f"CAST({options.set_payload} AS BINARY)")
    own = F.map_filter("properties", lambda name, _: ~name.startswith(DEAD))
    rows = letters.select(
        payload.alias("payload"),
        "key",
        own.alias("properties"),
        "content_type",
        F.col("properties")["dlq-original-id"].alias("message_id"),
        F.col("properties")["dlq-original-topic"].alias("topic"),
        F.col("queue").alias("from_queue"),
        F.col("queue_id").alias("from_queue_id"),
        F.col("partition").alias("from_partition"),
        F.col("seqno").alias("from_seqno"),
        target.alias("target"),
        "reason",
        (~payload.eqNullSafe(F.col("payload"))).alias("changed"),
        F.sha2(target, 256).alias("folder"),  # a name of a queue is no name of a folder
    )
    # What does not come from a queue (an answer of a vehicle, say) cannot go back to one.
    rows = rows.where(F.col("target").isNotNull())
    return rows.orderBy("folder", "from_partition", "from_seqno")


def _count(context: JobContext, options: Options) -> Summary:
    from pyspark.sql import functions as F

    groups = (
        chosen(context, options)
        .groupBy("original_queue", F.coalesce("reason", F.lit("-")).alias("reason"))
        .count()
        .orderBy("original_queue", "reason")
        .collect()
    )
    total = sum(row["count"] for row in groups)
    detail: dict[str, object] = {
        f"{row['original_queue'] or 'no queue'}, {row['reason']}": row["count"] for row in groups
    }
    # Some of them may be settled: only the broker, in the commit, knows for sure.
    return Summary(f"at most {total:,} dead letters would go back; nothing was sent", detail)
