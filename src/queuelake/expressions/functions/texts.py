"""Functions from text to text. A character is a Unicode code point; places count from 0."""

from __future__ import annotations

from typing import Final

from queuelake.expressions.functions.function import Function
from queuelake.expressions.values import (
    anything,
    check_size,
    integer,
    octets,
    searched,
    text,
    to_text,
)

# Unicode's Pattern_White_Space: no-break spaces are part of a text.
WHITE_SPACE: Final = "\t\n\v\f\r \x85\u200e\u200f\u2028\u2029"
ESCAPES: Final = {
    "\\": "\\",
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "'": "'",
    '"': '"',
    "?": "?",
    "a": "\a",
}
HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
CODE_POINT_DIGITS_MAX: Final = 8


def _trim(subject: str, characters: str = WHITE_SPACE) -> str:
    return subject.strip(characters)


def _trim_left(subject: str, characters: str = WHITE_SPACE) -> str:
    return subject.lstrip(characters)


def _trim_right(subject: str, characters: str = WHITE_SPACE) -> str:
    return subject.rstrip(characters)


def _reverse(subject: str) -> str:
    return subject[::-1]


def _substring(subject: str, start: int, length: int | None = None) -> str:
    if start < 0:
        raise ValueError(f"start is {start}, at least 0")
    if length is None:
        return subject[start:]
    if length < 0:
        raise ValueError(f"length is {length}, at least 0")
    return subject[start : start + length]


def _pad(subject: str, length: int, side: str = "trailing", filling: str = " ") -> str:
    missing = max(0, length - len(subject))
    check_size(len(subject) + missing * len(filling))
    left = {"leading": missing, "trailing": 0, "both": missing // 2}.get(side)
    if left is None:
        raise ValueError(f"no such side: {side!r}; use 'leading', 'trailing' or 'both'")
    return filling * left + subject + filling * (missing - left)


def _replace(subject: str, wanted: str, replacement: str, which: str = "all") -> str:
    if which not in ("all", "leading", "trailing"):
        raise ValueError(f"no such option: {which!r}; use 'all', 'leading' or 'trailing'")
    if not wanted:
        return subject
    if which == "all":
        growth = len(replacement) - len(wanted)
        check_size(len(subject) + subject.count(wanted) * growth)
        return subject.replace(wanted, replacement)
    at = subject.find(wanted) if which == "leading" else subject.rfind(wanted)
    if at < 0:
        return subject
    check_size(len(subject) + len(replacement))
    return subject[:at] + replacement + subject[at + len(wanted) :]


def _find(subject: str, wanted: str, which: str = "leading") -> str:
    """From the first (or last) place of what is wanted to the end, '' without."""
    if which not in ("leading", "trailing"):
        raise ValueError(f"no such option: {which!r}; use 'leading' or 'trailing'")
    if not wanted:
        return subject
    at = subject.find(wanted) if which == "leading" else subject.rfind(wanted)
    return subject[at:] if at >= 0 else ""


def _ascii(subject: bytes) -> int:
    if not subject:
        raise ValueError("an empty text has no first character")
    return subject[0]


def _unescape(subject: str) -> str:
    first, *rest = subject.split("\\")
    parts = [first]
    literal = False  # the part follows an escaped backslash
    for place, part in enumerate(rest):
        if literal:
            parts.append(part)
            literal = False
        elif not part and place < len(rest) - 1:
            parts.append("\\")
            literal = True
        elif not part:
            parts.append("\\")  # one at the very end escapes nothing
        else:
            parts.append(_unescape_one(part))
    return "".join(parts)


def _unescape_one(part: str) -> str:
    """A part which stood behind a backslash."""
    if part[0] in ESCAPES:
        return ESCAPES[part[0]] + part[1:]
    end = 1
    while end < len(part) and part[end] in HEX_DIGITS:
        end += 1
    if part[0] != "x" or end == 1:
        raise ValueError(f"unknown escape '\\{part[0]}'")
    digits = part[1:end]
    code_point = int(digits, 16) if len(digits) <= CODE_POINT_DIGITS_MAX else -1
    if not 0 <= code_point <= 0x10FFFF or 0xD800 <= code_point <= 0xDFFF:
        raise ValueError(f"'\\x{digits[:CODE_POINT_DIGITS_MAX]}' is no Unicode character")
    return chr(code_point) + part[end:]


TEXTS: Final[dict[str, Function]] = {
    "lower": Function(str.lower, text),
    "upper": Function(str.upper, text),
    "trim": Function(_trim, text, searched, optional=1),
    "ltrim": Function(_trim_left, text, searched, optional=1),
    "rtrim": Function(_trim_right, text, searched, optional=1),
    "reverse": Function(_reverse, text),
    "strlen": Function(len, text),
    "substr": Function(_substring, text, integer, integer, optional=1),
    "pad": Function(_pad, text, integer, text, text, optional=2),
    "replace": Function(_replace, text, searched, text, text, optional=1),
    "find": Function(_find, text, searched, text, optional=1),
    "rm_prefix": Function(str.removeprefix, text, text),
    "ascii": Function(_ascii, octets),
    "unescape": Function(_unescape, text),
    "any_to_str": Function(to_text, anything),
}
