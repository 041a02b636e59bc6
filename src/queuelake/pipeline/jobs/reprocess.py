"""Rows in quarantine get another chance: those which fit by now move to `messages`.

First they are committed to `messages`, in files whose names tell the run; then they are taken out
of `quarantine`, in a commit which says that this run is finished. Is a run found which is not
(`messages` knows it, `quarantine` does not), then its second half is done before anything else.
Only rows which the archive has left behind for good take part: as long as it may come back to
a range, the range is its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from queuelake.flight import PayloadSchema, Shard
from queuelake.pipeline.failpoint import failpoint
from queuelake.pipeline.jobs.archive_tasks import dated
from queuelake.pipeline.jobs.fold import run_of
from queuelake.pipeline.jobs.job import JobContext, Summary
from queuelake.pipeline.lake import definitions, sweep, tasks
from queuelake.pipeline.lake.files import DataFile, Writer
from queuelake.pipeline.lake.lake import Lake, read_files
from queuelake.pipeline.lake.lease import HeldLease
from queuelake.pipeline.lake.rewrite import batches, rewrite
from queuelake.pipeline.lake.table import Change, LakeTable, Move
from queuelake.pipeline.lake.tasks import Written, collected
from queuelake.pipeline.payloads import ArrowStep, PayloadReader, extend_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN: Final = "reprocess"
PLACE: Final = ["queue_id", "partition", "seqno"]


class Options(Struct, frozen=True):
    queue: str = "*"  # a name, or a pattern of names
    wait_s: float = 600.0


def run(context: JobContext, options: Options) -> Summary:
    lake = Lake(context.lake)
    with lake.lease(context.connection, context.id, options.wait_s) as lease:
        for definition in (definitions.MESSAGES, definitions.QUARANTINE):
            sweep.sweep(lake.table(definition), lease)
        finish(context.spark, lake, lease)
        shards = context.connection.shards("messages", options.queue)
        moved = move(context.spark, lake, shards, lease)
        failpoint("reprocess:between")
        finish(context.spark, lake, lease)
    left = sum(file.rows for file in lake.table(definitions.QUARANTINE).files())
    context.progress.add(moved)
    detail: dict[str, object] = {"moved to messages": moved, "still in quarantine": left}
    return Summary(f"{moved:,} rows fit now, {left:,} do not", detail)


def move(spark: SparkSession, lake: Lake, shards: list[Shard], lease: HeldLease) -> int:
    """Commit rows which fit by now to `messages`; how many."""
    messages = lake.table(definitions.MESSAGES)
    quarantine = lake.table(definitions.QUARANTINE)
    number = messages.applied(RUN)
    jobs: list[DataFrame] = []
    for schema, chosen in by_schema(quarantine.files(), shards).items():
        reader = PayloadReader(spark, None if schema and schema.format == "binary" else schema)
        extend_value(messages, reader, lease)
        rows = settled_rows(spark, messages, quarantine, chosen)
        step = fitting(messages.uri, reader.column, lease.epoch, f"r{number + 1}")
        jobs.append(reader.with_value(rows).mapInArrow(step, tasks.RESULT_DDL))
    adds = [one.file for job in jobs for one in collected(job)]
    if adds:
        failpoint("reprocess:before_commit")
        messages.commit(Change(adds, moves={RUN: Move(number, number + 1)}), lease)
    return sum(file.rows for file in adds)


def by_schema(
    files: list[DataFile], shards: list[Shard]
) -> dict[PayloadSchema | None, list[DataFile]]:
    """Files by the schema their queue has now; those of queues nobody asked for are left out."""
    by_id = {shard.queue_id: shard.schema for shard in shards}
    by_name = {shard.queue: shard.schema for shard in shards}
    chosen: dict[PayloadSchema | None, list[DataFile]] = {}
    for file in files:
        name = file.partition["queue"] or ""
        if file.bounds.queue_id in by_id:
            chosen.setdefault(by_id[file.bounds.queue_id], []).append(file)
        elif name in by_name:  # the queue was deleted and made anew: its schema is what we have
            chosen.setdefault(by_name[name], []).append(file)
    return chosen


def settled_rows(
    spark: SparkSession, messages: LakeTable, quarantine: LakeTable, files: list[DataFile]
) -> DataFrame:
    """Rows the archive will not come back to, as `PayloadReader` wants them."""
    from pyspark.sql import functions as F

    reached = {
        (file.bounds.queue_id, partition): messages.applied(
            f"archive:{file.bounds.queue_id}:{partition}"
        )
        for file in files
        for partition in range(file.bounds.partition_min, file.bounds.partition_max + 1)
    }
    ends = [(queue_id, partition, upto) for (queue_id, partition), upto in reached.items()]
    places = spark.createDataFrame(ends, "queue_id string, partition int, upto bigint")
    rows = read_files(spark, quarantine, files).join(F.broadcast(places), ["queue_id", "partition"])
    return (
        rows.where("seqno <= upto")
        .drop("upto", "reason", "date")
        .withColumn("settled", F.lit(False))
    )


def fitting(root: str, value: pa.DataType | None, epoch: int, tag: str) -> ArrowStep:
    """A step which writes rows without a `reason`, and forgets the others."""
    definition = definitions.MESSAGES

    def write(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = Writer(root, definition, definition.schema(value), epoch, tag)
        try:
            for part in parts:
                rows = pa.Table.from_batches([part])
                writer.write(dated(rows.filter(pc.is_null(rows["reason"]))))
            written = [Written(definition.name, file) for file in writer.finish()]
        finally:
            writer.abandon()
        yield tasks.report(written)

    return write


def finish(spark: SparkSession, lake: Lake, lease: HeldLease) -> None:
    """Take rows out of `quarantine` which a run has put into `messages`."""
    messages = lake.table(definitions.MESSAGES)
    quarantine = lake.table(definitions.QUARANTINE)
    done, begun = quarantine.applied(RUN), messages.applied(RUN)
    if done == begun:
        return
    moved = [file for file in messages.files() if run_of(file.tag) > done]
    touched = {file.bounds.queue_id for file in moved}
    groups = [[file] for file in quarantine.files() if file.bounds.queue_id in touched]
    if not groups:
        quarantine.commit(Change(moves={RUN: Move(done, begun)}), lease)
        return
    places: dict[tuple[str, int], list[int]] = {}
    for rows in batches(messages.uri, moved, PLACE):
        for row in rows.to_pylist():
            places.setdefault((row["queue_id"], row["partition"]), []).append(row["seqno"])
    moves = {RUN: Move(done, begun)}
    rewrite(spark, quarantine, groups, lease, keep=without(places), moves=moves)


def without(places: dict[tuple[str, int], list[int]], column: str = "seqno") -> tasks.Keep:
    """Lets all rows through but those at these places."""

    def keep(rows: pa.Table) -> pa.Table:
        for (queue_id, partition), sequences in places.items():
            there = pc.and_(
                pc.equal(rows["queue_id"], queue_id), pc.equal(rows["partition"], partition)
            )
            named = pc.is_in(rows[column], value_set=pa.array(sequences, pa.int64()))
            rows = rows.filter(pc.invert(pc.and_(there, named)))
        return rows

    return keep
