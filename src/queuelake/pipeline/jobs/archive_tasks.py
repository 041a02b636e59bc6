"""What a task of the archive does: rows of the broker into files of a table.

Queues without a schema are written as they are read, in one step. Rows of the others pass through
Spark in between, which reads their payloads; what does not fit goes to `quarantine`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from queuelake import tables
from queuelake.pipeline import payloads, wire
from queuelake.pipeline.failpoint import failpoint
from queuelake.pipeline.lake import definitions, tasks
from queuelake.pipeline.lake.definitions import ARCHIVED, Definition
from queuelake.pipeline.lake.files import Writer
from queuelake.pipeline.lake.ranges import Slice
from queuelake.pipeline.lake.tasks import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ_DDL: Final = tables.ddl({**tables.MESSAGES, "settled": "boolean"})


class Target(Struct, frozen=True):
    """Where tasks read and write."""

    endpoint: wire.Endpoint
    lake: str
    table: str
    epoch: int


def plain(spark: SparkSession, target: Target, work: list[list[Slice]]) -> DataFrame:
    """The files of queues whose rows are taken as they are."""
    definition = ARCHIVED[target.table]

    def do(slices: list[Slice]) -> Iterator[pa.RecordBatch]:
        failpoint(f"archive:{target.table}:task")
        with writing(target, definition, definition.schema()) as writer:
            for part in slices:
                for batch in read(target, part):
                    writer.write(dated(pa.Table.from_batches([batch])))
            files = writer.finish()
        yield tasks.report([Written(definition.name, file) for file in files])

    return tasks.spread(spark, work, do)


def valued(
    spark: SparkSession, target: Target, work: list[list[Slice]], reader: payloads.PayloadReader
) -> DataFrame:
    """The files of queues whose payloads are read: rows with their value, or in quarantine."""

    def do(slices: list[Slice]) -> Iterator[pa.RecordBatch]:
        for part in slices:
            for batch in read(target, part):
                settled = pa.repeat(part.settled, batch.num_rows)
                yield batch.append_column("settled", settled)

    rows = reader.with_value(tasks.spread(spark, work, do, READ_DDL))
    return rows.mapInArrow(sorted_out(target, reader.column), tasks.RESULT_DDL)


def sorted_out(target: Target, value: pa.DataType | None) -> payloads.ArrowStep:
    """A step which writes rows with a `reason` to quarantine, all others to messages."""
    fitting = definitions.MESSAGES
    unfit = definitions.QUARANTINE

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with (
            writing(target, fitting, fitting.schema(value)) as good,
            writing(target, unfit, unfit.schema()) as bad,
        ):
            for batch in batches:
                rows = dated(pa.Table.from_batches([batch]))
                fits = pc.is_null(rows["reason"])
                good.write(rows.filter(fits))
                bad.write(rows.filter(pc.invert(fits)))
            written = [Written(fitting.name, file) for file in good.finish()]
            written += [Written(unfit.name, file) for file in bad.finish()]
        yield tasks.report(written)

    return write


@contextmanager
def writing(target: Target, definition: Definition, schema: pa.Schema) -> Iterator[Writer]:
    writer = Writer(f"{target.lake}/{definition.name}", definition, schema, target.epoch)
    try:
        yield writer
    finally:
        writer.abandon()


def read(target: Target, part: Slice) -> Iterator[pa.RecordBatch]:
    ticket = {
        "table": target.table,
        "queue_id": part.queue_id,
        "shard": part.shard,
        "after": part.after,
        "upto": part.upto,
        "fail_on_loss": False,  # what is lost stays so: the job counts it and goes on
    }
    skip = pa.array(part.skip, pa.int64())
    for batch in wire.read_rows(target.endpoint, ticket):
        if part.skip:
            batch = batch.filter(pc.invert(pc.is_in(batch.column("seqno"), value_set=skip)))
        yield batch


def dated(rows: pa.Table) -> pa.Table:
    return rows.append_column("date", rows["ts"].cast(pa.timestamp("us", "UTC")).cast(pa.date32()))
