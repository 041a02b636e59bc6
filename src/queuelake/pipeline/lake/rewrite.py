"""The same rows, or fewer of them, in other files: merging, deleting and erasing are all this."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from queuelake.pipeline.lake import tasks
from queuelake.pipeline.lake.files import DataFile, Writer
from queuelake.pipeline.lake.lease import HeldLease
from queuelake.pipeline.lake.table import Change, LakeTable, Move
from queuelake.pipeline.lake.tasks import Keep, Written, collected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_ROWS: Final = 64 * 1024


def rewrite(
    spark: SparkSession,
    table: LakeTable,
    groups: list[list[DataFile]],
    lease: HeldLease,
    *,
    keep: Keep | None = None,
    moves: dict[str, Move] | None = None,
) -> int:
    """Replace each group of files by one with their rows (those which `keep` lets through).

    Files of a group belong to one partition, and have one tag. Returns how many rows are gone.
    """
    if not groups:
        return 0
    root, definition, schema, epoch = table.uri, table.definition, table.schema(), lease.epoch

    def do(group: list[DataFile]) -> Iterator[pa.RecordBatch]:
        writer = Writer(root, definition, schema, epoch, group[0].tag)
        try:
            for rows in batches(root, group):
                writer.write(rows if keep is None else keep(rows))
            written = [Written(definition.name, file) for file in writer.finish()]
        finally:
            writer.abandon()
        yield tasks.report(written)

    adds = [one.file for one in collected(tasks.spread(spark, groups, do))]
    removes = [file for group in groups for file in group]
    table.commit(Change(adds, removes, moves or {}, rewrite=keep is None), lease)
    return sum(file.rows for file in removes) - sum(file.rows for file in adds)


def batches(
    root: str, files: list[DataFile], columns: list[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of these files, a bounded number at a time."""
    source, place = fs.FileSystem.from_uri(root)
    for file in files:
        with source.open_input_file(f"{place}/{file.path}") as opened:
            parquet = pq.ParquetFile(opened)
            for batch in parquet.iter_batches(BATCH_ROWS, columns=columns):
                yield pa.Table.from_batches([batch])
