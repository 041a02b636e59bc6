"""A queue as Spark sees it, and rows to write to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from queuelake.pipeline.failures import one_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WAIT_S = 300


class Queue:
    """Written with the sink, read with the source."""

    def __init__(self, spark: SparkSession, options: dict[str, str], name: str) -> None:
        self.spark = spark
        self._options = options | {"queue": f"$queue/{name}"}

    def append(self, frame: DataFrame, **options: str) -> None:
        writer = frame.write.format("queuelake").mode("append")
        writer.options(**(self._options | options)).save()

    def refused(self, frame: DataFrame, **options: str) -> str:
        with pytest.raises(Exception) as caught:
            self.append(frame, **options)
        return one_line(caught.value)

    def rows(self) -> list[Any]:
        frame = self.spark.read.format("queuelake").options(**self._options).load()
        return frame.orderBy("partition", "seqno").collect()

    def payloads(self) -> list[str]:
        return sorted(bytes(row.payload).decode() for row in self.rows())

    def stream(self, frame: DataFrame, checkpoint: Path, **options: str) -> StreamingQuery:
        writer = frame.writeStream.format("queuelake").options(**(self._options | options))
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = writer.start()
        assert query.awaitTermination(WAIT_S)
        return query


def numbers(spark: SparkSession, first: int, end: int, tasks: int = 2) -> DataFrame:
    frame = spark.range(first, end, numPartitions=tasks)
    return frame.selectExpr("concat('m', lpad(id, 6, '0')) as payload")


def names(first: int, end: int) -> list[str]:
    return [f"m{number:06}" for number in range(first, end)]
