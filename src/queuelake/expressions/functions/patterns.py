"""Regular expressions, by RE2 only: no message can make a match run long.

A pattern is searched for: write `^` and `$` where the whole text is meant. A pattern which stands
in the expression is compiled when the expression is parsed; RE2's own cache serves the others.
"""

from __future__ import annotations

from typing import Any, Final

import re2

from queuelake.expressions.functions.function import Function
from queuelake.expressions.values import Value, check_size, text

PATTERN_CHARACTERS_MAX: Final = 1024
REPLACEMENT_CHARACTERS_MAX: Final = 1024
MATCHES_MAX: Final = 1000

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 1_048_576


def pattern(value: Value) -> Any:
    """The compiled pattern. Raises ValueError when the text is none."""
    source = text(value)
    if len(source) > PATTERN_CHARACTERS_MAX:
        raise ValueError(f"a pattern of {len(source)} characters, at most {PATTERN_CHARACTERS_MAX}")
    try:
        return re2.compile(source, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        shown = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"{source!r} is not an RE2 expression: {shown}") from None


def _match(subject: str, compiled: Any) -> bool:
    return compiled.search(subject) is not None


def _extract(subject: str, compiled: Any) -> Value:
    """The groups of the first match, '' for one which took no part; without match none."""
    match = compiled.search(subject)
    return [] if match is None else [group or "" for group in match.groups()]


def _replace(subject: str, compiled: Any, replacement: str) -> str:
    template = _template(replacement, compiled.groups)
    parts: list[str] = []
    size = at = matches = 0
    last = (-1, -1)
    for match in compiled.finditer(subject):
        span = match.span()
        if span == last:  # RE2's iterator gives an empty match which it had to search for twice
            continue
        last = span
        matches += 1
        if matches > MATCHES_MAX:
            raise ValueError(f"more than {MATCHES_MAX} matches")
        made = [subject[at : span[0]]]
        made += [part if isinstance(part, str) else match[part] or "" for part in template]
        size += sum(map(len, made))
        check_size(size)
        parts += made
        at = span[1]
    parts.append(subject[at:])
    return "".join(parts)


def _template(replacement: str, groups: int) -> list[str | int]:
    r"""Texts and numbers of groups: `&` is the match, `\1`, `\g1` and `\g{1}` are groups."""
    size = len(replacement)
    if size > REPLACEMENT_CHARACTERS_MAX:
        raise ValueError(
            f"a replacement of {size} characters, at most {REPLACEMENT_CHARACTERS_MAX}"
        )
    template: list[str | int] = []
    at = 0
    while at < size:
        part: str | int = replacement[at]
        at += 1
        if part == "&":
            part = 0
        elif part == "\\":
            part, at = _escaped(replacement, at)
        if isinstance(part, int) and part > groups:
            raise ValueError(f"group {part} in the replacement, the pattern has {groups}")
        last = template[-1] if template else 0
        if isinstance(part, str) and isinstance(last, str):
            template[-1] = last + part
        else:
            template.append(part)
    return template


def _escaped(replacement: str, at: int) -> tuple[str | int, int]:
    """What stands behind a backslash, and where it ends."""
    start = at
    if replacement[at : at + 1] == "g":
        start += 1
    is_braced = start > at and replacement[start : start + 1] == "{"
    start += is_braced
    end = start
    while end < len(replacement) and end < start + 4 and replacement[end] in "0123456789":
        end += 1
    is_closed = not is_braced or replacement[end : end + 1] == "}"
    if end > start and is_closed:
        return int(replacement[start:end]), end + is_braced
    return replacement[at : at + 1] or "\\", at + 1


PATTERNS: Final[dict[str, Function]] = {
    "regex_match": Function(_match, text, pattern),
    "regex_extract": Function(_extract, text, pattern),
    "regex_replace": Function(_replace, text, pattern, text),
}
