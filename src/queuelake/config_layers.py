"""Laying partial trees of values over a complete one, with a line for every mistake.

A tree comes with its origin (a file, a variable, a `--set`; "" for a request, whose origin is
known). It is checked against the types of a struct and laid over the values below it: tables are
merged, any other value replaces the former one. A value which is refused leaves the lower one in
place and its key is remembered as faulty, so that no rule about several keys reports it again.

One line for each mistake: where it came from, the key, the value and what is allowed. What may be a
secret is never in such a line.
"""

from __future__ import annotations

import difflib
import functools
import math
import tomllib
from typing import cast

from msgspec import inspect

from queuelake.config_types import DURATION_MS_MAX, Section, parse_duration, parse_size

SHOWN_CHARACTERS_MAX = 60
SECRET_WORDS = ("secret", "password", "passwd", "token", "credential")

Table = dict[str, object]


@functools.cache  # and not at import: it takes a while, and few are needed in one process
def kind_of(section: type[Section]) -> inspect.StructType:
    """The keys of a section, and the types of their values."""
    return cast(inspect.StructType, inspect.type_info(section))


class Layers:
    """Where each value came from, which were refused, and what was wrong."""

    def __init__(self) -> None:
        self.origins: dict[str, str] = {}
        self.faulty: set[str] = set()
        self.mistakes: list[str] = []

    def lay_text(
        self,
        origin: str,
        above: str,
        names: list[str],
        text: str,
        kind: inspect.StructType,
        values: Table,
    ) -> None:
        """Lay one value which was written as text; the type of its key says how to read it."""
        for depth, name in enumerate(names[:-1]):
            field = _field(kind, name)
            if field is None:
                self._refuse_unknown(origin, above, name, text, kind)
                return
            if not isinstance(field.type, inspect.StructType):
                key = ".".join([above, *names[depth:]] if above else names)
                reason = f"{_below(above, name)!r} holds {_allowed(field.type)}, no keys"
                self._refuse(origin, key, text, reason)
                return
            kind = field.type
            above = _below(above, name)
            values = cast(Table, values.setdefault(name, {}))
        field = _field(kind, names[-1])
        if field is None:
            self._refuse_unknown(origin, above, names[-1], text, kind)
        else:
            value = read_text(text, field.type)
            self._lay(origin, _below(above, names[-1]), value, field.type, values, names[-1])

    def lay_table(
        self, origin: str, above: str, table: Table, kind: inspect.StructType, values: Table
    ) -> None:
        for name, value in table.items():
            field = _field(kind, name)
            if field is None:
                self._refuse_unknown(origin, above, name, value, kind)
            else:
                self._lay(origin, _below(above, name), value, field.type, values, name)

    def _lay(
        self, origin: str, key: str, value: object, kind: inspect.Type, values: Table, name: str
    ) -> None:
        item = kind.item_type if isinstance(kind, inspect.ListType) else None
        if isinstance(kind, inspect.StructType) and isinstance(value, dict):
            self.lay_table(origin, key, value, kind, cast(Table, values.setdefault(name, {})))
        elif isinstance(kind, inspect.StructType) and isinstance(value, bool) and _enable(kind):
            # `regular = false` says the same as `regular.enable = false`.
            table = cast(Table, values.setdefault(name, {}))
            self.lay_table(origin, key, {"enable": value}, kind, table)
        elif isinstance(kind, inspect.StructType):
            self._refuse(origin, key, _HIDDEN, f"allowed: {_allowed(kind)}")
        elif isinstance(item, inspect.StructType) and isinstance(value, list):
            self._accept(origin, key)
            values[name] = self._tables(origin, key, value, item)
        elif _fits(_plain(value, kind), kind):
            self._accept(origin, key)
            values[name] = _plain(value, kind)
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
            self.lay_table(origin, where, item, kind, table)
            for field in kind.fields:
                if field.required and field.name not in item:
                    self.faulty.add(f"{where}.{field.name}")
                    allowed = f"is missing; allowed: {_allowed(field.type)}"
                    self.add_mistake(origin, f"{where}.{field.name} {allowed}")
        return tables

    def _accept(self, origin: str, key: str) -> None:
        self.origins[key] = origin
        self.faulty = {bad for bad in self.faulty if bad != key and not bad.startswith(f"{key}[")}

    def _refuse_unknown(
        self, origin: str, above: str, name: str, value: object, kind: inspect.Type
    ) -> None:
        key = _below(above, name)
        # A misspelt name hides that its value is a secret.
        shown = _HIDDEN if key.startswith(("auth", "cluster")) else value
        self._refuse(origin, key, shown, _unknown(above, kind, name))

    def _refuse(self, origin: str, key: str, value: object, reason: str) -> None:
        self.faulty.add(key)
        self.add_mistake(origin, f"{key} = {shown(key, value)}: {reason}")

    def add_mistake(self, origin: str, text: str) -> None:
        self.mistakes.append(f"{origin}: {text}" if origin else text)

    def add_finding(self, keys: tuple[str, ...], text: str) -> None:
        """A rule over several keys said no, unless one of them was refused already."""
        if not any(_related(bad, key) for bad in self.faulty for key in keys):
            self.add_mistake(self._origin(keys), text)

    def _origin(self, keys: tuple[str, ...]) -> str:
        for key in keys:
            if key in self.origins:
                return self.origins[key]
        return "default"


