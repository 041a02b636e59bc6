"""Rows of Spark as messages of a queue: `df.write` and `df.writeStream`, `format("queuelake")`.

A task puts its rows onto the stage, where nobody sees them; the driver commits the files of the
tasks which succeeded, all at once. The broker knows a batch by job and number and takes it once:
a batch which Spark runs again, after whatever crash, adds nothing.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from queuelake.errors import QueuelakeError, RefusedError
from queuelake.pipeline.schema import CONNECTION_OPTIONS, refuse_unknown
from queuelake.pipeline.wire import Endpoint, stage_rows
from queuelake.tables import SDV_NAME

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

WRITE_OPTIONS = (*CONNECTION_OPTIONS, "queue", "jobId", "batchId", "request", "data")
# Spark hands its own options of a stream to the sink as well.
SPARK_OPTIONS = ("checkpointLocation", "path", "queryName")

MESSAGE_COLUMNS = {
    "payload": "binary",
    "key": "string",
    "properties": "map<string,string>",
    "content_type": "string",
    "delay_ms": "bigint",
    "message_id": "string",
    "topic": "string",
}
# Of a dead letter which leaves its queue when it arrives in the other.
LETTER_COLUMNS = {"from_queue_id": "string", "from_partition": "int", "from_seqno": "bigint"}
VEHICLE_COLUMNS = {"id": "string"}
# Types which become the one of the column without losing anything.
WIDENED = {"binary": ("string",), "bigint": ("int", "smallint", "tinyint"), "int": ()}


@dataclass(frozen=True)
class WriteOptions:
    endpoint: Endpoint
    queue: str
    job: str  # empty: the id of the query
    batch: int
    request: str
    data: str
    columns: dict[str, str]  # names and types as they are sent


@dataclass
class TaskFile(WriterCommitMessage):
    """What one task has staged; without rows there is no file."""

    job: str
    partition: int
    file: str | None


def write_options(
    options: Mapping[str, str], schema: StructType, overwrite: bool, streaming: bool
) -> WriteOptions:
    from queuelake.flight import UNNAMED_JOB
    from queuelake.pipeline.connection import endpoint_from

    refuse_unknown(options, (*WRITE_OPTIONS, *SPARK_OPTIONS))
    if overwrite:
        raise RefusedError("a queue cannot be overwritten: use mode('append')")
    queue = options.get("queue")
    if not queue:
        raise RefusedError("option 'queue' is missing: the name of the queue to write to")
    batch = options.get("batchId", "0")
    if not batch.isdecimal():
        raise RefusedError(f"option 'batchId': {batch!r} is not a whole number, 0 or more")
    job = options.get("jobId", "")
    return WriteOptions(
        endpoint_from(options),
        queue,
        job or ("" if streaming else f"{UNNAMED_JOB}{uuid.uuid4()}"),
        int(batch),
        options.get("request", ""),
        options.get("data", ""),
        check_columns(queue, schema),
    )


def check_columns(queue: str, schema: StructType) -> dict[str, str]:
    """The columns as the queue takes them."""
    fanout = queue == SDV_NAME
    known = VEHICLE_COLUMNS if fanout else MESSAGE_COLUMNS | LETTER_COLUMNS
    shown = ", ".join(VEHICLE_COLUMNS if fanout else MESSAGE_COLUMNS)
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name not in known:
            raise RefusedError(f"column {field.name!r}: {queue!r} takes only {shown}")
        wanted = known[field.name]
        if kind != wanted and kind not in WIDENED.get(wanted, ()):
            raise RefusedError(f"column {field.name!r} is {kind}, {queue!r} takes {wanted}")
    required = next(iter(known))
    if required not in schema.fieldNames():
        raise RefusedError(f"column {required!r} is missing; {queue!r} takes {shown}")
    return {name: known[name] for name in schema.fieldNames()}


class QueueWriter(DataSourceArrowWriter):
    """A batch write: one batch of a job."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskFile:
        return write_task(self._options, self._options.job, self._options.batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if commit(self._options, messages, self._options.batch):
            log.warning(
                "jobId %r, batch %d was committed before: nothing was added; if this is another "
                "write, give it a jobId of its own, with the date perhaps",
                self._options.job,
                self._options.batch,
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort(self._options, messages, self._options.batch)


class QueueStreamWriter(DataSourceStreamArrowWriter):
    """A stream: each micro-batch is a batch of the job, which is the query unless it has a name."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskFile:
        context = TaskContext.get()
        assert context is not None
        job = self._options.job or context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert job is not None
        assert batch is not None
        return write_task(self._options, job, int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if commit(self._options, messages, batchId):
            log.info("batch %d was committed before; nothing was added", batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        abort(self._options, messages, batchId)


def write_task(
    options: WriteOptions, job: str, batch: int, batches: Iterator[pa.RecordBatch]
) -> TaskFile:
    """Put the rows of this task onto the stage."""
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    stage: dict[str, Any] = {
        "job": job,
        "batch": batch,
        "target": options.queue,
        # Unlike that of any other attempt, also of a run of the job which was killed.
        "task": f"{partition}-{uuid.uuid4().hex}",
        "request": options.request,
        "data": options.data,
    }
    staged = stage_rows(options.endpoint, stage, as_sent(options, batches))
    return TaskFile(job, partition, None if staged is None else staged["file"])


def as_sent(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = sent_schema(options.columns)
    required = schema.names.index(next(n for n in ("payload", "id") if n in options.columns))
    for batch in batches:
        empty = batch.column(required).null_count
        if empty:
            name = schema.names[required]
            raise RefusedError(
                f"column {name!r} is null in {empty} rows; {options.queue!r} needs it"
            )
        yield batch if batch.schema.equals(schema) else batch.cast(schema)


def sent_schema(columns: Mapping[str, str]) -> pa.Schema:
    import pyarrow as pa

    kinds = {
        "binary": pa.binary(),
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([(name, kinds[kind]) for name, kind in columns.items()])


def commit(options: WriteOptions, messages: list[WriterCommitMessage | None], batch: int) -> bool:
    """Show what was staged; true when the broker had this batch before and added nothing."""
    from queuelake.flight import CommitAsked
    from queuelake.pipeline.connection import Connection

    done = _files(messages)
    staged = sorted((m.partition, m.file) for m in done if m.file is not None)
    if not staged:
        return False  # nothing to see, and a batch which comes again has no rows again
    files = [file for _, file in staged]
    asked = CommitAsked(
        done[0].job, batch, options.queue, files, request=options.request, data=options.data
    )
    with Connection(options.endpoint) as connection:
        return connection.commit(asked).repeated


def abort(options: WriteOptions, messages: list[WriterCommitMessage | None], batch: int) -> None:
    """Throw away what was staged, if that is possible now; else it is swept away later."""
    from queuelake.pipeline.connection import Connection

    job = options.job or next((message.job for message in _files(messages)), "")
    if not job:
        return
    try:
        with Connection(replace(options.endpoint, retry_s=0)) as connection:
            connection.abort(job, batch)
    except QueuelakeError as error:
        log.warning("job %s, batch %d could not be thrown away: %s", job, batch, error)


def _files(messages: list[WriterCommitMessage | None]) -> list[TaskFile]:
    """Those of tasks which ended well. Not by `isinstance`: the class may have come by value."""
    return [cast(TaskFile, message) for message in messages if message is not None]
