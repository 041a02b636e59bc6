"""Queues as tables for Spark: `spark.read.format("queuelake")`, and the sink of the same name.

The driver does arithmetic on offsets; a task opens one range and passes record batches on. Reading
changes nothing in a queue.

    spark.read.format("queuelake").option("queue", "$queue/orders").load()

Spark's own method names stay as Spark spells them. Readers and writers travel to tasks, also to
nodes which do not have this package (`session.send_package`): they hold plain values, and what
only the driver needs is imported where it is used (see `wire`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from queuelake.errors import NotFoundError, RefusedError
from queuelake.pipeline.filters import Bounds, take_filters
from queuelake.pipeline.offsets import (
    Offsets,
    Slice,
    begins_of,
    lost_between,
    merged,
    resolve,
    slices,
)
from queuelake.pipeline.schema import (
    ReadOptions,
    arrow_schema,
    check_schema,
    read_options,
    schema_ddl,
)
from queuelake.pipeline.wire import read_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from queuelake.flight import Shard
    from queuelake.pipeline.connection import Connection

log = logging.getLogger(__name__)


class QueuelakeSource(DataSource):
    """What `format("queuelake")` is."""

    by_value = False  # whether nodes get our code with the query

    @classmethod
    def name(cls) -> str:
        return "queuelake"

    def schema(self) -> str:
        return schema_ddl(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        self._prepare()
        check_schema(schema, self.options)
        kind = FilteringReader if _spark_offers_filters() else QueueReader
        return kind(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from queuelake.pipeline.stream import QueueStreamReader

        self._prepare()
        check_schema(schema, self.options)
        if "endingOffsets" in self.options:
            raise RefusedError("option 'endingOffsets': a stream has no end; use it with read")
        return QueueStreamReader(read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from queuelake.pipeline.sink import QueueWriter, write_options

        self._prepare()
        return QueueWriter(write_options(self.options, schema, overwrite, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from queuelake.pipeline.sink import QueueStreamWriter, write_options

        self._prepare()
        return QueueStreamWriter(write_options(self.options, schema, overwrite, streaming=True))

    def _prepare(self) -> None:
        """What is made here is pickled by this process, which is neither the driver nor a task."""
        if self.by_value:
            pickle_by_value()


def pickle_by_value() -> None:
    """From now on this process sends our classes and functions themselves, not their names."""
    from pyspark import cloudpickle

    import queuelake

    cloudpickle.register_pickle_by_value(queuelake)  # type: ignore[no-untyped-call]


class QueueReader(DataSourceReader):
    """A batch read: where it begins and ends is decided once, when it is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._bounds = Bounds()

    def partitions(self) -> Sequence[InputPartition]:
        from queuelake.pipeline.connection import Connection

        with Connection(self._options.endpoint) as connection:
            shards = shards_of(connection, self._options)
            start, end = self._range(connection, shards)
        kept = [shard for shard in shards if self._bounds.keeps(shard.shard)]
        start = self._bounds.raised(start)
        end = self._bounds.lowered(end)
        return plan_tasks(self._options, self._schema.names, kept, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, self._schema, partition)

    def _range(self, connection: Connection, shards: list[Shard]) -> tuple[Offsets, Offsets]:
        options = self._options

        def at(ts_ms: int) -> list[Shard]:
            return connection.shards(options.table, options.queue, ts_ms)

        start = resolve("startingOffsets", options.starting, shards, at, "earliest")
        end = resolve("endingOffsets", options.ending, shards, at, "latest")
        if self._bounds.ts_ms_min is not None:
            start = merged(max, start, begins_of(at(self._bounds.ts_ms_min)))
        if self._bounds.ts_ms_end is not None:
            end = merged(min, end, begins_of(at(self._bounds.ts_ms_end)))
        return start, end


class FilteringReader(QueueReader):
    """A batch read which leaves out what the query's own filters would drop."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        self._bounds, rest = take_filters(self._options.table, filters)
        return iter(rest)


def _spark_offers_filters() -> bool:
    """Whether this process was started to hand filters over.

    Spark refuses a reader with `pushFilters` unless `spark.sql.python.filterPushdown.enabled` is
    set, even for a query without filters; without it we do without them.
    """
    module = "pyspark.sql.worker.data_source_pushdown_filters"
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return module in sys.modules or (main is not None and main.name == module)


def shards_of(connection: Connection, options: ReadOptions) -> list[Shard]:
    """The shards of the queues which are meant; a name without any is a mistake."""
    shards = connection.shards(options.table, options.queue)
    if not shards and not set(options.queue) & set("*?"):
        raise NotFoundError(f"there is no queue {options.queue!r}")
    return shards


def plan_tasks(
    options: ReadOptions, columns: list[str], shards: list[Shard], start: Offsets, end: Offsets
) -> list[InputPartition]:
    """One task for each range of a shard, after a look at what is not there any more."""
    report_loss(options, lost_between(shards, start, end))
    here = {(shard.queue_id, shard.shard) for shard in shards}
    wanted = slices(start, begins_of(shards), end, options.rows_per_task_max)
    tasks = [task for task in wanted if (task.queue_id, task.shard) in here]
    return [InputPartition(ticket(options, columns, task)) for task in tasks]


def ticket(options: ReadOptions, columns: list[str], task: Slice) -> dict[str, Any]:
    """A `flight.Range` in plain words."""
    return {
        "table": options.table,
        "queue_id": task.queue_id,
        "shard": task.shard,
        "after": task.after,
        "upto": task.upto,
        "columns": columns,
        "fail_on_loss": options.fail_on_data_loss,
    }


def report_loss(options: ReadOptions, lost: list[tuple[Shard, Slice]]) -> None:
    for shard, gone in lost:
        rows = gone.upto - gone.after
        words = (
            f"{options.table} of {shard.queue!r}, shard {gone.shard}: rows {gone.after + 1} to "
            f"{gone.upto} ({rows}) were dropped before they were archived"
        )
        if options.fail_on_data_loss:
            raise RefusedError(f"{words}; failOnDataLoss=false reads on without them")
        log.warning("%s; they are left out", words)


def read_task(
    options: ReadOptions, schema: pa.Schema, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in exactly the types Spark expects."""
    if partition.value is None:  # Spark's task for a read without tasks
        return
    for batch in read_rows(options.endpoint, partition.value):
        yield batch if batch.schema.equals(schema) else batch.cast(schema)
