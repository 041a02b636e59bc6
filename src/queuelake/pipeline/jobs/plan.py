"""A plan: the rows a job will send, chosen once, so that it can be stopped and continued.

Rows are selected and sorted by Spark and written below the lake as Parquet, one file for each
batch. Then a row in `jobs` names the folder; from there on the plan is fixed, whatever happens to
the tables, and a run with the same job id uses it. Batches go to the broker one after the other,
each keyed by (job, number): the broker knows what it has, so nobody has to keep a second account.

The folder goes when the job is done. Until then it holds copies of messages; `retain` of the lake
does not look into plans.
"""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from pyarrow import fs

from queuelake.errors import RefusedError
from queuelake.flight import CommitAsked, Committed, Stage
from queuelake.pipeline.jobs.job import JobContext
from queuelake.pipeline.jobs.journal import Journal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from queuelake.pipeline.connection import Connection

FOLDER: Final = "_plans"
BATCHES_KEPT: Final = 500  # the broker knows at least so many of the last batches of a job
# `part-00003-{uuid}-c012.zstd.parquet`: the task, then the file of the task.
FILE: Final = re.compile(r"(.*/)?part-(\d+)-.*?(?:[.-]c(\d+))\S*\.parquet$")


class Batch(Struct, frozen=True):
    file: str  # below the folder of the plan
    first: int  # how many rows are in batches before it
    rows: int
    target: str


class Plan(Struct, frozen=True):
    """What was decided when a job began. `options` are those which must not change."""

    folder: str
    options: dict[str, str]
    batches: list[Batch]
    skipped: int = 0  # rows which were chosen and cannot be sent

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    def read(self, batch: Batch) -> pa.Table:
        files, root = fs.FileSystem.from_uri(self.folder)
        with files.open_input_file(f"{root}/{batch.file}") as file:
            return pq.read_table(file)

    def forget(self) -> None:
        files, root = fs.FileSystem.from_uri(self.folder)
        with contextlib.suppress(FileNotFoundError):  # the run before has done it
            files.delete_dir(root)


def plan_of(
    context: JobContext,
    options: dict[str, str],
    choose: Callable[[], DataFrame],
    batch_rows: int,
    target: str = "",
) -> Plan:
    """The plan of this job: the one it has, or one made now of the rows which `choose` gives.

    They come in the order in which they are to be sent. With no `target`, their column `target`
    says where each of them goes.
    """
    journal = Journal(context, context.connection)
    known = journal.plan(context.id)
    if known is None:
        context.progress.message = "choosing rows"
        folder = f"{journal.lake.uri}/{FOLDER}/{uuid.uuid4().hex}"
        _write(choose(), folder, batch_rows, by_target=not target)
        known = journal.keep_plan(context.id, Plan(folder, options, _batches(folder, target)))
        if known.folder != folder:  # another run of this id was faster
            Plan(folder, {}, []).forget()
    if known.options != options:
        told = json.dumps(known.options, ensure_ascii=False)
        raise RefusedError(f"job {context.id!r} was begun with other options: {told}")
    context.progress.message = ""
    context.progress.total = known.rows
    return known


def send(
    context: JobContext,
    plan: Plan,
    rows_of: Callable[[Batch, pa.Table], pa.Table],
    sent: Callable[[int, pa.Table, Committed], None] | None = None,
    rate: float = 0.0,
) -> int:
    """Send what the broker does not have yet; returns how many rows are sent, now or before.

    `rows_of` makes rows to be staged of rows of the plan. `sent` is called after each commit.
    """
    connection = context.connection
    first = after_last(connection, context.id, len(plan.batches))
    total = sum(batch.rows for batch in plan.batches[:first])
    context.progress.done = total
    for number in range(first, len(plan.batches)):
        context.check()
        batch = plan.batches[number]
        rows = plan.read(batch)
        stage = Stage(context.id, number, batch.target, uuid.uuid4().hex)
        staged = connection.stage(stage, iter(rows_of(batch, rows).to_batches()))
        files = [staged.file] if staged else []
        done = connection.commit(CommitAsked(context.id, number, batch.target, files))
        if sent is not None:
            sent(number, rows, done)
        total += done.rows
        context.progress.done = total
        if rate and number + 1 < len(plan.batches):
            context.wait(batch.rows / rate)
    return total


def after_last(connection: Connection, job: str, batches: int) -> int:
    """The number after the last batch of the job which the broker has.

    They are committed in order, and of many the broker may have forgotten the oldest. So look at
    every 500th from the end; what is between a known one and an unknown one is halved.
    """
    unknown = batches
    while unknown > 0:
        known = max(0, unknown - BATCHES_KEPT)
        if _known(connection, job, known):
            while unknown - known > 1:
                middle = (known + unknown) // 2
                if _known(connection, job, middle):
                    known = middle
                else:
                    unknown = middle
            return unknown
        unknown = known
    return 0


def _known(connection: Connection, job: str, batch: int) -> bool:
    return connection.call("batch", {"job": job, "batch": batch}) is not None


def _write(rows: DataFrame, folder: str, batch_rows: int, by_target: bool) -> None:
    writer = rows.write.option("maxRecordsPerFile", batch_rows).option("compression", "zstd")
    if by_target:
        writer = writer.partitionBy("folder")
    writer.parquet(folder)


def _batches(folder: str, target: str) -> list[Batch]:
    """The files Spark wrote, in the order of the rows."""
    files, root = fs.FileSystem.from_uri(folder)
    found = []
    for info in files.get_file_info(fs.FileSelector(root, recursive=True)):
        match = FILE.match(info.path)
        if match:
            found.append(((match[1], int(match[2]), int(match[3])), info.path))
    batches: list[Batch] = []
    first = 0
    for _, path in sorted(found):
        with files.open_input_file(path) as file:
            parquet = pq.ParquetFile(file)
            rows = parquet.metadata.num_rows
            if not rows:
                continue
            to = target or parquet.read_row_group(0, columns=["target"])["target"][0].as_py()
        batches.append(Batch(path[len(root) + 1 :], first, rows, to))
        first += rows
    return batches
