"""`run FILE`: pipelines of users: sources, queries, a sink. See `run_file` for what a file says.

A stream keeps how far it is in its checkpoint, and a queue takes each of its batches once, by the
id of the stream. So a run which is stopped or killed goes on without a gap and without a double.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from queuelake.errors import RefusedError
from queuelake.pipeline.jobs.expressions import check_query
from queuelake.pipeline.jobs.inputs import read_input
from queuelake.pipeline.jobs.job import JobContext, Summary
from queuelake.pipeline.jobs.run_file import AVAILABLE_NOW, Pipeline, Source, read_pipelines

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

# Columns which mean something to a queue; all others become the payload, as JSON.
SINK_COLUMNS: Final = ("payload", "key", "properties", "content_type", "delay_ms", "message_id")
CHECKPOINTS: Final = "_pipelines"
LOOK_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Options:
    file: Path
    only: tuple[str, ...] = ()  # names of pipelines; none: all
    check: bool = False  # only read the file

    def pipelines(self) -> list[Pipeline]:
        found = read_pipelines(self.file)
        names = [one.name for one in found]
        for name in self.only:
            if name not in names:
                raise RefusedError(
                    f"{self.file}: has no pipeline {name!r}; has: {', '.join(names)}"
                )
        return [one for one in found if not self.only or one.name in self.only]


def run(context: JobContext, options: Options) -> Summary:
    """All pipelines of the file at once, until they end or are stopped."""
    pipelines = options.pipelines()
    if options.check:
        names = ", ".join(one.name for one in pipelines)
        return Summary(f"{options.file} is right: {names}")
    streams: dict[str, StreamingQuery] = {}
    detail: dict[str, object] = {}
    try:
        for one in pipelines:
            context.check()
            if one.mode == "batch":
                context.progress.message = one.name
                detail[one.name] = _run_batch(context, one)
                context.progress.add(int(str(detail[one.name])))
            else:
                streams[one.name] = _start_stream(context, one)
        _follow(context, streams)
    finally:
        for query in streams.values():
            query.stop()
    detail |= {name: _rows(query) for name, query in streams.items()}
    return Summary(f"{len(pipelines)} of {len(pipelines)} pipelines are done", detail)


def _run_batch(context: JobContext, one: Pipeline) -> int:
    from pyspark.sql import functions as F

    rows = result(context, one, streaming=False)
    if one.sink.path:
        rows.write.mode("overwrite").parquet(one.sink.path)
        return context.spark.read.parquet(one.sink.path).count()
    seen = _Count()
    out = for_queue(rows).observe(seen.observation, F.count(F.lit(1)).alias("rows"))
    writer = out.write.format("queuelake").options(**context.place.options())
    writer.option("queue", one.sink.queue).option("jobId", f"{context.id}/{one.name}").mode(
        "append"
    ).save()
    return seen.rows


class _Count:
    """Counts rows on their way, without a second look."""

    def __init__(self) -> None:
        from pyspark.sql import Observation

        self.observation = Observation()

    @property
    def rows(self) -> int:
        return int(self.observation.get["rows"])


def _start_stream(context: JobContext, one: Pipeline) -> StreamingQuery:
    rows = result(context, one, streaming=True)
    writer = (for_queue(rows) if one.sink.queue else rows).writeStream
    checkpoint = one.checkpoint or f"{context.lake}/{CHECKPOINTS}/{one.name}"
    writer = writer.option("checkpointLocation", checkpoint)
    if one.trigger == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=one.trigger)
    if one.sink.path:
        return writer.format("parquet").start(one.sink.path)
    writer = writer.format("queuelake").options(**context.place.options())
    return writer.option("queue", one.sink.queue).start()


def _follow(context: JobContext, streams: dict[str, StreamingQuery]) -> None:
    """Wait for the end of all; the first which fails ends the others."""
    before = context.progress.done
    while any(query.isActive for query in streams.values()):
        for query in streams.values():
            error = query.exception()
            if error is not None:
                raise error
        context.progress.done = before + sum(_rows(query) for query in streams.values())
        context.progress.message = ", ".join(n for n, q in streams.items() if q.isActive)
        context.wait(LOOK_EVERY_S)
    for query in streams.values():
        query.awaitTermination()
    context.progress.done = before + sum(_rows(query) for query in streams.values())


def _rows(query: StreamingQuery) -> int:
    """Rows which were read; Spark keeps the last hundred batches of a query."""
    return sum(progress.numInputRows for progress in query.recentProgress)


def result(context: JobContext, one: Pipeline, streaming: bool) -> DataFrame:
    """The last step, over the sources and the steps before it."""
    spark = context.spark
    rows: DataFrame | None = None
    # Views live in the session: two pipelines of one file may use the same name in turn, since a
    # query is bound to what its names mean when it is made.
    for name, source in one.sources.items():
        rows = read_source(context, source, streaming)
        rows.createOrReplaceTempView(name)
    for number, step in enumerate(one.steps, 1):
        rows = spark.sql(check_query(step.sql, f"pipeline {one.name!r}: steps[{number}].sql"))
        if step.name:
            rows.createOrReplaceTempView(step.name)
    assert rows is not None, "a pipeline has a source"
    return rows


def read_source(context: JobContext, source: Source, streaming: bool) -> DataFrame:
    from pyspark.sql import functions as F

    spark = context.spark
    if source.table:
        from queuelake.pipeline.lake.lake import Lake

        return Lake(context.lake).read(spark, source.table)
    if source.path:
        return read_input(spark, source.path, source.format)
    reader = spark.readStream if streaming else spark.read
    rows = (
        reader.format("queuelake")
        .options(**context.place.options())
        .option("queue", source.queue)
        .option("startingOffsets", source.starting)
        .load()
    )
    if not source.schema:
        return rows
    value = F.from_json(F.col("payload").cast("string"), source.schema)
    parsed = rows.withColumn("value", value)
    # A field with the name of a column of the message stays inside `value`.
    fields = [name for name in parsed.select("value.*").columns if name not in rows.columns]
    return parsed.select("*", *[F.col(f"value.`{name}`") for name in fields])


def for_queue(rows: DataFrame) -> DataFrame:
    """Rows as a queue takes them: when there is no payload, the other columns are it, as JSON."""
    from pyspark.sql import functions as F

    if "payload" in rows.columns:
        return rows
    body: list[Column] = [F.col(f"`{n}`") for n in rows.columns if n not in SINK_COLUMNS]
    if not body:
        raise RefusedError("the last step has no column for the payload")
    known = [F.col(name) for name in rows.columns if name in SINK_COLUMNS]
    payload = F.to_json(F.struct(*body)).cast("binary").alias("payload")
    if "content_type" not in rows.columns:
        known.append(F.lit("application/json").alias("content_type"))
    return rows.select(payload, *known)
