"""Whole nodes with message queues, from seeds; `tests/soak/message_queue_world.py` has more."""

from __future__ import annotations

import pytest

from tests.simulation.message_queue_world import run_seed

FOUND = {
    "returned before a crash, the clock was set back, and waited for it": [1],
    "deleted while it slept": [6, 23, 44, 46],
    "dead, and never left its queue": [31],
    "resumed while the queue was not there, and never attached": [54, 88, 90, 124],
    "overwritten while it waited for its client, and sent after its successor": [244],
    "taken from a client because it was silent": [157, 186],
    "subscribed again, and sent once more": [329, 1580],
}


@pytest.mark.parametrize("seed", range(150))
def test_promises_of_message_queues_are_kept_in_every_life(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("mistake", FOUND)
def test_what_was_found_once_stays_mended(mistake: str) -> None:
    for seed in FOUND[mistake]:
        run_seed(seed)
