"""Whole nodes with queues, from seeds; `tests/soak/queue_world.py` has many more of them."""

from __future__ import annotations

import pytest

from tests.simulation.queue_world import run_seed

FOUND = {
    "timed out while it waited for the client, and was sent to it": [1, 12],
    "settled as an earlier delivery before its repeat left, and was sent": [7, 17, 39],
    "delayed, purged, due before the purge was durable, and was sent": [58],
}


@pytest.mark.parametrize("seed", range(100))
def test_promises_of_queues_are_kept_in_every_life(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("mistake", FOUND)
def test_what_was_found_once_stays_mended(mistake: str) -> None:
    for seed in FOUND[mistake]:
        run_seed(seed)
