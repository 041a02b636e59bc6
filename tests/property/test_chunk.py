"""Any records survive the chunk format; no bytes make it do anything but refuse."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queuelake.errors import StorageError
from queuelake.storage.chunk import (
    HEAD_BYTES,
    ROW_BYTES_MAX,
    Record,
    chunk_range,
    chunk_times,
    decode_chunk,
    encode_chunk,
)
from tests.contract.chunks import fields

# Few different values, so that columns of one value and nearly of one value are common.
texts = st.one_of(st.just(b""), st.sampled_from([b"a", b"bb"]), st.binary(max_size=40))
bytes_ = st.one_of(st.just(4), st.integers(0, 255))
times = st.one_of(st.just(0), st.integers(0, (1 << 63) - 1))
records = st.builds(Record, texts, texts, texts, texts, texts, texts, bytes_, bytes_, times, times)
firsts = st.integers(0, (1 << 64) - 1_000)


@given(first=firsts, given_records=st.lists(records, min_size=1, max_size=20))
def test_any_records_survive(first: int, given_records: list[Record]) -> None:
    value = encode_chunk(first, given_records)
    found = decode_chunk(value)
    assert [fields(one) for one in found] == [fields(one) for one in given_records]
    assert [one.seq for one in found] == list(range(first, first + len(found)))
    assert chunk_range(value) == (found[0].seq, found[-1].seq)
    assert chunk_times(value) == (found[0].ts_ms, found[-1].ts_ms)
    size = sum(one.size() for one in given_records)
    assert len(value) <= HEAD_BYTES + ROW_BYTES_MAX * len(found) + size


@given(
    given_records=st.lists(records, min_size=1, max_size=5),
    at=st.integers(0, 10_000),
    byte=st.integers(0, 255),
)
def test_a_changed_byte_is_refused_or_read_as_other_records(
    given_records: list[Record], at: int, byte: int
) -> None:
    value = bytearray(encode_chunk(1, given_records))
    value[at % len(value)] = byte
    try:
        assert decode_chunk(bytes(value))
    except StorageError:
        pass


@given(value=st.binary(max_size=200))
def test_noise_is_refused_or_read(value: bytes) -> None:
    try:
        assert decode_chunk(value)
    except StorageError:
        pass
