"""Loading the configuration: three layers become one `Settings`, or a list of all mistakes.

Each layer is a tree of values with an origin (the file, a variable, a `--set`). A layer is checked
against the types of `settings.py` and laid over the values below it: tables are merged, any other
value replaces the former one. A value which is refused leaves the lower one in place and its key is
remembered as faulty, so that no rule about several keys (`config_rules.py`) reports it again.

One line for each mistake: where it came from, the key, the value and what is allowed. What may be a
secret is never in such a line.
"""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Mapping
from typing import cast

import msgspec
from msgspec import inspect

from queuelake import config_rules
from queuelake.errors import ConfigError
from queuelake.settings import Settings

ENVIRONMENT_PREFIX = "QUEUELAKE__"
SHOWN_CHARACTERS_MAX = 60
SECRET_WORDS = ("secret", "password", "passwd", "token", "credential")
FILE_KEYS = (
    "data_dir",
    "listeners.unix.path",
    "tls.certificate",
    "tls.key",
    "tls.client_ca",
    "auth.password_file",
    "auth.scram_file",
    "auth.jwt.public_key_file",
    "auth.jwt.jwks_file",
)

Table = dict[str, object]


def load_settings(path: str | None, environ: Mapping[str, str], assignments: list[str]) -> Settings:
    """Read the file, the environment and the `--set` assignments; the later wins.

    Raises:
        ConfigError: one line for each mistake; show them all and stop.
    """
    layers = _Layers()
    if path is not None:
        layers.add_file(path)
    for name in sorted(environ):
        if name.upper().startswith(ENVIRONMENT_PREFIX):
            key = name[len(ENVIRONMENT_PREFIX) :].lower().replace("__", ".")
            layers.add_text(f"environment {name}", key, environ[name])
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if equals:
            layers.add_text("--set", key.strip(), text)
        else:
            layers.mistakes.append(f"--set: {key!r} has no value; write --set section.key=value")
    return layers.settings()


class _Layers:
    """The values so far, where each came from, and what was wrong."""

    def __init__(self) -> None:
        self.values = cast(Table, msgspec.to_builtins(Settings()))
        self.origins: dict[str, str] = {}
        self.faulty: set[str] = set()
        self.mistakes: list[str] = []

    def settings(self) -> Settings:
        for key in FILE_KEYS:
            self._expand_home(key.split("."))
        settings = msgspec.convert(self.values, Settings)
        for finding in config_rules.findings(settings):
            if not any(_related(bad, key) for bad in self.faulty for key in finding.keys):
                origin = self._origin(finding.keys)
                self.mistakes.append(f"{origin}: {finding.message}")
        if self.mistakes:
            raise ConfigError(self.mistakes)
        return settings

    def add_file(self, path: str) -> None:
        origin = f"file {path}"
        try:
            with open(path, "rb") as file:
                table = tomllib.load(file)
        except OSError as error:
            self.mistakes.append(f"{origin}: cannot be read: {error.strerror or error}")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            self.mistakes.append(f"{origin}: is not TOML: {error}")
        else:
            self._lay_table(origin, "", table, _ROOT, self.values)

    def add_text(self, origin: str, key: str, text: str) -> None:
        """Lay one value which was written as text; the type of its key says how to read it."""
        kind: inspect.Type = _ROOT
        values = self.values
        names = key.split(".")
        for depth, name in enumerate(names):
            field = _field(kind, name)
            above = ".".join(names[:depth])
            if field is None:
                self._refuse_unknown(origin, above, name, text, kind)
                return
            kind = field.type
            if depth < len(names) - 1:
                if not isinstance(kind, inspect.StructType):
                    inner = ".".join(names[: depth + 1])
                    self._refuse(origin, key, text, f"{inner!r} holds {_allowed(kind)}, no keys")
                    return
                values = cast(Table, values[name])
        self._lay(origin, key, _read_text(text, kind), kind, values, names[-1])

    def _lay_table(
        self, origin: str, above: str, table: Table, kind: inspect.StructType, values: Table
    ) -> None:
        for name, value in table.items():
            key = f"{above}.{name}" if above else name
            field = _field(kind, name)
            if field is None:
                self._refuse_unknown(origin, above, name, value, kind)
            else:
                self._lay(origin, key, value, field.type, values, name)

    def _lay(
        self, origin: str, key: str, value: object, kind: inspect.Type, values: Table, name: str
    ) -> None:
        item = kind.item_type if isinstance(kind, inspect.ListType) else None
        if isinstance(kind, inspect.StructType) and isinstance(value, dict):
            self._lay_table(origin, key, value, kind, cast(Table, values[name]))
        elif isinstance(kind, inspect.StructType):
            self._refuse(origin, key, _HIDDEN, f"allowed: {_allowed(kind)}")
        elif isinstance(item, inspect.StructType) and isinstance(value, list):
            self._accept(origin, key)
            values[name] = self._tables(origin, key, value, item)
        elif _fits(value, kind):
            self._accept(origin, key)
            values[name] = value
        else:
            self._refuse(origin, key, value, f"allowed: {_allowed(kind)}")

    def _tables(
        self, origin: str, key: str, items: list[object], kind: inspect.StructType
    ) -> list[Table]:
        """Check the elements of an array of tables; a required value gets a stand-in when wrong."""
        tables: list[Table] = []
        for index, item in enumerate(items):
            where = f"{key}[{index}]"
            table: Table = {f.name: _stand_in(f.type) for f in kind.fields if f.required}
            tables.append(table)
            if not isinstance(item, dict):
                self._refuse(origin, where, item, f"allowed: {_allowed(kind)}")
                continue
            self._lay_table(origin, where, item, kind, table)
            for field in kind.fields:
                if field.required and field.name not in item:
                    self.faulty.add(f"{where}.{field.name}")
                    allowed = f"is missing; allowed: {_allowed(field.type)}"
                    self.mistakes.append(f"{origin}: {where}.{field.name} {allowed}")
        return tables

    def _accept(self, origin: str, key: str) -> None:
        self.origins[key] = origin
        self.faulty = {bad for bad in self.faulty if bad != key and not bad.startswith(f"{key}[")}

    def _refuse_unknown(
        self, origin: str, above: str, name: str, value: object, kind: inspect.Type
    ) -> None:
        key = f"{above}.{name}" if above else name
        # A misspelt name hides that its value is a secret.
        shown = _HIDDEN if key.startswith("auth") else value
        self._refuse(origin, key, shown, _unknown(above, kind, name))

    def _refuse(self, origin: str, key: str, value: object, reason: str) -> None:
        self.faulty.add(key)
        self.mistakes.append(f"{origin}: {key} = {_shown(key, value)}: {reason}")

    def _origin(self, keys: tuple[str, ...]) -> str:
        for key in keys:
            if key in self.origins:
                return self.origins[key]
        return "default"

    def _expand_home(self, names: list[str]) -> None:
        values = self.values
        for name in names[:-1]:
            values = cast(Table, values[name])
        values[names[-1]] = os.path.expanduser(cast(str, values[names[-1]]))


