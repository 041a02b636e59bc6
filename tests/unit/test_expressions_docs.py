"""The page on key expressions is true: its examples run, and nothing is missing on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from queuelake.expressions import BadExpressionError, parse_expression
from queuelake.expressions.functions import FORMS, FUNCTIONS
from queuelake.expressions.variables import PROPERTY_NAMES, VARIABLES
from tests.unit.expression_fields import PAYLOAD, TOPIC, key_of

PAGE = (Path(__file__).resolve().parents[2] / "docs/mq/key-expressions.md").read_text()
EXAMPLES = re.findall(r"^\|.*\| `([^`]+)` \| `([^`]+)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("expression", "key"), EXAMPLES, ids=[e for e, _ in EXAMPLES])
def test_an_example_gives_the_key_beside_it(expression: str, key: str) -> None:
    assert key_of(expression) == key


def test_every_function_has_an_example() -> None:
    shown = " ".join(expression for expression, _ in EXAMPLES)
    for name in {*FUNCTIONS, *FORMS} - {"if"}:  # another name of `iif`
        assert re.search(rf"(?<![a-z0-9_]){name}\(", shown), name
        assert f"`{name}(" in PAGE, name


def test_every_variable_is_listed() -> None:
    for name in VARIABLES:
        assert f"| `message.{name}` |" in PAGE
    for name in PROPERTY_NAMES:
        assert f"`{name}`" in PAGE


def test_the_message_of_the_page_is_that_of_the_tests() -> None:
    assert f"| topic | `{TOPIC.decode()}` |" in PAGE
    assert f"| payload | `{PAYLOAD.decode()}` |" in PAGE


def test_the_mistake_on_the_page_is_told_like_this() -> None:
    with pytest.raises(BadExpressionError) as caught:
        parse_expression("lowr(message.from)")
    assert f"\n{caught.value}\n" in PAGE
