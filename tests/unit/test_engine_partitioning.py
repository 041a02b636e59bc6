"""Which partition a key goes to, and whose a partition is (D5, D11)."""

from __future__ import annotations

import pytest

from queuelake.engine.partitioning import fnv1a, ranges


@pytest.mark.parametrize(
    ("key", "value", "of_10", "of_3"),
    [
        ("user-123", 0x8C93CC93, 3, 2),
        ("user-124", 0x9193D472, 8, 0),
        ("tenant-a", 0x93332D7B, 1, 0),
        ("a", 0xE40C292C, 0, 1),
    ],
)
def test_keys_hash_to_the_published_vectors(key: str, value: int, of_10: int, of_3: int) -> None:
    assert fnv1a(key.encode()) == value
    assert (value % 10, value % 3) == (of_10, of_3)


def test_no_bytes_hash_to_the_offset_basis() -> None:
    assert fnv1a(b"") == 0x811C9DC5


@pytest.mark.parametrize(
    ("partitions", "consumers", "expected"),
    [
        (10, 3, [(0, 4), (4, 3), (7, 3)]),
        (10, 1, [(0, 10)]),
        (10, 10, [(number, 1) for number in range(10)]),
        (2, 4, [(0, 1), (1, 1), (2, 0), (2, 0)]),
        (1000, 7, [(0, 143), *((143 * n, 143) for n in range(1, 6)), (858, 142)]),
    ],
)
def test_consumers_get_contiguous_ranges_and_the_first_ones_get_one_more(
    partitions: int, consumers: int, expected: list[tuple[int, int]]
) -> None:
    assert ranges(partitions, consumers) == expected
