"""A lake: the place where the tables are, who may change it, and how Spark reads it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow import fs

from queuelake.errors import NotFoundError
from queuelake.pipeline.lake import definitions, lease
from queuelake.pipeline.lake.definitions import Definition
from queuelake.pipeline.lake.files import DataFile, sync
from queuelake.pipeline.lake.lease import HeldLease, Leases
from queuelake.pipeline.lake.table import LakeTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

DEFINITIONS: Final = {
    definition.name: definition
    for definition in (
        definitions.MESSAGES,
        definitions.EVENTS,
        definitions.STATS,
        definitions.CURRENT,
        definitions.QUARANTINE,
        definitions.JOBS,
    )
}
# Rows about jobs come from whoever runs one, also while another job holds the lake for long.
JOURNAL: Final = "#journal"


class Lake:
    """The tables below one location: a path, or an address which pyarrow and Delta both reach."""

    def __init__(self, location: str) -> None:
        self.uri = location if "://" in location else Path(location).expanduser().resolve().as_uri()
        self._tables: dict[str, LakeTable] = {}

    def table(self, definition: Definition) -> LakeTable:
        """The table, made if need be, as it is now."""
        found = self._tables.get(definition.name)
        if found is None:
            uri = f"{self.uri}/{definition.name}"
            if uri.startswith("file://"):
                make_folder(Path(fs.FileSystem.from_uri(uri)[1]))
            found = self._tables[definition.name] = LakeTable(uri, definition)
        else:
            found.refresh()
        return found

    def has(self, name: str) -> bool:
        return DeltaTable.is_deltatable(f"{self.uri}/{name}")

    @contextmanager
    def lease(self, leases: Leases, job: str, wait_s: float = 0.0) -> Iterator[HeldLease]:
        """The right to change the tables, for the length of a block."""
        with lease.held(leases, self.uri, job, wait_s=wait_s) as found:
            yield found

    @contextmanager
    def journal_lease(self, leases: Leases, job: str, wait_s: float = 60.0) -> Iterator[HeldLease]:
        """The right to add rows about jobs."""
        with lease.held(leases, self.uri + JOURNAL, job, wait_s=wait_s) as found:
            yield found

    def read(
        self,
        spark: SparkSession,
        name: str,
        *,
        queues: Collection[str] | None = None,
        version: int | None = None,
    ) -> DataFrame:
        """A table as a DataFrame; with `queues` only what belongs to these names.

        The files are those of one version of the table, now or `version`, whatever is committed
        while Spark reads them.
        """
        if not self.has(name):
            raise NotFoundError(f"no table {name!r} in the lake {self.uri}: run `archive` first")
        uri = f"{self.uri}/{name}"
        definition = DEFINITIONS.get(name) or Definition(name, {})
        table = LakeTable(uri, definition, DeltaTable(uri, version=version))
        chosen = table.files()
        if queues is not None:
            chosen = [file for file in chosen if file.partition.get("queue") in queues]
        return read_files(spark, table, chosen)


def make_folder(path: Path) -> None:
    """The folder of a table, durable with all the folders which were made for it."""
    missing = sum(not folder.exists() for folder in (path, *path.parents))
    path.mkdir(parents=True, exist_ok=True)
    sync(str(path), max(1, missing))  # that of the lake too: who made it may have died


def read_files(spark: SparkSession, table: LakeTable, files: list[DataFile]) -> DataFrame:
    """These files of a table, with all its columns, also those that came after them."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(table.schema())
    if not files:
        return spark.createDataFrame([], schema)
    root = spark_path(table.uri)
    return spark.read.schema(schema).parquet(*(f"{root}/{file.path}" for file in files))


def spark_path(uri: str) -> str:
    """A place as Hadoop writes it: what is escaped in an address is a plain character there."""
    return f"file://{fs.FileSystem.from_uri(uri)[1]}" if uri.startswith("file://") else uri


def read_rows(table: LakeTable, files: list[DataFile], columns: list[str]) -> Iterator[pa.Table]:
    """Some columns of these files, file by file, without Spark."""
    source, root = fs.FileSystem.from_uri(table.uri)
    for file in files:
        with source.open_input_file(f"{root}/{file.path}") as opened:
            yield pq.read_table(opened, columns=columns)
