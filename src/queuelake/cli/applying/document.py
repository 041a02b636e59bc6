"""The document: TOML, with a section for each kind of thing it speaks about."""

from __future__ import annotations

import difflib
import sys
import tomllib
from typing import Final

from queuelake.cli.applying.change import Table
from queuelake.errors import ConfigError

SECTIONS: Final = ("queues", "mq", "ecq", "sdv", "users", "acl")
STANDARD_INPUT: Final = "-"


def read_document(path: str) -> Table:
    """Raises ConfigError, one line for each mistake."""
    origin = "standard input" if path == STANDARD_INPUT else path
    try:
        if path == STANDARD_INPUT:
            data = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:
                data = file.read()
        document = tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise ConfigError([f"{origin}: cannot be read: {error.strerror or error}"]) from error
    except ValueError as error:
        raise ConfigError([f"{origin}: is not TOML: {error}"]) from error
    mistakes = [_unknown(key) for key in document if key not in SECTIONS]
    for key, value in document.items():
        if key == "acl" and not isinstance(value, list):
            mistakes.append("acl: not a list of rules; write [[acl]]")
        elif key in SECTIONS and key != "acl" and not isinstance(value, dict):
            mistakes.append(f"{key}: not a table; write [{key}]")
    if mistakes:
        raise ConfigError([f"{origin}: {mistake}" for mistake in mistakes])
    return document


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key, SECTIONS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(SECTIONS)}"
    return f"{key}: there is no such section; {hint}"
