"""Many lives of the machine of a message queue."""

from __future__ import annotations

import sys

from tests.simulation.lives import soak
from tests.simulation.message_queue_machine import STEPS, run_seed

if __name__ == "__main__":
    sys.exit(soak("message_queue_machine", __doc__, run_seed, 10_000, STEPS))
