"""Options and columns of the data source, checked: each error names what is wrong and what may be.

Only plain values come out of here, because they travel to tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from queuelake.errors import RefusedError
from queuelake.pipeline.offsets import EARLIEST, LATEST, Position, parse_position
from queuelake.pipeline.wire import Endpoint
from queuelake.tables import COLUMNS, Table, ddl

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

CONNECTION_OPTIONS = ("uri", "token", "tls_ca", "dataDir", "retry_s")
READ_OPTIONS = (
    *CONNECTION_OPTIONS,
    "queue",
    "table",
    "startingOffsets",
    "endingOffsets",
    "maxRowsPerTrigger",
    "maxRowsPerTask",
    "columns",
    "failOnDataLoss",
)
# Enough for a task to be worth its start, few enough that a long queue keeps all cores busy.
ROWS_PER_TASK = 250_000


@dataclass(frozen=True)
class ReadOptions:
    """What a reader was asked for."""

    endpoint: Endpoint
    table: Table
    queue: str
    starting: Position
    ending: Position
    rows_per_trigger_max: int | None
    rows_per_task_max: int
    fail_on_data_loss: bool


def read_options(options: Mapping[str, str]) -> ReadOptions:
    from queuelake.pipeline.connection import endpoint_from

    refuse_unknown(options, READ_OPTIONS)
    table = read_table(options)
    starting = options.get("startingOffsets")
    ending = options.get("endingOffsets")
    trigger = _whole(options, "maxRowsPerTrigger")
    return ReadOptions(
        endpoint_from(options),
        table,
        options.get("queue", "*"),
        EARLIEST if starting is None else parse_position("startingOffsets", starting),
        LATEST if ending is None else parse_position("endingOffsets", ending),
        trigger,
        _whole(options, "maxRowsPerTask") or ROWS_PER_TASK,
        _boolean(options, "failOnDataLoss", True),
    )


def read_table(options: Mapping[str, str]) -> Table:
    name = options.get("table", "messages")
    for table in ("messages", "events", "stats"):
        if name == table:
            return table
    raise RefusedError(f"option 'table': {name!r} is not one of {', '.join(COLUMNS)}")


def read_columns(options: Mapping[str, str]) -> dict[str, str]:
    """Names and Spark types of the columns which were asked for, all when none were."""
    table = read_table(options)
    known: dict[str, str] = COLUMNS[table]
    text = options.get("columns")
    if text is None:
        return known
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            allowed = ", ".join(known)
            raise RefusedError(f"option 'columns': {name!r} is not a column of {table} ({allowed})")
    if len(set(names)) != len(names):
        raise RefusedError(f"option 'columns': {text!r} names a column twice")
    return {name: known[name] for name in names}


def schema_ddl(options: Mapping[str, str]) -> str:
    refuse_unknown(options, READ_OPTIONS)
    return ddl(read_columns(options))


def check_schema(schema: StructType, options: Mapping[str, str]) -> None:
    """A schema of the user's own may leave columns out; it may not rename or change them."""
    known = COLUMNS[read_table(options)]
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if known.get(field.name) != kind:
            says = known.get(field.name, "not there")
            raise RefusedError(f"column {field.name!r} is {says}, the given schema says {kind}")


def refuse_unknown(options: Mapping[str, str], allowed: tuple[str, ...]) -> None:
    known = {name.lower() for name in allowed}
    for name in options:
        if name.lower() not in known:
            raise RefusedError(f"option {name!r} is unknown; there are {', '.join(allowed)}")


def _whole(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) == 0:
        raise RefusedError(f"option {name!r}: {text!r} is not a whole number, 1 or more")
    return int(text)


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise RefusedError(f"option {name!r}: {text!r} is not true or false")
    return text.lower() == "true"


def arrow_schema(schema: StructType) -> Any:
    """What record batches for Spark look like; Spark refuses others."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
