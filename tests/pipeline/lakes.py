"""A lake for a test: jobs over it, and what is in its tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from queuelake.pipeline.jobs import archive, compact, reprocess, retain
from queuelake.pipeline.jobs.job import JobContext, Place, Summary
from queuelake.pipeline.lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LakeUnderTest:
    """Jobs run in this process, with the session all tests share."""

    def __init__(self, path: Path, spark: SparkSession, uri: str, token: str) -> None:
        self.path = path
        self.spark = spark
        self.lake = Lake(str(path))
        self.place = Place(url=uri, token=token, lake=str(path))

    def context(self, kind: str = "test") -> JobContext:
        context = JobContext(kind, self.place)
        context._spark = self.spark
        return context

    def archive(self, **options: Any) -> Summary:
        return self._run(archive.run, archive.Options(once=True, **options))

    def compact(self, **options: Any) -> Summary:
        return self._run(compact.run, compact.Options(**options))

    def retain(self, **options: Any) -> Summary:
        return self._run(retain.run, retain.Options(**options))

    def reprocess(self, **options: Any) -> Summary:
        return self._run(reprocess.run, reprocess.Options(**options))

    def _run(self, job: Callable[[JobContext, Any], Summary], options: Any) -> Summary:
        context = self.context()
        try:
            return job(context, options)
        finally:
            context.connection.close()

    def rows(self, table: str, version: int | None = None) -> list[dict[str, Any]]:
        """What any reader of Delta sees, in the order of places."""
        if not self.lake.has(table):
            return []
        found = DeltaTable(f"{self.lake.uri}/{table}", version=version).to_pyarrow_table()
        rows = found.to_pylist(maps_as_pydicts="strict")
        return sorted(
            rows,
            key=lambda row: (
                row["queue"],
                row["queue_id"],
                row.get("partition") or 0,
                row["seqno"],
            ),
        )

    def places(self, table: str = "messages") -> list[tuple[str, int]]:
        return [(row["queue"], row["seqno"]) for row in self.rows(table)]

    def data_files(self, table: str) -> set[str]:
        """Every data file on the disk, committed or not."""
        root = self.path / table
        return {
            str(path.relative_to(root))
            for path in root.rglob("*.parquet")
            if "_delta_log" not in path.parts
        }
