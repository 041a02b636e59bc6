"""Every rule and acceptance test of the durable queue contract has a test in this folder."""

from __future__ import annotations

import ast
from pathlib import Path

RULES = {f"D{number}" for number in range(1, 29)} | {"D2a"}
ACCEPTANCE = {f"acceptance {number}" for number in range(1, 22)}
# Shown by tests of the webhook sender, of the REST routes and of the metrics.
ELSEWHERE = {"D26", "acceptance 10", "acceptance 20", "acceptance 21"}


def shown(path: Path) -> set[str]:
    """The arguments of every `pytest.mark.rule` in one file."""
    return {
        str(argument.value)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "rule"
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }


def test_every_rule_of_the_contract_has_a_test() -> None:
    found = set().union(*(shown(path) for path in Path(__file__).parent.glob("test_*.py")))
    missing = sorted((RULES | ACCEPTANCE) - ELSEWHERE - found)
    assert not missing
