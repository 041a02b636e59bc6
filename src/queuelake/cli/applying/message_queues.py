"""Message queues: `[mq.queues."name or filter"]`; the rest of `[mq]` is what all of them share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

from queuelake import mq_rules
from queuelake.cli.applying.change import Change, Table, difference, flat
from queuelake.cli.rest import Rest
from queuelake.mq_settings import BadMqSettingsError, MqConfig, MqSettings, show, show_config

QUEUES = "/api/v5/message_queues/queues"
CONFIG = "/api/v5/message_queues/config"


def plan_message_queues(rest: Rest, table: Table, prune: bool, mistakes: list[str]) -> list[Change]:
    changes = _plan_config(rest, {k: v for k, v in table.items() if k != "queues"}, mistakes)
    queues = table.get("queues")
    if queues is None:
        return changes
    if not isinstance(queues, dict):
        mistakes.append("mq.queues: not a table; write [mq.queues.NAME]")
        return changes
    present = {one["name"]: one for one in _present(rest)}
    wanted: set[str] = set()
    for written, tree in queues.items():
        where = f"mq.queues.{json.dumps(written, ensure_ascii=False)}"
        if not isinstance(tree, dict):
            mistakes.append(f"{where}: not a table of settings")
            continue
        body = _body(written, tree)
        try:
            asked = mq_rules.read_new(dict(body))
            wanted.add(asked.name)
            found = present.get(asked.name)
            if found is None:
                post = partial(rest.call, "POST", QUEUES, body)
                changes.append(Change("create", "message queue", written, {}, flat(tree), post))
            else:
                changes += _changed(rest, written, found, body)
        except BadMqSettingsError as error:
            mistakes += [f"{where}.{mistake}" for mistake in error.mistakes]
    if prune:
        changes += [
            Change("delete", "message queue", _key(one), {}, {}, _removal(rest, name))
            for name, one in present.items()
            if name not in wanted
        ]
    return changes


def export_message_queues(rest: Rest) -> Table:
    queues: Table = {}
    for one in _present(rest):
        unnamed = one["name"].startswith("/")
        left_out = ("name", "topic_filter") if unnamed else ("name",)
        queues[_key(one)] = {key: value for key, value in one.items() if key not in left_out}
    return {"queues": queues}


def _present(rest: Rest) -> Iterator[dict[str, Any]]:
    cursor = ""
    while True:
        page = rest.get(QUEUES, limit=1000, cursor=cursor)
        yield from page["data"]
        if not page["meta"]["hasnext"]:
            return
        cursor = page["meta"]["cursor"]


def _key(one: dict[str, Any]) -> str:
    """What the document calls it: its name, or the filter of one without a name."""
    name = str(one["name"])
    return str(one["topic_filter"]) if name.startswith("/") else name


def _body(written: str, tree: Table) -> Table:
    """The key is a name when the table says the filter, else it is the filter."""
    if "topic_filter" in tree:
        return {"name": written, **tree}
    return {"topic_filter": written, **tree}


def _changed(rest: Rest, written: str, found: dict[str, Any], body: Table) -> list[Change]:
    old = _settings(found)
    new = mq_rules.read_update(old, dict(body))
    before, after = difference(show(old), show(new))
    if not after:
        return []
    fixed = ("name", "topic_filter", "is_lastvalue")
    said = {key: value for key, value in body.items() if key not in fixed}
    put = partial(rest.call, "PUT", _place(old.name), said)
    return [Change("change", "message queue", written, before, after, put)]


def _settings(found: dict[str, Any]) -> MqSettings:
    body = dict(found)
    if body["name"].startswith("/"):
        del body["name"]
    return mq_rules.read_new(body)


def _removal(rest: Rest, name: str) -> partial[Any]:
    return partial(rest.call, "DELETE", _place(name))


def _place(name: str) -> str:
    return f"{QUEUES}/{quote(name, safe='')}"


def _plan_config(rest: Rest, table: Table, mistakes: list[str]) -> list[Change]:
    if not table:
        return []
    try:
        old = mq_rules.read_config(MqConfig(), rest.get(CONFIG))
        new = mq_rules.read_config(old, dict(table))
    except BadMqSettingsError as error:
        mistakes += [f"mq.{mistake}" for mistake in error.mistakes]
        return []
    before, after = difference(show_config(old), show_config(new))
    put = partial(rest.call, "PUT", CONFIG, table)
    return [Change("change", "mq", "", before, after, put)] if after else []
