"""Many lives of a simulated cluster: ownership, fencing, replication, copies, publishers."""

from __future__ import annotations

import sys

from tests.simulation.cluster_world import STEPS, run_seed
from tests.simulation.lives import soak

if __name__ == "__main__":
    sys.exit(soak("cluster_world", __doc__, run_seed, 100_000, STEPS))
