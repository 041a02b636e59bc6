"""The values of key expressions, and how one becomes another.

A text is a `str`. Bytes are `bytes` only when they are not UTF-8, so that a text has one form; the
few functions on bytes take both. `None` is what JSON calls null and what `json_value` did not find.

The functions here which refuse a value raise ValueError; the call around them says where.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, TypeAlias

Value: TypeAlias = "bool | int | float | str | bytes | list[Value] | dict[str, Value] | None"

TEXT_CHARACTERS_MAX: Final = 1_048_576
ITEMS_MAX: Final = 10_000
FLOAT_DECIMALS: Final = 10
# What is searched for, or trimmed away: some searches cost its length for each character.
SEARCHED_CHARACTERS_MAX: Final = 256


def from_octets(octets: bytes) -> str | bytes:
    """The text these bytes are, or the bytes."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets


def anything(value: Value) -> Value:
    return value


def text(value: Value) -> str:
    """A text; true and false are words too. A number is not: `any_to_str` makes it one."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    raise ValueError(f"{describe(value)} where a text is needed")


def searched(value: Value) -> str:
    """A text to search for."""
    wanted = text(value)
    if len(wanted) > SEARCHED_CHARACTERS_MAX:
        raise ValueError(
            f"a search for {len(wanted)} characters, at most {SEARCHED_CHARACTERS_MAX}"
        )
    return wanted


def octets(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    return text(value).encode()


def integer(value: Value) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"{describe(value)} where an integer is needed")


def number(value: Value) -> int | float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise ValueError(f"{describe(value)} where a number is needed")


def items(value: Value) -> list[Value]:
    if isinstance(value, list):
        return value
    raise ValueError(f"{describe(value)} where a list is needed")


def to_text(value: Value) -> str:
    """Any value as text: numbers as decimals, lists and objects as JSON, nothing as ''."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float_to_text(value)
    if isinstance(value, bytes):
        raise ValueError(f"{describe(value)} where a text is needed")
    check_size(_json_size(value))
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except TypeError:
        raise ValueError("a list with bytes which are not UTF-8 where a text is needed") from None


def to_key(value: Value) -> bytes:
    """The result of an expression as key."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (list, dict, bytes)):
        raise ValueError(f"the key is {describe(value)}, must be a text or a number")
    return to_text(value).encode()


def is_empty(value: Value) -> bool:
    return value is None or value in ("", []) or value == b""


def join(separator: str, parts: Sequence[str]) -> str:
    check_size(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


def check_size(characters: int) -> None:
    if characters > TEXT_CHARACTERS_MAX:
        raise ValueError(f"a text of {characters} characters, at most {TEXT_CHARACTERS_MAX}")


def check_count(count: int) -> None:
    if count > ITEMS_MAX:
        raise ValueError(f"a list of {count} items, at most {ITEMS_MAX}")


def describe(value: Value) -> str:
    """What a message says of a value, without its content: payloads stay out of logs."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, bytes):
        return "bytes which are not UTF-8"
    return "a list" if isinstance(value, list) else "an object"


def _float_to_text(value: float) -> str:
    whole, _, decimals = f"{value:.{FLOAT_DECIMALS}f}".partition(".")
    return f"{whole}.{decimals.rstrip('0') or '0'}"


def _json_size(value: Value) -> int:
    """About how long the JSON will be: one payload may stand in a list many times."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, list):
        return sum([1 + _json_size(item) for item in value])
    if isinstance(value, dict):
        return sum([1 + len(name) + _json_size(item) for name, item in value.items()])
    return 1
