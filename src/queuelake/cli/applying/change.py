"""One difference between the document and the broker, and what ends it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from queuelake.config_types import parse_duration

Table = dict[str, object]
Action = Literal["create", "change", "delete"]

SIGNS: dict[Action, str] = {"create": "+", "change": "~", "delete": "-"}
SECRET = "***"


class Change(NamedTuple):
    """`before` and `after` hold what differs, by dotted key; `perform` asks the broker for it."""

    action: Action
    kind: str
    name: str
    before: Table
    after: Table
    perform: Callable[[], object]
    note: str = ""  # what else there is to know, such as what is lost

    def title(self) -> str:
        return f"{self.kind} {self.name}" if self.name else self.kind

    def lines(self) -> Iterator[str]:
        """As people read it: what happens, then one line for each key."""
        yield f"{SIGNS[self.action]} {self.title()}" + (f" ({self.note})" if self.note else "")
        for key in dict.fromkeys([*self.before, *self.after]):
            if key not in self.before:
                yield f"    {key} = {_shown(self.after[key])}"
            elif key not in self.after:
                yield f"    {key}: {_shown(self.before[key])} -> nothing"
            else:
                yield f"    {key}: {_shown(self.before[key])} -> {_shown(self.after[key])}"

    def told(self) -> Table:
        """For programs."""
        return {
            "action": self.action,
            "kind": self.kind,
            "name": self.name,
            "before": self.before,
            "after": self.after,
        }


def difference(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[Table, Table]:
    """What of two trees differs, by dotted key."""
    old, new = flat(before), flat(after)
    differ = [
        key
        for key in dict.fromkeys([*old, *new])
        if key not in old or key not in new or not _same(old[key], new[key])
    ]
    return (
        {key: old[key] for key in differ if key in old},
        {key: new[key] for key in differ if key in new},
    )


def flat(tree: Mapping[str, object], above: str = "") -> Table:
    found: Table = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            found |= flat(value, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = value
    return found


def _same(one: object, other: object) -> bool:
    """Durations are kept as they were written: 60s and 1m are the same one."""
    if one == other or not isinstance(one, str) or not isinstance(other, str):
        return one == other
    try:
        return parse_duration(one) == parse_duration(other)
    except ValueError:
        return False


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
