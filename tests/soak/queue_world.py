"""Many lives of a simulated broker with durable queues."""

from __future__ import annotations

import sys

from tests.simulation.lives import soak
from tests.simulation.queue_world import STEPS, run_seed

if __name__ == "__main__":
    sys.exit(soak("queue_world", __doc__, run_seed, 2_000, STEPS))
