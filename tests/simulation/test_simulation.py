"""Whole lives of a broker from a seed; `python -m tests.soak.simulation` runs many more.

A seed which fails is told by pytest; run it alone to see the same life again.
"""

from __future__ import annotations

import pytest

from tests.simulation.world import World

STEPS = 250


@pytest.mark.parametrize("seed", range(200))
def test_promises_are_kept_in_every_life(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
        world.check()
    world.settle()
