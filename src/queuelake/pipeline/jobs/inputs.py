"""Files and tables which users name: Parquet, CSV, JSON lines and Delta, by what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuelake.errors import NotFoundError, RefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_input(spark: SparkSession, place: str, kind: str = "") -> DataFrame:
    """The rows there. Without a kind, its name decides, and a folder is Delta or Parquet."""
    from pyspark.errors import AnalysisException

    kind = kind or guess(place)
    try:
        if kind == "delta":
            return _delta(spark, place)
        if kind == "csv":
            return spark.read.csv(place, header=True)
        if kind == "json":
            return spark.read.json(place)
        if kind == "parquet":
            return spark.read.parquet(place)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise NotFoundError(f"{place}: there is no such file or folder") from None
        raise
    raise RefusedError(f"{place}: format {kind!r}; allowed: delta, parquet, csv, json")


def guess(place: str) -> str:
    from deltalake import DeltaTable

    name = place.rstrip("/").lower().removesuffix(".gz")
    for ending, kind in ((".csv", "csv"), (".json", "json"), (".jsonl", "json")):
        if name.endswith(ending):
            return kind
    if not name.endswith(".parquet") and DeltaTable.is_deltatable(place):
        return "delta"
    return "parquet"


def _delta(spark: SparkSession, place: str) -> DataFrame:
    """A Delta table without a jar: the log says which files it has, Spark reads them."""
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql.pandas.types import from_arrow_schema

    table = DeltaTable(place)
    partitions = table.metadata().partition_columns
    if table.protocol().reader_features:
        raise RefusedError(f"{place}: needs Delta features which are not read here")
    schema = from_arrow_schema(pa.schema(table.schema().to_arrow()))
    files = table.file_uris()
    if not files:
        return spark.createDataFrame([], schema)
    if partitions:
        return spark.read.option("basePath", place).parquet(*files).select(*schema.names)
    return spark.read.schema(schema).parquet(*files)
