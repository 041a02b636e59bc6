"""Whole lives of a message queue machine from a seed.

A seed which fails is told by pytest; `run_seed` alone shows the same life again.
"""

from __future__ import annotations

import pytest

from tests.simulation.message_queue_machine import run_seed

SEEDS = 300
SEEDS_PER_TEST = 10


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_promises_are_kept_in_every_life(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        run_seed(seed)


@pytest.mark.parametrize("seed", [1406, 2830])
def test_what_came_back_after_a_crash_is_set_aside_behind_what_is_older(seed: int) -> None:
    run_seed(seed)
