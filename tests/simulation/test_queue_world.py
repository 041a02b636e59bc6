"""Whole nodes with queues, from seeds; `tests/soak/queue_world.py` has many more of them."""

from __future__ import annotations

import pytest

from tests.simulation.queue_world import run_seed


@pytest.mark.parametrize("seed", range(100))
def test_promises_of_queues_are_kept_in_every_life(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("seed", [8, 9, 10])
def test_what_timed_out_while_it_waited_for_the_client_is_not_sent_to_it(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("seed", [98, 118])
def test_what_was_settled_before_its_repeat_left_does_not_leave(seed: int) -> None:
    run_seed(seed)
