"""What payloads say: a queue with a schema gets a column `value`, or a reason why not.

Spark reads the payloads (`from_json`, `from_csv`), in its permissive way: it never fails, and tells
which rows did not fit. A tombstone (an empty payload with the property `tombstone=true`) always
fits, with no value. A schema which Spark cannot read fits nothing, and the reason says so: the
rows wait in quarantine until it is mended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from queuelake.flight import PayloadSchema
from queuelake.pipeline.lake import values
from queuelake.pipeline.lake.lease import HeldLease
from queuelake.pipeline.lake.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

ArrowStep = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

CORRUPT: Final = "_queuelake_corrupt"
REASON_CHARACTERS_MAX: Final = 300
FIELDS_NAMED_MAX: Final = 20
# Types which every reader of Delta knows, whatever features it has.
PLAIN_TYPES: Final = (
    *("string", "binary", "boolean", "date", "timestamp"),
    *("byte", "short", "integer", "long", "float", "double"),
)


class PayloadReader:
    """Reads the payloads of one schema; `column` is how its fields are named in the table."""

    def __init__(self, spark: SparkSession, schema: PayloadSchema | None) -> None:
        self.schema = schema
        self.problem = ""
        self.wanted: StructType | None = None
        self.column: pa.DataType | None = None
        try:
            self.wanted = wanted_type(schema) if schema else None
        except Exception as error:  # whatever the parser of Spark says about it
            self.problem = problem(schema, error)

    def place(self, have: pa.DataType | None) -> pa.DataType | None:
        """Find the names of its fields in a column which is `have` so far; None: it has none."""
        from pyspark.sql.pandas.types import to_arrow_type

        if self.wanted is not None:
            arrow = to_arrow_type(self.wanted, timezone="UTC")
            self.column = values.placed(have, plain_names(arrow))
        return self.column

    def with_value(self, rows: DataFrame) -> DataFrame:
        """Add `value` (if there are fields) and `reason`, which is null for rows that fit.

        Rows with `settled` always fit: without a value, if need be.
        """
        from pyspark.sql import functions as F

        if self.wanted is None:
            reason = F.lit(self.problem or None).cast("string")
            return self._finished(rows.withColumn("reason", reason))
        text = F.col("payload").cast("string")
        if self.schema is not None and self.schema.format == "text":
            parsed = F.struct(text.alias("text"))
            wrong = F.when(~F.is_valid_utf8(text), F.lit("the payload is not UTF-8"))
        else:
            parsed = self._parsed(text)
            wrong = self._wrong(text)
        nothing = (F.length("payload") == 0) & (
            F.coalesce(F.col("properties")["tombstone"], F.lit("")) == "true"
        )
        found = rows.withColumn("_parsed", parsed).withColumn(
            "reason", F.when(~nothing, wrong).otherwise(F.lit(None))
        )
        named = [F.col("_parsed")[field.name].alias(field.name) for field in self.wanted]
        value = F.when(F.col("reason").isNull() & ~nothing, F.struct(*named).cast(self._named()))
        return self._finished(found.withColumn("value", value).drop("_parsed"))

    def _finished(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        reason = F.when(~F.col("settled"), F.col("reason"))
        return rows.withColumn("reason", reason).drop("settled")

    def _named(self) -> DataType:
        from pyspark.sql.pandas.types import from_arrow_type

        return from_arrow_type(self.column)

    def _parsed(self, text: Column) -> Column:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructType

        assert self.schema is not None
        assert self.wanted is not None
        schema = StructType(list(self.wanted.fields)).add(CORRUPT, StringType())
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        if self.schema.format == "json":
            return F.from_json(text, schema, options)
        return F.from_csv(text, ddl(schema), options)

    def _wrong(self, text: Column) -> Column:
        from pyspark.sql import functions as F

        assert self.schema is not None
        assert self.wanted is not None
        kind = self.schema.format.upper()
        corrupt = F.col("_parsed")[CORRUPT].isNotNull() | F.col("_parsed").isNull()
        why = F.when(F.length("payload") == 0, F.lit("the payload is empty")).when(
            ~F.is_valid_utf8(text), F.lit("the payload is not UTF-8")
        )
        if self.schema.format == "json":
            # Spark stops reading at the end of the object and does not mind what follows.
            more = has_more(text)
            corrupt = corrupt | more
            no_json = more | F.try_parse_json(text).isNull()
            why = why.when(no_json, F.lit("the payload is not JSON"))
            why = why.otherwise(
                F.concat(F.lit("does not fit the schema"), misfits(self.wanted, text))
            )
        else:
            why = why.otherwise(F.lit(f"the payload is not {kind} of {len(self.wanted)} columns"))
        return F.when(F.length("payload") == 0, why).when(corrupt, why)


def extend_value(table: LakeTable, reader: PayloadReader, lease: HeldLease) -> None:
    """Give a table the fields a schema asks for, before rows with them come."""
    schema = table.schema()
    have = schema.field("value").type if "value" in schema.names else None
    named = reader.place(have)
    if named is not None and not values.covers(have, named):
        table.extend(pa.field("value", named), lease)


def has_more(text: Column) -> Column:
    """Whether something follows the first object.

    One value alone is JSON within an array and within an object; whatever else is JSON in the one
    (`1, 2`) is none in the other. Most payloads end with their first brace: they are not read.
    """
    from pyspark.sql import functions as F

    trimmed = F.trim(text, F.lit(" \t\r\n"))
    is_one = (
        F.try_parse_json(F.concat(F.lit("["), trimmed, F.lit("]"))).isNotNull()
        & F.try_parse_json(F.concat(F.lit('{"v":'), trimmed, F.lit("}"))).isNotNull()
    )
    ends = F.endswith(trimmed, F.lit("}"))
    ends_first = F.instr(trimmed, "}") == F.length(trimmed)
    return F.startswith(trimmed, F.lit("{")) & ~(ends & (ends_first | is_one))


def misfits(wanted: StructType, text: Column) -> Column:
    """`: field a is not int, ...`, as far as it can be seen."""
    from pyspark.sql import functions as F

    seen = [
        F.when(
            F.get_json_object(text, f"$['{field.name}']").isNotNull()
            & F.col("_parsed")[field.name].isNull(),
            F.lit(f"{field.name} is not {field.dataType.simpleString()[:40]}"),
        )
        for field in wanted.fields[:FIELDS_NAMED_MAX]
        if "'" not in field.name
    ]
    words = F.concat_ws(", ", *seen)
    return F.when(words != "", F.concat(F.lit(": "), words)).otherwise(F.lit(""))


def wanted_type(schema: PayloadSchema) -> StructType | None:
    """What the schema asks for, as a type; None when payloads stay what they are.

    Raises:
        Exception: Spark cannot read it, or a lake cannot hold it.
    """
    from pyspark.sql.types import StringType, StructType

    if schema.format == "binary":
        return None
    if schema.format == "text":
        return StructType().add("text", StringType())
    wanted = StructType.fromDDL(schema.ddl)
    if not isinstance(wanted, StructType):
        raise ValueError(f"{wanted.simpleString()} has no fields")
    check_type(wanted)
    if schema.format == "csv":
        for field in wanted:
            if field.dataType.typeName() in ("struct", "array", "map", "binary"):
                raise ValueError(f"column {field.name} of a CSV cannot be {field.simpleString()}")
    return wanted


def ddl(schema: StructType) -> str:
    escaped = [(field.name.replace("`", "``"), field.dataType.simpleString()) for field in schema]
    return ", ".join(f"`{name}` {kind}" for name, kind in escaped)


def check_type(kind: Any) -> None:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    if isinstance(kind, StructType):
        names = [field.name.lower() for field in kind]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} is there twice")
        for field in kind:
            check_type(field.dataType)
    elif isinstance(kind, ArrayType):
        check_type(kind.elementType)
    elif isinstance(kind, MapType):
        check_type(kind.keyType)
        check_type(kind.valueType)
    elif not isinstance(kind, DecimalType) and kind.typeName() not in PLAIN_TYPES:
        raise ValueError(f"a lake cannot hold {kind.simpleString()}")


def problem(schema: PayloadSchema | None, error: Exception) -> str:
    line = next((line for line in str(error).splitlines() if line.strip()), repr(error))
    ddl = schema.ddl if schema else ""
    return f"the schema {ddl!r} cannot be used: {line.strip()}"[:REASON_CHARACTERS_MAX]


def plain_names(kind: pa.DataType) -> pa.DataType:
    """The type as Delta and Parquet give it back: everything may be null."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, plain_names(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(plain_names(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(plain_names(kind.key_type), plain_names(kind.item_type))
    return kind
