"""Many lives of the machine of a durable queue."""

from __future__ import annotations

import sys

from tests.simulation.lives import soak
from tests.simulation.queue_machine import STEPS, run_seed

if __name__ == "__main__":
    sys.exit(soak("machine", __doc__, run_seed, 10_000, STEPS))
