"""What changed between two trees of values, line by line: for the audit and the settings. Pure."""

from __future__ import annotations

import json
from typing import NamedTuple

VALUE_CHARACTERS_MAX = 400


class Difference(NamedTuple):
    """`None`: it was not there, or is not there any more."""

    key: str
    before: str | None
    after: str | None


def flattened(tree: object, above: str = "") -> dict[str, object]:
    """Every leaf of a tree by its dotted key; a list is a leaf."""
    if not isinstance(tree, dict):
        return {above: tree} if above else {}
    found: dict[str, object] = {}
    for name, value in tree.items():
        shown = json.dumps(name, ensure_ascii=False) if "." in name or "/" in name else name
        key = f"{above}.{shown}" if above else shown
        if isinstance(value, dict) and value:
            found |= flattened(value, key)
        else:
            found[key] = value
    return found


def differences(before: object, after: object) -> list[Difference]:
    """The leaves which are not the same in both, by key."""
    old, new = flattened(before, ""), flattened(after, "")
    keys = [*old, *(key for key in new if key not in old)]
    return [
        Difference(key, _shown(old, key), _shown(new, key))
        for key in keys
        if (key in old) != (key in new) or old.get(key) != new.get(key)
    ]


def value_text(value: object) -> str:
    """A value as a configuration says it, and never too long."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > VALUE_CHARACTERS_MAX:
        return f"{text[:VALUE_CHARACTERS_MAX]} ..."
    return text


def _shown(leaves: dict[str, object], key: str) -> str | None:
    return value_text(leaves[key]) if key in leaves else None
