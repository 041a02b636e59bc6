"""Write `docs/conformance.md`: each normative statement, its tests, or why there is none.

The tables of statements are `statements_v5.py` and `statements_v311.py`. Tests name statements in
`@pytest.mark.conforms(...)` (MQTT 5.0) and `@pytest.mark.conforms311(...)` (3.1.1); the markers are
read from the source of every test file, so that no test has to run. A statement which binds only
clients needs no test. Run `python -m tests.conformance.report` after changing tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conformance import statements_v5, statements_v311

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "conformance.md"

INTRODUCTION = """\
# Conformance to MQTT 5.0 and 3.1.1

This page is generated: `python -m tests.conformance.report`. The summaries are our own words; the
standard decides. Each test drives a real broker with a client which shares no code with it.

- **test**: names of test functions; `tests/` is left out of their paths.
- **client**: the statement binds clients only. Where a server has to notice that a client breaks
  it, there is a test all the same.
"""


@dataclass(frozen=True)
class Standard:
    """One standard: its name, its marker, its table, and the reasons for missing tests."""

    title: str
    marker: str
    statements: dict[str, tuple[str, statements_v5.Concerns]]
    untested: dict[str, str]


STANDARDS = [
    Standard("MQTT 5.0", "conforms", statements_v5.STATEMENTS, statements_v5.UNTESTED),
    Standard("MQTT 3.1.1", "conforms311", statements_v311.STATEMENTS, statements_v311.UNTESTED),
]


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The whole text of `docs/conformance.md`."""
    return "\n".join([INTRODUCTION, *(section(standard) for standard in STANDARDS)])


def section(standard: Standard) -> str:
    """The heading, the sum and the table of one standard."""
    tests = marked_tests(standard.marker)
    rows = []
    for statement, (summary, concerns) in sorted(
        standard.statements.items(), key=lambda item: _order(item[0])
    ):
        rows.append(
            f"| {statement} | {summary} | {concerns} | {_shown(statement, standard, tests)} |"
        )
    bound = [one for one, (_, concerns) in standard.statements.items() if concerns != "client"]
    tested = sum(one in tests for one in bound)
    count = sum(len(names) for names in tests.values())
    return (
        f"## {standard.title}\n\n"
        f"{len(standard.statements)} statements, {len(bound)} of them bind a server: {tested} have "
        f"tests, {len(bound) - tested} have a reason. Tests name statements {count} times.\n\n"
        "| statement | in short | binds | shown by |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def problems(standard: Standard) -> list[str]:
    """What is wrong with the table: no test and no reason, an unknown id, a needless reason."""
    tests = marked_tests(standard.marker)
    found = []
    for statement, (_, concerns) in standard.statements.items():
        if concerns != "client" and statement not in tests and statement not in standard.untested:
            found.append(f"{standard.title}: {statement} has neither a test nor a reason")
    for statement, names in tests.items():
        if statement not in standard.statements:
            found.append(f"{standard.title}: {names[0]} names {statement}, which does not exist")
    for statement in standard.untested:
        if statement not in standard.statements:
            found.append(f"{standard.title}: a reason for {statement}, which does not exist")
        elif statement in tests:
            found.append(f"{standard.title}: {statement} has a test and needs no reason")
    return found


def marked_tests(marker: str) -> dict[str, list[str]]:
    """From statement to `path::test`, for every test which carries this marker."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for statement, test in _marks(path, marker):
            found.setdefault(statement, []).append(f"{path.relative_to(TESTS)}::{test}")
    return found


def _marks(path: Path, marker: str) -> Iterator[tuple[str, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in function.decorator_list:
            for call in ast.walk(decorator):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == f"pytest.mark.{marker}":
                    for argument in call.args:
                        yield str(ast.literal_eval(argument)), function.name


def _shown(statement: str, standard: Standard, tests: dict[str, list[str]]) -> str:
    if statement in tests:
        return _by_file(tests[statement])
    if statement in standard.untested:
        return f"no test: {standard.untested[statement]}"
    return "client behaviour"


def _by_file(names: list[str]) -> str:
    """Tests of one file together, the file once."""
    files: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        file, _, test = name.partition("::")
        files.setdefault(file, []).append(f"`{test}`")
    return "; ".join(f"{file}: {', '.join(tests)}" for file, tests in files.items())


def _order(statement: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", statement)]


if __name__ == "__main__":
    main()
