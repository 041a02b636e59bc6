"""The fuzzer in short; `scripts/soak fuzz` runs a million inputs."""

from __future__ import annotations

import pytest

from tests.soak.fuzz import Fuzzer


@pytest.mark.parametrize("seed", [1, 2])
def test_ten_thousand_mutated_connections_give_packets_or_peer_errors(seed: int) -> None:
    outcome = Fuzzer(seed).run(10_000)
    assert outcome.broken == []
    assert outcome.inputs == 10_000
    # A fuzzer which is refused at the door, or never refused, looks at nothing.
    assert 2_000 < outcome.refused.total() < 8_000
    assert len(outcome.refused) == 4
    assert min(outcome.found.values()) > 100
    assert len(outcome.found) == 8
