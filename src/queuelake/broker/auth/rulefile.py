"""The rules which operators change while the broker runs: `<data-dir>/acl.toml`.

They stand in front of those of the configuration, so that they can say otherwise. The file is TOML,
`[[acl]]` in the grammar of the configuration, and checked by the same code.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from queuelake.config import read_rules
from queuelake.errors import ConfigError
from queuelake.files import write_atomically
from queuelake.settings import AclRule
from queuelake.toml_writing import toml_lines

FILE_NAME: Final = "acl.toml"
HEADING: Final = "# Kept by the broker (REST, console, queuelake apply); read again on SIGHUP.\n"
VERSION_CHARACTERS: Final = 16


class RuleFile:
    """Raises ConfigError when the file is there and wrong: one line for each mistake."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE_NAME

    def read(self) -> list[AclRule]:
        """Without a file there are no rules."""
        origin = f"file {self._path}"
        try:
            table = tomllib.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise ConfigError([f"{origin}: cannot be read: {error}"]) from error
        foreign = sorted(table.keys() - {"acl"})
        if foreign:
            raise ConfigError([f"{origin}: holds {key!r}; allowed: [[acl]]" for key in foreign])
        return read_rules(origin, table.get("acl", []))

    def write(self, rules: list[AclRule]) -> None:
        lines = toml_lines({"acl": [table_of(rule) for rule in rules]})
        write_atomically(self._path, HEADING + "".join(line + "\n" for line in lines))


def table_of(rule: AclRule) -> dict[str, object]:
    """A rule as somebody writes it: without what is left to its default."""
    default = msgspec.to_builtins(AclRule("allow", []))
    table = msgspec.to_builtins(rule)
    required = ("permission", "topics")
    return {k: value for k, value in table.items() if k in required or value != default[k]}


def version_of(rules: list[AclRule]) -> str:
    """The same for the same rules in the same order."""
    return hashlib.sha256(msgspec.json.encode(rules)).hexdigest()[:VERSION_CHARACTERS]
