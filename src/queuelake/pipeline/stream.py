"""Queues as a stream: `spark.readStream.format("queuelake")`.

What was read is known to Spark alone, in its checkpoint. New queues which match join from their
beginning, deleted ones leave. `commit` means nothing here: it lags one batch behind, and the
archive tells the broker itself how far it has come.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from queuelake.errors import NotFoundError, RefusedError
from queuelake.pipeline.offsets import (
    Offsets,
    begins_of,
    ends_of,
    place,
    plan_end,
    resolve,
    stores_of,
)
from queuelake.pipeline.schema import ReadOptions, arrow_schema
from queuelake.pipeline.source import plan_tasks, read_task, shards_of

if TYPE_CHECKING:
    import pyarrow as pa

    from queuelake.flight import Shard
    from queuelake.pipeline.connection import Connection

log = logging.getLogger(__name__)


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The driver's part lives as long as the query; tasks get a copy which never connected."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._connection: Connection | None = None
        self._target: Offsets | None = None  # of Trigger.AvailableNow

    def initialOffset(self) -> Offsets:
        connection = self._connected()
        shards = shards_of(connection, self._options)
        return resolve(
            "startingOffsets",
            self._options.starting,
            shards,
            lambda ts_ms: connection.shards(self._options.table, self._options.queue, ts_ms),
            "earliest",
        )

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.rows_per_trigger_max
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        shards = self._shards()
        self._check_store(shards, start)
        self._check_not_ahead(shards, start)
        ends = ends_of(shards) if self._target is None else self._target
        budget = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return plan_end(start, begins_of(shards), ends, budget)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = ends_of(self._shards())

    def reportLatestOffset(self) -> Offsets:
        return ends_of(self._shards())

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        shards = self._shards()
        self._check_store(shards, end)  # of a batch which was planned before a restart
        return plan_tasks(self._options, self._schema.names, shards, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        try:
            yield from read_task(self._options, self._schema, partition)
        except NotFoundError as error:
            log.warning("a queue was deleted while it was read: %s", error)

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Connection:
        from queuelake.pipeline.connection import Connection

        if self._connection is None:
            self._connection = Connection(self._options.endpoint)
        return self._connection

    def _shards(self) -> list[Shard]:
        return self._connected().shards(self._options.table, self._options.queue)

    def _check_store(self, shards: list[Shard], places: Offsets) -> None:
        """Places in another store say nothing about this one."""
        known = stores_of(shard.queue_id for shard in shards)
        named = stores_of(places)
        if not known or not named or known & named:
            return
        words = (
            f"{self._options.table} of {self._options.queue!r}: the checkpoint is of store "
            f"{', '.join(sorted(named))}, this broker has store {', '.join(sorted(known))}"
        )
        if self._options.fail_on_data_loss:
            raise RefusedError(
                f"{words}; use another checkpointLocation, or failOnDataLoss=false to read all "
                "this store has"
            )
        log.warning("%s; what was not read of the other one is left out", words)

    def _check_not_ahead(self, shards: list[Shard], start: Offsets) -> None:
        """A store which was put back to an older state gives its sequences to other rows."""
        for shard in shards:
            read = place(start, (shard.queue_id, shard.shard))
            if read <= shard.upto:
                continue
            words = (
                f"{self._options.table} of {shard.queue!r}, shard {shard.shard}: {read} rows were "
                f"read and there are {shard.upto}: the store is older than the checkpoint"
            )
            if self._options.fail_on_data_loss:
                raise RefusedError(f"{words}; failOnDataLoss=false waits for it to catch up")
            log.warning("%s", words)
