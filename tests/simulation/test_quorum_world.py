"""Whole lives of a quorum queue from a seed.

A seed which fails is told by pytest; `run_seed` alone shows the same life again.
"""

from __future__ import annotations

import pytest

from tests.simulation.quorum_world import run_seed

SEEDS = 200
SEEDS_PER_TEST = 20


@pytest.mark.rule("Q2", "Q3", "Q7", "Q8", "Q10", "Q18", "Q36", "section 18")
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_promises_are_kept_in_every_life(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        run_seed(seed)
