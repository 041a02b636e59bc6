"""Settled sequences against a set of numbers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from queuelake.engine.settled import BLOCK, Settled
from tests.simulation.queue_invariants import check_settled

LAST = 3 * BLOCK
# Near the edges of blocks, where mistakes are.
SEQUENCES = st.one_of(
    st.integers(1, LAST),
    st.integers(1, 8),
    st.integers(BLOCK - 4, BLOCK + 4),
    st.integers(2 * BLOCK - 4, 2 * BLOCK + 4),
)
RUNS = st.tuples(SEQUENCES, st.integers(1, BLOCK + 5))
STEPS = st.lists(st.one_of(SEQUENCES, RUNS, st.tuples(SEQUENCES)), max_size=15)


def built(steps: list[int | tuple[int, int] | tuple[int]]) -> tuple[Settled, set[int]]:
    """One sequence, a run of them, or everything up to one."""
    settled, model = Settled(), set[int]()
    for step in steps:
        if isinstance(step, tuple) and len(step) == 1:
            settled.raise_to(step[0])
            model.update(range(1, step[0] + 1))
            continue
        first, count = step if isinstance(step, tuple) else (step, 1)
        for seq in range(first, first + count):
            if seq not in model:
                settled.add(seq)
                model.add(seq)
    return settled, model


@given(STEPS)
def test_settled_is_a_set(steps: list[int | tuple[int, int] | tuple[int]]) -> None:
    settled, model = built(steps)
    check_settled(settled)
    last = LAST + 2 * BLOCK
    assert {seq for seq in range(1, last) if seq in settled} == model
    assert settled.upto + settled.count_above == len(model)
    assert set(settled.blocks) <= settled.dirty


@given(STEPS, SEQUENCES, SEQUENCES)
def test_what_is_not_settled_is_found_in_order(
    steps: list[int | tuple[int, int] | tuple[int]], first: int, last: int
) -> None:
    settled, model = built(steps)
    expected = [seq for seq in range(first, last + 1) if seq not in model]
    assert settled.unsettled(first, last) == expected
    ranges = settled.unsettled_ranges(first, last)
    assert [seq for low, high in ranges for seq in range(low, high + 1)] == expected
    assert all([low > high + 1 for (_, high), (low, _) in pairwise(ranges)])
    following = first
    while following in model:
        following += 1
    assert settled.next_unsettled(first) == following


@given(STEPS, STEPS)
def test_what_two_have_settled_is_the_intersection(
    one: list[int | tuple[int, int] | tuple[int]], other: list[int | tuple[int, int] | tuple[int]]
) -> None:
    first, first_model = built(one)
    second, second_model = built(other)
    for shared in (first.shared_with(second), second.shared_with(first)):
        check_settled(shared)
        found = {seq for seq in range(1, LAST + 2 * BLOCK) if seq in shared}
        assert found == first_model & second_model


@given(STEPS)
def test_a_copy_and_what_the_store_has_are_the_same(
    steps: list[int | tuple[int, int] | tuple[int]],
) -> None:
    settled, _ = built(steps)
    copy, restored = settled.copy(), Settled(settled.upto)
    for block, bits in settled.blocks.items():
        restored.restore(block, bits)
    for other in (copy, restored):
        assert (other.upto, other.blocks) == (settled.upto, settled.blocks)
        assert other.count_above == settled.count_above
