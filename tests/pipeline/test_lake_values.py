"""One column `value` for the schemas of all queues."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from queuelake.pipeline.lake.values import covers, placed, words

SCALARS = [pa.int32(), pa.int64(), pa.string(), pa.float64(), pa.timestamp("us", "UTC")]


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


def joined(have: pa.DataType | None, named: pa.DataType) -> pa.DataType:
    """What Delta makes of a column to which these fields are added."""
    schemas = [pa.schema([("value", kind)]) for kind in (have, named) if kind is not None]
    return pa.unify_schemas(schemas, promote_options="permissive").field("value").type


def test_the_first_schema_keeps_its_names() -> None:
    assert placed(None, struct(a=pa.int32())) == struct(a=pa.int32())


def test_another_queue_with_the_same_field_shares_it() -> None:
    have = struct(a=pa.int32(), b=pa.string())
    assert placed(have, struct(A=pa.int32())) == struct(a=pa.int32())


def test_a_name_which_is_taken_by_another_type_gets_a_name_which_says_so() -> None:
    have = struct(level=pa.int32())
    named = placed(have, struct(level=pa.string()))
    assert named == struct(level_string=pa.string())
    assert placed(joined(have, named), struct(level=pa.string())) == named


def test_structs_and_lists_of_structs_are_joined_field_by_field() -> None:
    have = struct(at=struct(x=pa.int32()), many=pa.list_(struct(y=pa.int32())))
    wanted = struct(at=struct(x=pa.string(), z=pa.int32()), many=pa.list_(struct(w=pa.int32())))
    named = placed(have, wanted)
    assert named == struct(
        at=struct(x_string=pa.string(), z=pa.int32()), many=pa.list_(struct(w=pa.int32()))
    )
    assert not covers(have, named)
    assert covers(joined(have, named), named)


def test_types_as_words() -> None:
    assert words(pa.list_(pa.decimal128(10, 2))) == "array_decimal128_10_2"
    assert words(pa.map_(pa.string(), pa.int64())) == "map_int64"


def structs(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    """Names which differ in case only are never in one struct, but in several."""
    some = [
        st.dictionaries(st.sampled_from(names), kinds, min_size=1, max_size=3)
        for names in ("abc", "AbC")
    ]
    return st.one_of(some).map(lambda fields: struct(**fields))


KINDS = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: structs(inner) | inner.map(pa.list_),
    max_leaves=5,
)


@given(st.lists(structs(KINDS), min_size=1, max_size=5))
def test_any_schemas_live_in_one_column_and_find_their_fields_again(
    wanted: list[pa.DataType],
) -> None:
    have: pa.DataType | None = None
    for one in wanted:
        named = placed(have, one)
        have = joined(have, named)
        assert covers(have, named)
        assert same_shape(named, one)
    for one in wanted:
        assert covers(have, placed(have, one)), "no schema needs another field the second time"


def same_shape(named: pa.DataType, wanted: pa.DataType) -> bool:
    """Equal but for names, so that a cast by position gives the one from the other."""
    if pa.types.is_struct(wanted):
        return named.num_fields == wanted.num_fields and all(
            same_shape(a.type, b.type) for a, b in zip(named, wanted, strict=True)
        )
    if pa.types.is_list(wanted):
        return same_shape(named.value_type, wanted.value_type)
    return bool(named == wanted)
