"""Work for Spark's tasks which yields files: one item of work, one task, one row for each file.

The data itself goes from the broker to the file inside the task and never enters the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import pyarrow as pa
from msgspec import Struct

from queuelake.pipeline.lake.files import DataFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

RESULT_DDL: Final = "result string"
PARALLELISM_UNKNOWN: Final = 8
Work = TypeVar("Work")
Keep = Callable[[pa.Table], pa.Table]  # rows to those which stay; runs in tasks
Check = Callable[[], None]  # raises when the job is to stop


class Written(Struct, frozen=True):
    """A file of a table, as a task reports it."""

    table: str
    file: DataFile


def spread(
    spark: SparkSession,
    work: list[Work],
    do: Callable[[Work], Iterator[pa.RecordBatch]],
    schema: StructType | str = RESULT_DDL,
) -> DataFrame:
    """One task for each item of work; the DataFrame has what `do` yields."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from do(work[number])

    numbers = spark.range(0, len(work), 1, max(1, len(work)))
    return numbers.mapInArrow(run, schema)


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once, as far as the driver can tell."""
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect does not say
        return PARALLELISM_UNKNOWN


def report(written: list[Written]) -> pa.RecordBatch:
    """The files of a task, as the row batch it answers with."""
    lines = [msgspec.json.encode(one).decode() for one in written]
    return pa.record_batch({"result": pa.array(lines, pa.string())})


def collected(results: DataFrame) -> list[Written]:
    """Run the tasks, and learn which files there are."""
    rows: list[Any] = results.collect()
    return [msgspec.json.decode(row.result, type=Written) for row in rows]
