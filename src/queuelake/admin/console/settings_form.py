"""A form made from the Struct of some settings: one input for each, grouped as they are.

What is shown are the values in force; what is sent are those which somebody changed. Whether they
make sense is for the broker to judge, and its words are shown.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from nicegui import ui

from queuelake.admin.console.setting_words import GROUPS, HINTS, LABELS

MAIN, OTHER = "", "other"


class Field(NamedTuple):
    """One setting; `path` has its group in front, if it is in one."""

    path: tuple[str, ...]
    kind: Literal["flag", "number", "text", "list", "choice"]
    choices: tuple[str, ...] = ()


def fields_of(kind: type[msgspec.Struct], group: tuple[str, ...] = ()) -> list[Field]:
    """The settings of a Struct and of the Structs in it, in their order."""
    found: list[Field] = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        plain, path = _plain(hint), (*group, name)
        if isinstance(plain, type) and issubclass(plain, msgspec.Struct):
            found += fields_of(plain, path)
        elif get_origin(plain) is Literal:
            found.append(Field(path, "choice", tuple(str(one) for one in get_args(plain))))
        elif plain is bool:
            found.append(Field(path, "flag"))
        elif plain in (int, float):
            found.append(Field(path, "number"))
        elif get_origin(plain) is list:
            found.append(Field(path, "list"))
        else:
            found.append(Field(path, "text"))
    return found


def _plain(hint: Any) -> Any:
    """A type without its bounds, and without the value which says that it is not there."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        parts = [_plain(one) for one in get_args(hint) if one is not msgspec.UnsetType]
        return parts[0] if len(parts) == 1 else str
    return hint


class SettingsForm:
    """Inputs for `fields` with their `values`; those of a group are folded away."""

    def __init__(
        self, fields: list[Field], values: Mapping[str, Any], first: tuple[str, ...]
    ) -> None:
        self._before = {field.path: _value_at(values, field.path) for field in fields}
        self._fields = {field.path: field for field in fields}
        self._inputs: dict[tuple[str, ...], Any] = {}
        groups: dict[str, list[Field]] = {}
        for field in fields:
            groups.setdefault(_group_of(field, first), []).append(field)
        for name, members in sorted(groups.items(), key=lambda item: item[0] != MAIN):
            if name == MAIN:
                self._group(members)
                continue
            with ui.expansion(GROUPS.get(name, name)).classes("ql-fold").props("dense"):
                self._group(members)

    def changes(self) -> dict[str, Any]:
        """What differs from what was shown, as a tree."""
        tree: dict[str, Any] = {}
        for path, control in self._inputs.items():
            value = _typed(self._fields[path], control.value)
            if value == self._before[path]:
                continue
            place = tree
            for step in path[:-1]:
                place = place.setdefault(step, {})
            place[path[-1]] = value
        return tree

    def _group(self, members: list[Field]) -> None:
        with ui.element("div").classes("ql-fields"):
            for field in members:
                self._inputs[field.path] = _input(field, self._before[field.path])


def _group_of(field: Field, first: tuple[str, ...]) -> str:
    if ".".join(field.path) in first:
        return MAIN
    return field.path[0] if len(field.path) > 1 else OTHER


def _input(field: Field, value: Any) -> Any:
    name = ".".join(field.path)
    label = LABELS.get(name, field.path[-1].replace("_", " "))
    hint = HINTS.get(name, "")
    made: Any
    if field.kind == "flag":
        made = ui.switch(label, value=bool(value))
        made.props["title"] = hint
        return made
    if field.kind == "choice":
        words = {one: one or "as ordering says" for one in field.choices}
        made = ui.select(words, value=value, label=label)
    elif field.kind == "number":
        made = ui.number(label, value=value)
    elif field.kind == "list":
        made = ui.input(label, value=", ".join(value or []))
    else:
        made = ui.input(label, value="" if value is None else str(value))
    made.props("dense outlined")
    if hint:
        made.props["hint"] = hint
    return made


def _typed(field: Field, value: Any) -> Any:
    if field.kind == "number" and isinstance(value, float) and value.is_integer():
        return int(value)
    if field.kind == "list":
        return [one.strip() for one in str(value).split(",") if one.strip()]
    return value


def _value_at(values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = values
    for step in path:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found
