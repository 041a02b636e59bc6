"""Many lives of a simulated broker."""

from __future__ import annotations

import sys

from tests.simulation.lives import quiet, soak
from tests.simulation.world import World

STEPS = 250


def run_seed(seed: int, steps: int) -> None:
    with quiet():
        world = World(seed)
        for _ in range(steps):
            world.step()
            world.check()
        world.settle()


if __name__ == "__main__":
    sys.exit(soak("simulation", __doc__, run_seed, 10_000, STEPS))
