"""The lake in `scripts/bench pipeline`: archive and fold, beside plain Spark on the same rows.

Each function returns seconds of ours and of plain Spark, measured one after the other, warm.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queuelake.flight import Lease, LeaseAsked
from queuelake.pipeline.jobs import archive, fold
from queuelake.pipeline.jobs.job import JobContext, Place
from queuelake.pipeline.lake import definitions
from queuelake.pipeline.lake.files import Writer
from queuelake.pipeline.lake.lake import Lake
from queuelake.pipeline.lake.lease import HeldLease
from queuelake.pipeline.lake.table import Change, Move

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Seconds = tuple[float, float]  # ours, plain Spark
QUEUE_ID = "bench-1"
BATCH_ROWS = 250_000
PAYLOAD_BYTES = 100


def archive_seconds(
    spark: SparkSession, uri: str, token: str, queue: str, directory: Path, rounds: int = 2
) -> Seconds:
    """A queue to Delta, and the same rows from Parquet to Parquet; the best of `rounds`, warm."""
    native = directory / "native"
    source = spark.read.format("queuelake").options(uri=uri, token=token, queue=queue).load()
    source.write.mode("overwrite").parquet(str(native))
    ours, plain = [], []
    for number in range(rounds + 1):
        lake = directory / f"lake-{number}"
        context = JobContext("archive", Place(url=uri, token=token, lake=str(lake)))
        context._spark = spark
        options = archive.Options(once=True, queue=queue, rows_max=10**9, adopt=True)
        ours.append(timed(partial(archive.run, context, options)))
        context.connection.close()
        shutil.rmtree(lake)
        plain.append(timed(lambda: copied(spark, native, directory / "copy")))
    return min(ours[1:]), min(plain[1:])


def fold_seconds(
    spark: SparkSession,
    directory: Path,
    rows: int = 5_000_000,
    keys: int = 500_000,
    rounds: int = 2,
) -> Seconds:
    """Last values of so many rows, and `max(struct(...))` to Parquet over the same files; the best
    of `rounds`, warm."""
    ours, plain = [], []
    for number in range(rounds + 1):
        folder = directory / f"fold-{number}"
        lake = Lake(str(folder / "lake"))
        lease = HeldLease(NoLeases(), lake.uri, "bench")
        fill(lake, lease, rows, keys)
        ours.append(timed(partial(fold.fold, spark, lake, lease, lambda: None)))
        plain.append(timed(partial(plain_fold, spark, lake, folder / "plain")))
        found = lake.table(definitions.CURRENT)
        assert sum(file.rows for file in found.files()) <= keys
        lease.release()
        shutil.rmtree(folder)
    return min(ours[1:]), min(plain[1:])


def plain_fold(spark: SparkSession, lake: Lake, target: Path) -> None:
    from pyspark.sql import functions as F

    rows = lake.read(spark, "messages")
    others = [name for name in rows.columns if name not in ("seqno", "queue", "owner", "key")]
    others = [name for name in others if name != "properties"]  # maps have no order
    newest = F.max(F.struct("seqno", *others)).alias("last")
    last = (
        rows.groupBy("queue", "owner", "key").agg(newest).select("queue", "owner", "key", "last.*")
    )
    last.write.mode("overwrite").parquet(str(target))


def fill(lake: Lake, lease: HeldLease, rows: int, keys: int) -> None:
    """Rows of one queue as the archive writes them, in files of `BATCH_ROWS`."""
    table = lake.table(definitions.MESSAGES)
    dice = np.random.default_rng(1)
    files = []
    for begin in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - begin)
        drawn = dice.integers(0, keys, count)
        columns: dict[str, Any] = {
            "queue": pa.repeat("$queue/bench", count),
            "queue_id": pa.repeat(QUEUE_ID, count),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
            "seqno": pa.array(np.arange(begin + 1, begin + count + 1)),
            "key": pc.binary_join_element_wise("key", pa.array(drawn).cast(pa.string()), "-"),
            "payload": random_bytes(dice, count, PAYLOAD_BYTES),
            "ts": pa.array(np.full(count, 1_790_000_000_000_000)).cast(pa.timestamp("us", "UTC")),
            "date": pa.array(np.full(count, 20_000, np.int32)).cast(pa.date32()),
        }
        writer = Writer(table.uri, table.definition, table.definition.schema(), lease.epoch)
        writer.write(pa.table(columns))
        files += writer.finish()
    moves = {f"archive:{QUEUE_ID}:0": Move(0, rows)}
    table.commit(Change(files, moves=moves), lease)


def random_bytes(dice: np.random.Generator, count: int, size: int) -> pa.Array:
    buffers = [None, pa.py_buffer(dice.bytes(count * size))]
    return pa.Array.from_buffers(pa.binary(size), count, buffers).cast(pa.binary())


def copied(spark: SparkSession, source: Path, target: Path) -> None:
    spark.read.parquet(str(source)).write.mode("overwrite").parquet(str(target))


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


class NoLeases:
    """Nobody else is here."""

    def lease(self, asked: LeaseAsked) -> Lease:
        return Lease(asked.lake, 1, 0)

    def release(self, lease: Lease) -> None:
        pass
