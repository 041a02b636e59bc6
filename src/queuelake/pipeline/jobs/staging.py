"""Rows of a DataFrame onto the stage of the broker, straight from the tasks which have them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from queuelake.flight import Stage
from queuelake.pipeline import wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ANSWER = "part int, file string, rows bigint"


def stage_frame(frame: DataFrame, endpoint: wire.Endpoint, stage: Stage) -> tuple[list[str], int]:
    """The files to be named in the commit, in the order of the partitions, and their rows.

    A task which is run twice stages twice; only the files of the one Spark counts are named.
    """
    put = _putter(endpoint, msgspec.to_builtins(stage))
    rows = sorted(frame.mapInArrow(put, ANSWER).collect())
    return [row["file"] for row in rows], sum(row["rows"] for row in rows)


def _putter(
    endpoint: wire.Endpoint, stage: dict[str, Any]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def put(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        part = task.partitionId()
        # Unlike that of any other attempt, also of a run of the job which was killed.
        name = f"{part}-{uuid.uuid4().hex}"
        staged = wire.stage_rows(endpoint, dict(stage, task=name), batches)
        if staged is not None:
            yield pa.RecordBatch.from_pydict(
                {
                    "part": pa.array([part], pa.int32()),
                    "file": pa.array([staged["file"]], pa.string()),
                    "rows": pa.array([staged["rows"]], pa.int64()),
                }
            )

    return put
