"""Every rule, acceptance test and surface of the message queue contract has a test."""

from __future__ import annotations

from pathlib import Path

from tests.queues.test_rules import shown

RULES = {f"M{number}" for number in range(1, 32)}
ACCEPTANCE = {f"acceptance {number}" for number in range(1, 21)}
SECTIONS = {f"section {number}" for number in (1, 3, 7, 8, 9)}


def test_every_rule_of_the_contract_has_a_test() -> None:
    found = set().union(*(shown(path) for path in Path(__file__).parent.glob("test_*.py")))
    missing = sorted((RULES | ACCEPTANCE | SECTIONS) - found)
    assert not missing
