"""Many lives of a simulated quorum queue: its replicas and its clients."""

from __future__ import annotations

import sys

from tests.simulation.lives import soak
from tests.simulation.quorum_world import STEPS, run_seed

if __name__ == "__main__":
    sys.exit(soak("quorum_world", __doc__, run_seed, 100_000, STEPS))
