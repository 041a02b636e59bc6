"""Durable queues and streams: `[queues."name"]`, in the words of the configuration."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec

from queuelake import names
from queuelake.cli.applying.change import Change, Table, difference, flat
from queuelake.cli.rest import Rest, path
from queuelake.queue_settings import (
    BadQueueSettingsError,
    QueueSettings,
    base_of,
    changes_allowed,
    configured,
    dead_letter_target,
)


def plan_queues(rest: Rest, table: Table, prune: bool, mistakes: list[str]) -> list[Change]:
    present = {one["name"]: one for one in rest.pages(path("queues"), "queues")}
    shared = rest.get(path("settings"))["settings"]["queues"]["defaults"]
    defaults = msgspec.convert(shared, QueueSettings)
    changes: list[Change] = []
    wanted: set[str] = set()
    kept: set[str] = set()
    for written, tree in table.items():
        where = f"queues.{json.dumps(written, ensure_ascii=False)}"
        name = _name(where, written, tree, mistakes)
        if not name:
            continue
        address = names.address(name)
        if address in wanted:
            mistakes.append(f"{where}: {address} is in the document twice")
        wanted.add(address)
        assert isinstance(tree, dict)
        try:
            if address in present:
                settings, differences = _changed(rest, name, tree)
                changes += differences
            else:
                settings = configured(base_of(name, defaults, tree), tree, name)
                put = partial(rest.call, "PUT", path("queues", name), tree)
                changes.append(Change("create", "queue", address, {}, flat(tree), put))
            kept.add(names.address(dead_letter_target(settings, name)))
        except BadQueueSettingsError as error:
            mistakes += [f"{where}.{mistake}" for mistake in error.mistakes]
    if prune:
        kept |= wanted
        changes += [_deleted(rest, one) for one in present.values() if _prunable(one, kept)]
    return changes


def export_queues(rest: Rest) -> Table:
    found: Table = {}
    for one in rest.pages(path("queues"), "queues"):
        if _made_by_itself(one["name"]):
            continue
        bare = names.bare_name(one["name"])
        # The type and the partitions of a queue stay when the defaults change: they are its own.
        own = {"type": one["type"]}
        if one["type"] != "quorum":
            own["partitions"] = one["partitions"]
        found[bare] = own | rest.get(path("queues", bare))["configured"]
    return found


def _name(where: str, written: str, tree: object, mistakes: list[str]) -> str:
    if not isinstance(tree, dict):
        mistakes.append(f"{where}: not a table; what all queues share is in the configuration")
        return ""
    try:
        return names.bare_name(written)
    except names.BadAddressError as error:
        mistakes.append(f"{where}: {error}")
        return ""


def _changed(rest: Rest, name: str, tree: Table) -> tuple[QueueSettings, list[Change]]:
    """The settings as they will be, and what changes them."""
    found = rest.get(path("queues", name))["settings"]
    old = msgspec.convert(found, QueueSettings)
    new = configured(old, tree, name)
    changes_allowed(old, new)
    before, after = difference(msgspec.to_builtins(old), msgspec.to_builtins(new))
    if not after:
        return new, []
    put = partial(rest.call, "PUT", path("queues", name), tree)
    return new, [Change("change", "queue", names.address(name), before, after, put)]


def _prunable(one: dict[str, Any], kept: set[str]) -> bool:
    return one["name"] not in kept and not _made_by_itself(one["name"])


def _made_by_itself(address: str) -> bool:
    """Queues of dead letters and of replies come with others, and no document names them."""
    name = names.bare_name(address)
    return names.is_dead_letter(name) or names.is_response(name)


def _deleted(rest: Rest, one: dict[str, Any]) -> Change:
    remove = partial(rest.call, "DELETE", path("queues", names.bare_name(one["name"])))
    note = f"with {one['depth']} messages" if one["depth"] else ""
    return Change("delete", "queue", one["name"], {}, {}, remove, note)