def _related(bad: str, key: str) -> bool:
    """True when one of the two keys is, or holds, the other."""
    return bad == key or bad.startswith((f"{key}.", f"{key}[")) or key.startswith(f"{bad}.")


def _stand_in(kind: inspect.Type) -> object:
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    assert isinstance(kind, inspect.ListType), f"no stand-in for the type {kind!r}"
    return []


def _field(kind: inspect.Type, name: str) -> inspect.Field | None:
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            if field.name == name:
                return field
    return None


def _unknown(above: str, kind: inspect.Type, name: str) -> str:
    names = [field.name for field in kind.fields] if isinstance(kind, inspect.StructType) else []
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    prefix = f"{above}." if above else ""
    if near:
        return "unknown key; did you mean " + " or ".join(prefix + one for one in near) + "?"
    place = f"in [{above}]" if above else "at the top"
    return f"unknown key; known {place}: {', '.join(names)}"


def _read_text(text: str, kind: inspect.Type) -> object:
    """Read a TOML value; what is no TOML, or no string where one is wanted, is taken as it is."""
    try:
        value: object = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    if isinstance(kind, inspect.StrType) and not isinstance(value, str):
        return text
    return value


def _fits(value: object, kind: inspect.Type) -> bool:
    match kind:
        case inspect.UnionType():
            return any(_fits(value, one) for one in kind.types)
        case inspect.LiteralType():
            return value in kind.values
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.StrType():
            return isinstance(value, str)
        case inspect.IntType():
            return isinstance(value, int) and not isinstance(value, bool) and _within(value, kind)
        case inspect.FloatType():
            if isinstance(value, bool) or not isinstance(value, int | float):
                return False
            return math.isfinite(value) and _within(value, kind)
        case inspect.ListType():
            return isinstance(value, list) and all(_fits(one, kind.item_type) for one in value)
    return False


def _within(value: int | float, kind: inspect.IntType | inspect.FloatType) -> bool:
    return (
        (kind.ge is None or value >= kind.ge)
        and (kind.gt is None or value > kind.gt)
        and (kind.le is None or value <= kind.le)
        and (kind.lt is None or value < kind.lt)
    )


def _allowed(kind: inspect.Type) -> str:
    match kind:
        case inspect.UnionType():
            # TOML cannot write None: it is the default, never an answer.
            shown = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
            return " or ".join(_allowed(one) for one in shown)
        case inspect.LiteralType():
            return ", ".join(f'"{value}"' for value in kind.values)
        case inspect.BoolType():
            return "true, false"
        case inspect.StrType():
            return "a string"
        case inspect.IntType():
            return "an integer" + _bounds(kind)
        case inspect.FloatType():
            return "a number" + _bounds(kind)
        case inspect.ListType():
            if isinstance(kind.item_type, inspect.StructType):
                return "an array of tables"
            return f"an array, each element {_allowed(kind.item_type)}"
        case inspect.StructType():
            return "a table with " + ", ".join(field.name for field in kind.fields)
    raise AssertionError(f"no words for the type {kind!r}")


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge} to {kind.le}"
    if kind.ge is not None:
        return f" of at least {kind.ge}"
    if kind.gt is not None:
        return f" greater than {kind.gt}"
    return ""


def _shown(key: str, value: object) -> str:
    if value is _HIDDEN:
        return "(hidden)"
    if any(word in key for word in SECRET_WORDS) and not key.endswith("_file"):
        return "(hidden)"
    if isinstance(value, dict):
        return "(a table)"  # its inner keys may be secret
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    text = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    if len(text) > SHOWN_CHARACTERS_MAX:
        return text[:SHOWN_CHARACTERS_MAX] + "..."
    return text


_HIDDEN = object()
_ROOT = cast(inspect.StructType, inspect.type_info(Settings))
