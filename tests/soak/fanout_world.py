"""Many lives of a simulated broker with vehicles."""

from __future__ import annotations

import sys

from tests.simulation.fanout_world import STEPS, run_seed
from tests.simulation.lives import soak

if __name__ == "__main__":
    sys.exit(soak("fanout_world", __doc__, run_seed, 2_000, STEPS))
