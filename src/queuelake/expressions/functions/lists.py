"""Functions which make lists of texts, and texts of lists. Places in a list count from 1."""

from __future__ import annotations

from typing import Final

from queuelake.expressions.functions.function import Function
from queuelake.expressions.values import (
    Value,
    anything,
    check_count,
    describe,
    integer,
    is_empty,
    items,
    join,
    searched,
    text,
    to_text,
)

# Option of `split`: how often it splits, from which side, and whether empty parts stay.
SPLITS: Final[dict[str, tuple[int, bool, bool]]] = {
    "all": (-1, False, False),
    "notrim": (-1, False, True),
    "leading": (1, False, False),
    "leading_notrim": (1, False, True),
    "trailing": (1, True, False),
    "trailing_notrim": (1, True, True),
}


def _split(subject: str, separator: str, option: str = "all") -> Value:
    chosen = SPLITS.get(option)
    if chosen is None:
        raise ValueError(f"no such option: {option!r}; use one of {', '.join(SPLITS)}")
    times, from_right, keeps_empty = chosen
    if not separator:
        parts = [subject]
    elif from_right:
        parts = subject.rsplit(separator, times)
    else:
        if times < 0:
            check_count(subject.count(separator))
        parts = subject.split(separator, times)
    return [part for part in parts if part or keeps_empty]


def _tokens(subject: str, separators: str, option: str = "") -> Value:
    """Split at every one of these characters; nothing between two of them is no token."""
    if option:
        if option != "nocrlf":
            raise ValueError(f"no such option: {option!r}; use 'nocrlf'")
        separators += "\r\n"
    if not separators:
        return [subject] if subject else []
    first = separators[0]
    if len(separators) > 1:
        subject = subject.translate(dict.fromkeys(map(ord, separators[1:]), first))
    check_count(subject.count(first))
    return [part for part in subject.split(first) if part]


def _concat(*values: Value) -> str:
    first = values[0]
    parts = items(first) if len(values) == 1 else values
    return join("", [to_text(part) for part in parts])


def _join_to_string(*values: Value) -> str:
    """`join_to_string(list)` or `join_to_string(separator, list)`."""
    separator = text(values[0]) if len(values) == 2 else ", "
    return join(separator, [to_text(item) for item in items(values[-1])])


def _nth(place: int, parts: list[Value]) -> Value:
    if place < 1:
        raise ValueError(f"place is {place}, the first is 1")
    return parts[place - 1] if place <= len(parts) else ""


def _place(value: Value) -> int:
    """A number, also as text: it may have been cut out of a topic."""
    if not isinstance(value, str):
        return integer(value)
    digits = value[1:] if value[:1] in ("+", "-") else value
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{describe(value)} which is no number where an integer is needed")
    return int(value)


LISTS: Final[dict[str, Function]] = {
    "split": Function(_split, text, searched, text, optional=1),
    "tokens": Function(_tokens, text, searched, text, optional=1),
    "concat": Function(_concat, anything, is_variadic=True),
    "join_to_string": Function(_join_to_string, anything, anything, optional=1),
    "nth": Function(_nth, _place, items),
    "is_empty_val": Function(is_empty, anything),
}
