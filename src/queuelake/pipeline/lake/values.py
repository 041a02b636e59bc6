"""One column for the values of all queues: `value`, a struct with the fields of every schema.

A field is there once for all queues that name it with the same type; structs are joined field by
field. When a name is taken by another type, the field gets a name of its own which says its type
(`level_string`); so a table never has to be rewritten, and no queue can spoil a column of another.
Names which differ in case only are one name, as they are to Spark.
"""

from __future__ import annotations

import re

import pyarrow as pa


def placed(have: pa.StructType | None, wanted: pa.StructType) -> pa.StructType:
    """`wanted` under the names its fields have, or get, in a column which is `have` so far."""
    known = {} if have is None else {field.name.lower(): field for field in have}
    fields = []
    for field in wanted:
        found = known.get(field.name.lower())
        if found is not None and not joinable(found.type, field.type):
            own = f"{field.name}_{words(field.type)}"
            found = known.get(own.lower())
            field = field.with_name(own)
        if found is not None:
            field = field.with_name(found.name).with_type(joined(found.type, field.type))
        known[field.name.lower()] = field
        fields.append(field)
    return pa.struct(fields)


def joinable(have: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column of the one type can hold the other, with more fields perhaps."""
    if pa.types.is_struct(have) and pa.types.is_struct(wanted):
        return True
    if pa.types.is_list(have) and pa.types.is_list(wanted):
        return joinable(have.value_type, wanted.value_type)
    return bool(have.equals(wanted))


def joined(have: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """`wanted` with the names of `have`, all the way down."""
    if pa.types.is_struct(wanted):
        return placed(have, wanted)
    if pa.types.is_list(wanted):
        return pa.list_(joined(have.value_type, wanted.value_type))
    return wanted


def covers(have: pa.DataType | None, named: pa.DataType) -> bool:
    """Whether every field of `named` is in `have` already."""
    if have is None:
        return False
    if pa.types.is_struct(named):
        fields = {field.name: field.type for field in have}
        return all(
            field.name in fields and covers(fields[field.name], field.type) for field in named
        )
    if pa.types.is_list(named):
        return covers(have.value_type, named.value_type)
    return True


def words(kind: pa.DataType) -> str:
    """A type as part of a name."""
    if pa.types.is_struct(kind):
        return "struct"
    if pa.types.is_list(kind):
        return f"array_{words(kind.value_type)}"
    if pa.types.is_map(kind):
        return f"map_{words(kind.item_type)}"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return re.sub(r"[^a-z0-9]+", "_", str(kind)).strip("_")
