"""Arrow types of the tables: what Spark makes of their DDL with time zone UTC, exactly."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from queuelake.errors import RefusedError
from queuelake.tables import COLUMNS, Table

TYPES: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "tinyint": pa.int8(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


def schema_of(table: Table, columns: list[str]) -> pa.Schema:
    """The columns asked for, in that order; none: all.

    Raises:
        RefusedError: the table has no such column, or one is asked for twice.
    """
    known = COLUMNS[table]
    for name in columns:
        if name not in known:
            raise RefusedError(f"table {table!r} has no column {name!r}; it has {', '.join(known)}")
    if len(set(columns)) < len(columns):
        raise RefusedError(f"columns = {columns}: each may be there once")
    return pa.schema([(name, TYPES[known[name]]) for name in columns or known])
