"""Whole nodes with mailboxes, from seeds."""

from __future__ import annotations

import pytest

from tests.simulation.ecq_world import run_seed


@pytest.mark.parametrize("start", range(0, 300, 10))
def test_promises_of_mailboxes_are_kept_in_every_life(start: int) -> None:
    for seed in range(start, start + 10):
        run_seed(seed)
