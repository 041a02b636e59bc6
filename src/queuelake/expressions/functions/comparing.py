"""Comparing: texts by their code points (any value is a text here), numbers by their size."""

from __future__ import annotations

import operator
from typing import Final

from queuelake.expressions.functions.function import Function
from queuelake.expressions.values import Value, anything, number, to_text


def _compare_texts(left: str, right: str) -> str:
    return "eq" if left == right else "lt" if left < right else "gt"


def _compare_numbers(left: int | float, right: int | float) -> str:
    return "eq" if left == right else "lt" if left < right else "gt"


def _not(value: Value) -> bool:
    if value is True or value == "true":
        return False
    if value is False or value == "false":
        return True
    raise ValueError("not true or false")


COMPARING: Final[dict[str, Function]] = {
    "str_comp": Function(_compare_texts, to_text, to_text),
    "str_eq": Function(operator.eq, to_text, to_text),
    "str_neq": Function(operator.ne, to_text, to_text),
    "str_lt": Function(operator.lt, to_text, to_text),
    "str_lte": Function(operator.le, to_text, to_text),
    "str_gt": Function(operator.gt, to_text, to_text),
    "str_gte": Function(operator.ge, to_text, to_text),
    "num_comp": Function(_compare_numbers, number, number),
    "num_eq": Function(operator.eq, number, number),
    "num_neq": Function(operator.ne, number, number),
    "num_lt": Function(operator.lt, number, number),
    "num_lte": Function(operator.le, number, number),
    "num_gt": Function(operator.gt, number, number),
    "num_gte": Function(operator.ge, number, number),
    "not": Function(_not, anything),
}
