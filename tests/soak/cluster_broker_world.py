"""Many lives of whole brokers in a simulated cluster, and of their clients."""

from __future__ import annotations

import sys

from tests.simulation.cluster_broker_world import STEPS, run_seed
from tests.simulation.lives import soak

if __name__ == "__main__":
    sys.exit(soak("cluster_broker_world", __doc__, run_seed, 10_000, STEPS))
