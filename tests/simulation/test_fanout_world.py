"""Whole nodes with vehicle fan-out, from seeds; `python -m tests.soak.fanout_world` has more."""

from __future__ import annotations

import pytest

from tests.simulation.fanout_world import run_seed

FOUND = {
    "a slice was put before the last one was durable, and the trigger stayed hidden": [103, 625],
    "what was counted for such a trigger was counted back too often": [877],
}


@pytest.mark.parametrize("seed", range(200))
def test_promises_of_fanout_are_kept_in_every_life(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("mistake", FOUND)
def test_what_was_found_once_stays_mended(mistake: str) -> None:
    for seed in FOUND[mistake]:
        run_seed(seed)
