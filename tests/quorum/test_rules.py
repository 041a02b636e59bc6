"""Every rule of the quorum queue contract has a test: of the machine, the broker or a cluster."""

from __future__ import annotations

from pathlib import Path

from tests.queues.test_rules import shown

RULES = {f"Q{number}" for number in range(1, 37)}
SECTIONS = {f"section {number}" for number in (2, 6, 9, 12, 16, 18)}


def test_every_rule_of_the_contract_has_a_test() -> None:
    here = Path(__file__).parent
    paths = [*here.glob("test_*.py"), here.parent / "simulation" / "test_quorum_world.py"]
    paths += (here.parent / "queues").glob("test_quorum_*.py")
    paths += (here.parent / "cluster").glob("test_*.py")
    found = set().union(*map(shown, paths))
    assert not sorted((RULES | SECTIONS) - found)
