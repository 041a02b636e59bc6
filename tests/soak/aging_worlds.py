"""Many lives of a simulated broker whose mailboxes and vehicles grow old."""

from __future__ import annotations

import sys

from tests.simulation.aging_worlds import STEPS, run_fanout, run_mailboxes
from tests.simulation.lives import soak


def run_seed(seed: int, steps: int) -> None:
    run_mailboxes(seed, steps)
    run_fanout(seed, steps)


if __name__ == "__main__":
    sys.exit(soak("aging_worlds", __doc__, run_seed, 2_000, STEPS))
