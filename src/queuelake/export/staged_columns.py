"""The columns which can be staged, and what no text in them may be."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from queuelake.errors import RefusedError

TEXT_BYTES_MAX: Final = 65_535
DELAY_MS_MAX: Final = 10 * 365 * 86_400_000

COLUMNS: Final = {
    "payload": pa.binary(),
    "key": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "content_type": pa.string(),
    "delay_ms": pa.int64(),
    "message_id": pa.string(),
    "topic": pa.string(),
    "from_queue_id": pa.string(),
    "from_partition": pa.int32(),
    "from_seqno": pa.int64(),
}
ID_COLUMNS: Final = {"id": pa.string()}


def canonical(schema: pa.Schema, columns: dict[str, pa.DataType], required: str) -> pa.Schema:
    """The schema in which rows are staged.

    Raises:
        RefusedError: a column is missing, or means nothing.
    """
    for name in schema.names:
        if name not in columns:
            allowed = ", ".join(columns)
            raise RefusedError(f"column {name!r} means nothing to a queue; allowed: {allowed}")
    if len(set(schema.names)) < len(schema.names):
        raise RefusedError("a column is there twice")
    if required not in schema.names:
        raise RefusedError(f"column {required!r} is missing; there are: {', '.join(schema.names)}")
    return pa.schema([(name, columns[name]) for name in schema.names])


def cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows as they are staged.

    Raises:
        RefusedError: a column has another type, or text which is none.
    """
    arrays = []
    for field in schema:
        try:
            array = batch.column(field.name).cast(field.type)
            array.validate(full=True)
        except pa.ArrowException as error:
            line = str(error).splitlines()[0]
            raise RefusedError(f"column {field.name!r} is not {field.type}: {line}") from None
        arrays.append(array)
    return pa.record_batch(arrays, schema=schema)


def column(block: pa.Table, name: str) -> Any:
    found = block.column(name)
    return found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()


def text(block: pa.Table, name: str) -> pa.Array | bytes:
    """A column of text as bytes; b"" when there is nothing in it."""
    if name not in block.column_names:
        return b""
    found = column(block, name)
    if found.null_count == len(found):
        return b""
    values = found.fill_null("")
    check_text(name, values)
    return values.cast(pa.binary())


def check_text(name: str, values: pa.Array) -> None:
    """What no text of an MQTT packet may be.

    Raises:
        RefusedError: it is.
    """
    check_bytes(name, values, TEXT_BYTES_MAX)
    if pc.any(pc.match_substring(values, "\0")).as_py():
        raise RefusedError(f"{name} holds U+0000")


def check_bytes(name: str, values: pa.Array | bytes, limit: int) -> None:
    longest = len(values) if isinstance(values, bytes) else pc.max(pc.binary_length(values)).as_py()
    if (longest or 0) > limit:
        raise RefusedError(f"{name} of {longest} bytes; limit: {limit}")
