"""Many lives of a simulated broker with device mailboxes."""

from __future__ import annotations

import sys

from tests.simulation.ecq_world import STEPS, run_seed
from tests.simulation.lives import soak

if __name__ == "__main__":
    sys.exit(soak("ecq_world", __doc__, run_seed, 2_000, STEPS))
