"""Spark on queues, beside Spark on Parquet files: the same rows, in the same session, in turns.

A figure is a ratio of rates: 1.0 is as fast as Spark with its own files. Everything ran once before
it is measured; each ratio is that of the medians of several rounds.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from figures import Figure, LoadError, show
from peers import open_queuelake, read_ports
from pipeline_lake import archive_seconds, fold_seconds

from queuelake.pipeline.jobs import fanout
from queuelake.pipeline.jobs.job import JobContext, Place
from queuelake.pipeline.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS = 3
SOURCE_TARGET, ARCHIVE_TARGET, SINK_TARGET, FANOUT_TARGET = 0.7, 0.8, 0.3, 0.3
FOLD_TARGET = 1.0
# 256 bytes which do not compress: nobody gets by with less than the rows have.
PAYLOAD = "concat({})".format(", ".join(f"unhex(sha2(concat(id, '{c}'), 512))" for c in "abcd"))
CONFIG = """
[queues.defaults]
partitions = 4
[queues.defaults.limits]
max_queue_depth = 100000000
"""

Work = Callable[[int], None]  # with the number of the round


def measure(folder: Path, count: int) -> Iterator[Figure]:
    with open_queuelake(folder, CONFIG) as process:
        ports = read_ports(process, folder)
        token = (folder / "data" / "api-key").read_text().strip()
        place = Place(f"flight://127.0.0.1:{ports['flight']}", token)
        spark = build_session("bench", conf={"spark.driver.memory": "2g"})
        try:
            yield from Bench(spark, place, folder, count).run()
        finally:
            spark.stop()


class Bench:
    """The rows as files, and each kind of work beside its yardstick."""

    def __init__(self, spark: SparkSession, place: Place, folder: Path, count: int) -> None:
        self._spark = spark
        self._place = place
        self._folder = folder
        self._count = count

    def run(self) -> Iterator[Figure]:
        rows = self._spark.range(self._count).selectExpr(
            f"{PAYLOAD} as payload", "concat('k', id % 10000) as key"
        )
        rows.write.parquet(self._path("rows"))
        yield from self._ratio("sink, durable", SINK_TARGET, self.sink, self.copy("rows"))
        found = self._queue(0).count()
        if found != self._count:
            raise LoadError(f"{found} of {self._count} rows are in the queue")
        self._queue(0).write.parquet(self._path("messages"))
        yield from self._ratio("source -> noop", SOURCE_TARGET, self.source, self.scan)
        place, queue = self._place, "$queue/bench/0"
        directory = self._folder / "archive"
        found_s = archive_seconds(self._spark, place.url, place.token, queue, directory)
        yield from self._figures("archive -> Delta", ARCHIVE_TARGET, *found_s, self._count)
        ids = self._spark.range(self._count).selectExpr("concat('VIN', lpad(id, 14, '0')) as id")
        ids.write.parquet(self._path("ids"))
        yield from self._ratio("fan-out, durable", FANOUT_TARGET, self.fanout, self.copy("ids"))
        fold_rows, keys = 5 * self._count, self._count // 2
        found_s = fold_seconds(self._spark, self._folder, fold_rows, keys)
        yield from self._figures(f"fold to {keys:,} keys", FOLD_TARGET, *found_s, fold_rows)

    def sink(self, number: int) -> None:
        rows = self._spark.read.parquet(self._path("rows"))
        options = self._place.options() | {"queue": f"$queue/bench/{number}"}
        rows.write.format("queuelake").mode("append").options(**options).save()

    def source(self, _number: int) -> None:
        self._queue(0).write.format("noop").mode("overwrite").save()

    def scan(self, _number: int) -> None:
        rows = self._spark.read.parquet(self._path("messages"))
        rows.write.format("noop").mode("overwrite").save()

    def fanout(self, number: int) -> None:
        context = JobContext("fanout", self._place, spark=self._spark)
        data = self._folder / "payload"
        data.write_bytes(b"x" * 256)
        options = fanout.Options(f"bench-{number}", source=self._path("ids"), data=data)
        try:
            fanout.run(context, options)
        finally:
            context.close()

    def copy(self, name: str) -> Work:
        def work(number: int) -> None:
            rows = self._spark.read.parquet(self._path(name))
            rows.write.parquet(self._path(f"{name}-copy-{number}"))

        return work

    def _queue(self, number: int) -> DataFrame:
        options = self._place.options() | {"queue": f"$queue/bench/{number}"}
        return self._spark.read.format("queuelake").options(**options).load()

    def _path(self, name: str) -> str:
        return str(self._folder / name)

    def _ratio(self, title: str, target: float, ours: Work, native: Work) -> Iterator[Figure]:
        """In turns, so that a machine which gets slower does so for both."""
        seconds: dict[Work, list[float]] = {ours: [], native: []}
        for number in range(ROUNDS + 1):
            for work, found in seconds.items():
                start_s = time.monotonic()
                work(number)
                found.append(time.monotonic() - start_s)
        # The first of each was to warm up.
        ours_s, native_s = (statistics.median(found[1:]) for found in seconds.values())
        yield from self._figures(title, target, ours_s, native_s, self._count)

    def _figures(
        self, title: str, target: float, ours_s: float, native_s: float, rows: int
    ) -> Iterator[Figure]:
        yield Figure(f"{title}: rate", rows / ours_s, "rows/s")
        yield Figure(f"{title}: Spark on Parquet", rows / native_s, "rows/s")
        yield Figure(f"{title}: of Spark on Parquet", native_s / ours_s, "x", target, at_least=True)


if __name__ == "__main__":
    sys.exit(show("pipeline", __doc__, "rows", measure))
