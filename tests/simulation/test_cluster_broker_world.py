"""Whole lives of brokers in a cluster; `scripts/soak cluster_broker_world` runs many more."""

from __future__ import annotations

import pytest

from tests.simulation.cluster_broker_world import run_seed

SEEDS = 20
SEEDS_PER_TEST = 5


@pytest.mark.rule("D29", "D30", "Q8", "Q18")
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_promises_to_clients_are_kept_over_all_owners(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        run_seed(seed)
