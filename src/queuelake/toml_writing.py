"""Writing TOML: tables of strings, numbers, booleans, lists and tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

BARE_KEY = re.compile("[A-Za-z0-9_-]+")


def toml_lines(table: dict[str, object], section: str = "") -> Iterator[str]:
    """Plain values come first; None is left out."""
    for key, value in table.items():
        if value is not None and not isinstance(value, dict) and not _is_tables(value):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        name = f"{section}.{_key(key)}" if section else _key(key)
        if isinstance(value, dict):
            yield ""
            yield f"[{name}]"
            yield from toml_lines(value, name)
        elif _is_tables(value):
            assert isinstance(value, list)
            for one in value:
                yield ""
                yield f"[[{name}]]"
                yield from toml_lines(one, name)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else _value(key)


def _value(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_value(one) for one in value) + "]"
    if isinstance(value, dict):
        pairs = (f"{_key(key)} = {_value(one)}" for key, one in value.items() if one is not None)
        return "{ " + ", ".join(pairs) + " }"
    # JSON writes strings, integers, floats and booleans as TOML does, apart from DEL.
    return json.dumps(value).replace("\x7f", "\\u007f")
