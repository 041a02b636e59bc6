"""Every rule, acceptance test and section of the fan-out contract has a test."""

from __future__ import annotations

from pathlib import Path

from tests.queues.test_rules import shown

RULES = {f"S{number}" for number in range(1, 27)} | {"S24a"}
ACCEPTANCE = {f"T{number}" for number in range(1, 18)}
SECTIONS = {f"section {number}" for number in (1, 2, 3, 6, 7, 8, 10)}


def test_every_rule_of_the_contract_has_a_test() -> None:
    found = set().union(*(shown(path) for path in Path(__file__).parent.glob("test_*.py")))
    missing = sorted((RULES | ACCEPTANCE | SECTIONS) - found)
    assert not missing
