"""Every statement of 3.1.1 which binds a server has a test here, or a reason why not."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.conformance.statements_v311 import STATEMENTS, UNTESTED

FOLDER = Path(__file__).parent


def _marked() -> set[str]:
    """The ids in `conforms311` marks of this folder, read without importing."""
    found: set[str] = set()
    for path in FOLDER.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".conforms311"):
                found |= {str(ast.literal_eval(one)) for one in node.args}
    return found


def test_every_server_statement_has_a_test_or_a_reason() -> None:
    needed = {ident for ident, (_, concerns) in STATEMENTS.items() if concerns != "client"}
    assert needed - _marked() - UNTESTED.keys() == set()


def test_no_mark_and_no_reason_names_an_unknown_statement() -> None:
    assert (_marked() | UNTESTED.keys()) - STATEMENTS.keys() == set()


def test_no_reason_is_left_for_a_statement_which_has_a_test() -> None:
    assert UNTESTED.keys() & _marked() == set()
