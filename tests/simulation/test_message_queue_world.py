"""Whole nodes with message queues, from seeds; `tests/soak/message_queue_world.py` has more.

What they found has its own tests, in `tests/unit/test_message_queues.py`.
"""

from __future__ import annotations

import pytest

from tests.simulation.message_queue_world import run_seed


@pytest.mark.parametrize("seed", range(150))
def test_promises_of_message_queues_are_kept_in_every_life(seed: int) -> None:
    run_seed(seed)
