"""Making, changing and deleting queues of all kinds: the dialogs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from nicegui import ui

from queuelake import names
from queuelake.admin.console import human, widgets
from queuelake.admin.console.settings_form import Field, SettingsForm, fields_of
from queuelake.admin.console.shell import link_to
from queuelake.admin.console.visit import Visit
from queuelake.admin.services import Services
from queuelake.control_mq import MqInfo, MqUpdate
from queuelake.control_queues import QueueInfo, QueueStats
from queuelake.errors import QueuelakeError
from queuelake.mq_settings import MqLastValueKeys
from queuelake.queue_settings import QUORUM_BASE, QueueSettings, QueueType, is_setting_of

FIRST = (
    *("partitions", "ordering", "topics", "archive", "retry_policy.max_retries"),
    *("limits.max_queue_depth", "limits.message_ttl", "dlq_config.enabled"),
)
QUORUM_FIRST = (
    *("topics", "max_length", "overflow", "delivery_limit", "message_ttl"),
    *("single_active_consumer", "dead_letter_queue", "dead_letter_strategy"),
)
MQ_FIRST = ("key_expression", "data_retention_period", "dispatch_strategy")
KINDS = {
    "queue": "Durable queue",
    "stream": "Stream",
    "quorum": "Quorum queue",
    "message queue": "Message queue",
    "last value": "Last-value queue",
}
KIND_NOTES = {
    "queue": "Each message is worked on once by each group, with retries and dead letters.",
    "stream": "Messages stay for as long as you say; every group reads them all, from anywhere.",
    "quorum": "One line of messages for all consumers, with priorities and a delivery limit.",
    "message queue": "Filled from ordinary topics which match a filter, shared by its subscribers.",
    "last value": "The same, and only the last message of each key is kept.",
}


async def create(visit: Visit) -> None:
    """A dialog for a new queue; afterwards its page is shown."""
    settings = (await visit.do(Services.settings)).settings
    defaults = settings["queues"]["defaults"]
    with widgets.form("New queue") as dialog:
        kind = ui.select(KINDS, value="queue", label="Kind").classes("full-width")
        kind.props("outlined dense options-dense")
        note = ui.label(KIND_NOTES["queue"]).classes("ql-note")
        name = ui.input("Name", placeholder="tasks/image").classes("full-width")
        name.props("outlined dense autofocus")
        topic = ui.input("Topic filter", placeholder="sensors/+/alarm").classes("full-width")
        topic.props("outlined dense").bind_visibility_from(kind, "value", _is_filled)
        place = ui.column().classes("full-width")
        shown: dict[str, SettingsForm] = {}

        def show_settings() -> None:
            note.set_text(KIND_NOTES[kind.value])
            place.clear()
            with place:
                shown["form"] = _settings_form(kind.value, defaults)

        kind.on_value_change(show_settings)
        show_settings()

        async def save() -> None:
            changes = shown["form"].changes()
            if _is_filled(kind.value):
                body = {"topic_filter": topic.value, "is_lastvalue": kind.value == "last value"}
                body |= {"name": name.value} if name.value else {}
                made = await visit.do(Services.create_message_queue, json_bytes(body | changes))
                target = link_to("/message-queue", name=made.name)
            else:
                target = await _create_durable(visit, name.value, kind.value, changes)
            visit.directory.forget()
            dialog.close()
            ui.navigate.to(target)

        buttons("Create", dialog, save)


def _is_filled(kind: object) -> bool:
    """Whether queues of this kind are filled from a topic filter."""
    return kind in ("message queue", "last value")


def _settings_form(kind: str, defaults: dict[str, Any]) -> SettingsForm:
    if kind == "quorum":
        return SettingsForm(_fields("quorum"), msgspec.to_builtins(QUORUM_BASE), QUORUM_FIRST)
    if not _is_filled(kind):
        return SettingsForm(_fields("classic"), defaults, FIRST)
    hidden = {("is_lastvalue",), *([] if kind == "last value" else [("key_expression",)])}
    fields = [one for one in fields_of(MqUpdate) if one.path not in hidden]
    return SettingsForm(fields, msgspec.to_builtins(MqLastValueKeys()), MQ_FIRST)


def _fields(kind: QueueType) -> list[Field]:
    """What can be set for a queue of this type."""
    overflow = ("drop_head", "reject_publish" if kind == "quorum" else "reject")
    return [
        one._replace(choices=overflow) if one.path == ("overflow",) else one
        for one in fields_of(QueueSettings)
        if one.path != ("type",) and is_setting_of(kind, one.path[0])
    ]


async def _create_durable(visit: Visit, name: str, kind: str, changes: dict[str, Any]) -> str:
    bare = names.bare_name(name.strip())
    if kind in ("stream", "quorum"):
        changes["type"] = kind
    done = await visit.do(Services.configure_queue, bare, json_bytes(changes))
    if not done.created:
        widgets.say(f"{done.queue.name} was there already; it has these settings now")
    return link_to("/queue", name=bare)


async def configure(visit: Visit, info: QueueInfo) -> bool:
    """A dialog with the settings of a durable queue; True: some were changed."""
    bare = names.bare_name(info.name)
    kind = info.settings.type
    fields, first = _fields(kind), QUORUM_FIRST if kind == "quorum" else FIRST

    async def save(changes: dict[str, Any]) -> None:
        await visit.do(Services.configure_queue, bare, json_bytes(changes))

    values = msgspec.to_builtins(info.settings)
    return await _change(visit, info.name, SettingsForm, fields, values, first, save)


async def configure_message_queue(visit: Visit, info: MqInfo) -> bool:
    """The same for a message queue."""
    hidden = {("is_lastvalue",), *([] if info.is_lastvalue else [("key_expression",)])}
    fields = [one for one in fields_of(MqUpdate) if one.path not in hidden]

    async def save(changes: dict[str, Any]) -> None:
        await visit.do(Services.update_message_queue, info.name, json_bytes(changes))

    values = msgspec.to_builtins(info)
    values["data_retention_period"] = f"{info.data_retention_period}ms"
    return await _change(visit, info.name, SettingsForm, fields, values, MQ_FIRST, save)


async def _change(
    visit: Visit,
    name: str,
    make: Callable[..., SettingsForm],
    fields: list[Any],
    values: dict[str, Any],
    first: tuple[str, ...],
    save: Callable[[dict[str, Any]], Awaitable[None]],
) -> bool:
    with widgets.form(f"Settings of {name}") as dialog:
        form = make(fields, values, first)

        async def save_changes() -> None:
            changes = form.changes()
            if changes:
                await save(changes)
                visit.directory.forget()
                widgets.say(f"Settings of {name} changed: {', '.join(_leaves(changes))}")
            dialog.submit(bool(changes))

        buttons("Save", dialog, save_changes)
    return bool(await dialog)


def _leaves(tree: dict[str, Any], prefix: str = "") -> list[str]:
    found: list[str] = []
    for key, value in tree.items():
        found += _leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else [prefix + key]
    return found


def buttons(action: str, dialog: ui.dialog, do: Callable[[], Awaitable[None]]) -> None:
    """The end of a form: what was refused is said above the buttons, and the form stays."""
    mistake = ui.label("").classes("ql-mistake").props('role="alert"')
    mistake.set_visibility(False)

    async def run() -> None:
        mistake.set_visibility(False)
        try:
            await do()
        except QueuelakeError as exc:
            mistake.set_text(str(exc))
            mistake.set_visibility(True)

    with ui.row().classes("ql-buttons"):
        ui.button("Cancel", on_click=dialog.close).props("flat")
        ui.button(action, on_click=run)


async def delete(visit: Visit, name: str, stats: QueueStats) -> bool:
    """Delete a durable queue, if somebody means it; True: it is gone."""
    lost = f"{stats.depth:,} messages and {len(stats.groups):,} consumer groups"
    letters = f"\nIts {stats.dlq:,} dead letters stay." if stats.dlq else ""
    text = f"This deletes {names.address(name)} with {lost}. It cannot be undone.{letters}"
    if not await widgets.confirm("Delete this queue?", text, action="Delete", type_first=name):
        return False
    deleted = await visit.do(Services.delete_queue, name)
    visit.directory.forget()
    extra = f"; {deleted.unarchived:,} of its messages were not archived"
    widgets.say(f"{names.address(name)} is deleted{extra if deleted.unarchived else ''}")
    return True


async def delete_message_queue(visit: Visit, name: str, messages: int) -> bool:
    text = f"This deletes {name} with {human.count(messages)} messages. It cannot be undone."
    if not await widgets.confirm("Delete this queue?", text, action="Delete", type_first=name):
        return False
    await visit.do(Services.delete_message_queue, name)
    visit.directory.forget()
    widgets.say(f"{name} is deleted")
    return True


def json_bytes(value: object) -> bytes:
    return json.dumps(value).encode()
