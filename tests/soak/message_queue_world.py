"""Many lives of a simulated broker with message queues."""

from __future__ import annotations

import sys

from tests.simulation.lives import soak
from tests.simulation.message_queue_world import STEPS, run_seed

if __name__ == "__main__":
    sys.exit(soak("message_queue_world", __doc__, run_seed, 2_000, STEPS))
