"""Every rule and acceptance test of the pipeline contract has a test which names it."""

from __future__ import annotations

from pathlib import Path

from tests.queues.test_rules import shown

RULES = {f"P{number}" for number in range(1, 15)} | {"P9a"}
ACCEPTANCE = {f"acceptance {number}" for number in range(1, 20)}
FOLDERS = ("pipeline", "export", "pipeline_broker", "examples")


def marked() -> set[str]:
    tests = Path(__file__).parents[1]
    files = [path for folder in FOLDERS for path in (tests / folder).glob("test_*.py")]
    return set().union(*map(shown, files))


def test_every_rule_of_the_contract_has_a_test() -> None:
    assert sorted((RULES | ACCEPTANCE) - marked()) == []


def test_every_mark_is_a_rule_of_the_contract() -> None:
    assert sorted(marked() - RULES - ACCEPTANCE) == []
