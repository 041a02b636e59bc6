"""Whole nodes whose mailboxes and vehicles grow old, from seeds; `tests/soak` has more."""

from __future__ import annotations

import pytest

from tests.simulation.aging_worlds import run_fanout, run_mailboxes


@pytest.mark.parametrize("start", range(0, 100, 10))
def test_tables_of_mailboxes_fit_together_whenever_garbage_is_collected(start: int) -> None:
    for seed in range(start, start + 10):
        run_mailboxes(seed)


@pytest.mark.parametrize("start", range(0, 100, 10))
def test_tables_of_fanout_fit_together_whenever_garbage_is_collected(start: int) -> None:
    for seed in range(start, start + 10):
        run_fanout(seed)
