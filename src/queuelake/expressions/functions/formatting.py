"""`sprintf_s`: a format in the manner of Erlang's io:format, and its values.

    ~[width][.precision[.filling]]directive

A negative width aligns left. Directives: `~s` text, `~b` and `~B` integer (precision is the base),
`~f` decimals (precision is their number), `~c` character (precision is how often), `~p` and `~w`
any value as text, `~i` skips a value, `~n` is a new line, `~~` a tilde. A text is cut to its width;
a number which does not fit is shown as `*`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from queuelake.expressions.functions.function import Function
from queuelake.expressions.values import (
    Value,
    check_size,
    integer,
    items,
    join,
    number,
    text,
    to_text,
)

DIRECTIVE: Final = re.compile(
    r"~(?:(?P<width>-?[0-9]{1,4})?(?:\.(?P<precision>[0-9]{0,4}))?(?:\.(?P<filling>.))?)"
    r"t?(?P<letter>[a-zA-Z~])",
    re.DOTALL,
)
DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
DECIMALS_MAX: Final = 100


def _sprintf(template: str, values: list[Value]) -> str:
    parts: list[str] = []
    left = iter(values)
    size = at = 0
    while (start := template.find("~", at)) >= 0:
        parts.append(template[at:start])
        match = DIRECTIVE.match(template, start)
        if match is None:
            raise ValueError(f"the format has no directive at place {start}")
        parts.append(_render(match, left))
        size += len(parts[-1])
        check_size(size)
        at = match.end()
    if next(left, _END) is not _END:
        raise ValueError("more values than directives in the format")
    parts.append(template[at:])
    return join("", parts)


# A value no list of values holds.
_END: Final = object()


def _render(match: re.Match[str], left: Iterator[Value]) -> str:
    letter = match["letter"]
    if letter == "~":
        return "~"
    if letter == "n":
        return "\n"
    try:
        value = next(left)
    except StopIteration:
        raise ValueError("fewer values than directives in the format") from None
    if letter == "i":
        return ""
    width = int(match["width"]) if match["width"] else 0
    precision = int(match["precision"]) if match["precision"] else -1
    filling = match["filling"] or " "
    if letter == "s":
        return _fit(text(value), width, precision, filling)
    if letter in "pw":
        return _fill(to_text(value), width, filling)
    if letter in "bB":
        digits = _in_base(integer(value), 10 if precision < 0 else precision)
        return _fill_number(digits.upper() if letter == "B" else digits, width, filling)
    if letter == "f":
        decimals = 6 if precision < 0 else precision
        if decimals > DECIMALS_MAX:
            raise ValueError(f"~f with {decimals} decimals, at most {DECIMALS_MAX}")
        return _fill_number(f"{float(number(value)):.{decimals}f}", width, filling)
    if letter == "c":
        times = 1 if precision < 0 else precision
        return _fill(_checked(chr(integer(value))) * times, width, filling)
    raise ValueError(f"no such directive: '~{letter}'")


def _fit(shown: str, width: int, precision: int, filling: str) -> str:
    if precision >= 0:
        shown = shown[:precision]
    elif width:
        shown = shown[: abs(width)]
    return _fill(shown, width, filling)


def _fill_number(shown: str, width: int, filling: str) -> str:
    if width and len(shown) > abs(width):
        return "*" * abs(width)
    return _fill(shown, width, filling)


def _fill(shown: str, width: int, filling: str) -> str:
    return shown.ljust(-width, filling) if width < 0 else shown.rjust(width, filling)


def _in_base(value: int, base: int) -> str:
    if not 2 <= base <= len(DIGITS):
        raise ValueError(f"base {base}, must be 2 to {len(DIGITS)}")
    if base == 10:
        return str(value)
    digits = ""
    rest = abs(value)
    while rest:
        rest, digit = divmod(rest, base)
        digits = DIGITS[digit] + digits
    return ("-" if value < 0 else "") + (digits or "0")


def _checked(character: str) -> str:
    if 0xD800 <= ord(character) <= 0xDFFF:
        raise ValueError("half of a surrogate pair where a character is needed")
    return character


FORMATTING: Final[dict[str, Function]] = {"sprintf_s": Function(_sprintf, text, items)}
