"""The tables of a lake: names, columns, partitions.

Columns by which a table is partitioned are in the data files as well. Delta does not need them
there, but whoever reads plain Parquet files (Spark, without any jar) gets whole rows.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from msgspec import Struct

from queuelake import tables

ARROW_TYPES: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


class Definition(Struct, frozen=True):
    """A table: its columns with their Spark types, and those which split it into folders."""

    name: str
    columns: dict[str, str]
    partition_by: tuple[str, ...] = ()
    valued: bool = False  # has a column `value`, whose fields are those of registered schemas

    def schema(self, value: pa.DataType | None = None) -> pa.Schema:
        fields = [(name, ARROW_TYPES[kind]) for name, kind in self.columns.items()]
        if self.valued and value is not None:
            fields.append(("value", value))
        return pa.schema(fields)


DATED: Final = ("queue", "date")
MESSAGES: Final = Definition("messages", {**tables.MESSAGES, "date": "date"}, DATED, valued=True)
EVENTS: Final = Definition("events", {**tables.EVENTS, "date": "date"}, DATED)
STATS: Final = Definition("stats", {**tables.STATS, "date": "date"}, DATED)
CURRENT: Final = Definition("current", tables.MESSAGES, ("queue",), valued=True)
QUARANTINE: Final = Definition(
    "quarantine", {**tables.MESSAGES, "reason": "string", "date": "date"}, DATED
)
JOBS: Final = Definition(
    "jobs",
    {
        "id": "string",
        "kind": "string",
        "state": "string",
        "started": "timestamp",
        "ended": "timestamp",
        "done": "bigint",
        "total": "bigint",
        "unit": "string",
        "message": "string",
        "detail": "map<string,string>",
    },
)
ARCHIVED: Final = {"messages": MESSAGES, "events": EVENTS, "stats": STATS}