def _below(above: str, name: str) -> str:
    return f"{above}.{name}" if above else name


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
            if field.name == name and name in known_names(kind):
                return field
    return None


def _enable(kind: inspect.StructType) -> bool:
    """Whether a table can be switched on and off as a whole."""
    return _field(kind, "enable") is not None


def known_names(kind: inspect.Type) -> list[str]:
    """The keys of a table. A dict holds what people named themselves: it is no key of its own."""
    fields = kind.fields if isinstance(kind, inspect.StructType) else ()
    return [field.name for field in fields if not isinstance(field.type, inspect.DictType)]


def _unknown(above: str, kind: inspect.Type, name: str) -> str:
    if name in _ELSEWHERE:
        return f"no setting of a queue: {_ELSEWHERE[name]}"
    names = known_names(kind)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    prefix = f"{above}." if above else ""
    if near:
        return "unknown key; did you mean " + " or ".join(prefix + one for one in near) + "?"
    place = f"in [{above}]" if above else "at the top"
    return f"unknown key; known {place}: {', '.join(names)}"


def read_text(text: str, kind: inspect.Type) -> object:
    """Read a TOML value; what is no TOML, or no string where one is wanted, is taken as it is."""
    try:
        value: object = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    inner = kind.type if isinstance(kind, inspect.Metadata) else kind
    if isinstance(inner, inspect.StrType) and not isinstance(value, str):
        return text
    return value


def _plain(value: object, kind: inspect.Type) -> object:
    """A quantity as it is kept: a size in bytes, a duration as text."""
    quantity = _quantity(kind)
    if quantity == "duration" and type(value) is int and value == 0:
        return "0s"
    if quantity == "duration" and _takes_milliseconds(kind) and str(value).isdecimal():
        return f"{value}ms"
    if quantity == "size" and isinstance(value, str):
        try:
            return parse_size(value)
        except ValueError:
            return value  # refused like any other value which does not fit
    return value


def _takes_milliseconds(kind: inspect.Type) -> bool:
    """Whether a duration may be a plain number."""
    return isinstance(kind, inspect.Metadata) and (kind.extra or {}).get("bare_number") == "ms"


def _quantity(kind: inspect.Type) -> str:
    extra = kind.extra if isinstance(kind, inspect.Metadata) else None
    return str(extra["quantity"]) if extra else ""


def _fits(value: object, kind: inspect.Type) -> bool:
    match kind:
        case inspect.Metadata():
            if _quantity(kind) == "duration":
                return _duration_fits(value, kind)
            return _fits(value, kind.type)
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


def _duration_fits(value: object, kind: inspect.Metadata) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return parse_duration(value) >= _ms_min(kind)
    except ValueError:
        return False


def _ms_min(kind: inspect.Metadata) -> int:
    return int((kind.extra or {})["ms_min"])


def _within(value: int | float, kind: inspect.IntType | inspect.FloatType) -> bool:
    return (
        (kind.ge is None or value >= kind.ge)
        and (kind.gt is None or value > kind.gt)
        and (kind.le is None or value <= kind.le)
        and (kind.lt is None or value < kind.lt)
    )


def _allowed(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata():
            return _allowed_quantity(kind)
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
            return "a table with " + ", ".join(known_names(kind))
    raise AssertionError(f"no words for the type {kind!r}")


def _allowed_quantity(kind: inspect.Metadata) -> str:
    if _quantity(kind) == "duration":
        end = "greater than 0" if _ms_min(kind) else "or 0"
        days = DURATION_MS_MAX // 86_400_000
        return f'a duration such as "250ms", "30s", "1.5m", "168h" or "7d", {end}; at most {days}d'
    return _allowed(kind.type) + ' or a size such as "10MiB"'


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge} to {kind.le}"
    if kind.ge is not None:
        return f" of at least {kind.ge}"
    if kind.gt is not None:
        return f" greater than {kind.gt}"
    return ""


def shown(key: str, value: object) -> str:
    if value is _HIDDEN:
        return "(hidden)"
    if any(word in key for word in SECRET_WORDS) and not key.endswith("_file"):
        return "(hidden)"
    if isinstance(value, dict):
        return "(a table)"  # its inner keys may be secret
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = f'"{value}"' if isinstance(value, str) else str(value)
    text = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    if len(text) > SHOWN_CHARACTERS_MAX:
        return text[:SHOWN_CHARACTERS_MAX] + "..."
    return text


# What is set elsewhere, under names which people know from other brokers.
_ONE_GROUP = "in a cluster every queue is on all nodes, and its log on cluster.replicas servers"
_ELSEWHERE = {
    "initial_group_size": _ONE_GROUP,
    "target_group_size": _ONE_GROUP,
    "queue_leader_locator": "one node serves all queues; see queuelake cluster transfer",
    "dead_letter_exchange": "dead_letter_queue has the address of the queue itself",
    "dead_letter_routing_key": "dead_letter_queue has the address of the queue itself",
}
_HIDDEN = object()
