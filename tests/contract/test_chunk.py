"""The chunk format: what it costs, what it tells without being decoded, and what it refuses."""

from __future__ import annotations

import pytest

from queuelake.errors import StorageError
from queuelake.storage.chunk import (
    HEAD_BYTES,
    ROW_BYTES_MAX,
    Layout,
    Record,
    chunk_range,
    chunk_times,
    decode_chunk,
    encode_chunk,
)
from tests.contract.chunks import fields, record

ONE_VALUE_EACH = 8 + 8 + 1 + 1  # the fixed columns when all records agree


def test_records_come_back_in_order_with_their_sequences() -> None:
    records = [record(n, topic=b"t", message_id=b"id-%d" % n, properties=b"p") for n in range(3)]
    found = decode_chunk(encode_chunk(41, records))
    assert [one.seq for one in found] == [41, 42, 43]
    assert [fields(one) for one in found] == [fields(one) for one in records]


def test_range_and_times_are_read_without_decoding() -> None:
    value = encode_chunk(7, [record(n, ts_ms=1000 + n) for n in range(5)])
    assert chunk_range(value) == (7, 11)
    assert chunk_times(value) == (1000, 1004)
    assert chunk_times(encode_chunk(7, [record(1, ts_ms=5), record(2, ts_ms=5)])) == (5, 5)


def test_columns_of_one_value_cost_that_value_once() -> None:
    records = [Record(b"", b"", b"", b"client", b"", b"x" * 10, 1, 4, 5, 0) for _ in range(100)]
    expected = HEAD_BYTES + ONE_VALUE_EACH + len(b"client") + 100 * (4 + 10)
    assert len(encode_chunk(1, records)) == expected


def test_empty_payloads_cost_nothing() -> None:
    records = [Record(b"", b"", b"", b"", b"", b"", 0, 4, 5, 0) for _ in range(100)]
    assert len(encode_chunk(1, records)) == HEAD_BYTES + ONE_VALUE_EACH


def test_a_column_is_not_one_value_when_only_its_ends_agree() -> None:
    records = [record(n, key=key, ts_ms=n % 2) for n, key in enumerate((b"a", b"b", b"a"))]
    found = decode_chunk(encode_chunk(1, records))
    assert [one.key for one in found] == [b"a", b"b", b"a"]
    assert [one.ts_ms for one in found] == [0, 1, 0]


def test_no_record_costs_more_than_said() -> None:
    records = [
        Record(b"t%d" % n, b"k%d" % n, b"m%d" % n, b"p%d" % n, b"u%d" % n, b"x%d" % n, n, n, n, n)
        for n in range(10)
    ]
    size = sum(one.size() for one in records)
    assert len(encode_chunk(1, records)) == HEAD_BYTES + 10 * ROW_BYTES_MAX + size


def test_the_greatest_values_fit() -> None:
    greatest = Record(b"", b"", b"", b"", b"", b"", 255, 255, (1 << 63) - 1, (1 << 63) - 1)
    (found,) = decode_chunk(encode_chunk((1 << 64) - 1, [greatest]))
    assert fields(found) == fields(greatest)
    assert found.seq == (1 << 64) - 1


def test_a_layout_shows_the_columns_where_they_lie() -> None:
    value = encode_chunk(1, [record(n, key=b"k%d" % n) for n in range(3)])
    key = Layout(value).texts[1]
    assert value[key.at : key.at + key.length] == b"k0k1k2"
    assert value[key.ends_at : key.at] == b"\2\0\0\0\4\0\0\0\6\0\0\0"


@pytest.mark.parametrize("cut", [1, 10, 100])
def test_a_chunk_which_is_not_whole_is_refused(cut: int) -> None:
    value = encode_chunk(1, [record(n) for n in range(3)])
    with pytest.raises(StorageError, match="chunk of"):
        decode_chunk(value[:-cut])
    with pytest.raises(StorageError, match="chunk of"):
        decode_chunk(value + b"\0" * cut)


def test_a_chunk_without_records_is_refused() -> None:
    with pytest.raises(StorageError, match="chunk of 0 bytes"):
        decode_chunk(b"")
    with pytest.raises(StorageError, match="0 of 1 to 4096 records"):
        decode_chunk(bytes(HEAD_BYTES))


def test_a_chunk_which_claims_more_records_than_it_may_is_refused() -> None:
    value = bytearray(encode_chunk(1, [record(1)]))
    value[8:12] = b"\xff" * 4
    with pytest.raises(StorageError, match="4294967295 of 1 to 4096 records"):
        decode_chunk(bytes(value))


def test_a_column_which_ends_elsewhere_is_refused() -> None:
    value = bytearray(encode_chunk(1, [record(n, key=b"k%d" % n) for n in range(3)]))
    value[Layout(bytes(value)).texts[1].ends_at + 8] = 5
    with pytest.raises(StorageError, match="column of 6 bytes ends at 5"):
        decode_chunk(bytes(value))


def test_ends_which_do_not_rise_are_refused() -> None:
    value = bytearray(encode_chunk(1, [record(n, key=b"k%d" % n) for n in range(3)]))
    value[Layout(bytes(value)).texts[1].ends_at] = 5
    with pytest.raises(StorageError, match="a value has less than no bytes"):
        decode_chunk(bytes(value))
