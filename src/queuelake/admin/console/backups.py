"""Backups which the broker makes beside its data: to start, to follow and to delete."""

from __future__ import annotations

from nicegui import ui

from queuelake.admin.console import human, widgets
from queuelake.admin.console.listing import Action, Listing, Nothing, Row, keep_fresh
from queuelake.admin.console.shell import page
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services
from queuelake.control_backup import BackupInfo

REFRESH_S = 2.0
STATES = {"running": "info", "done": "good", "failed": "bad", "incomplete": "warn"}


@page("/backups", "Backups", icon="save", section="Administration", role="admin")
async def backups(visit: Visit) -> None:
    async def fetch(_cursor: str) -> tuple[list[Row], str | None]:
        found = await visit.look(Services.backups)
        newest_first = sorted(found.backups, key=lambda one: -one.changed_at_ms)
        return [_row(one) for one in newest_first], None

    async def start() -> None:
        begun = await visit.do(Services.start_backup)
        widgets.say(f"The backup {begun.name} has begun")
        await listing.refresh()

    async def delete(row: Row) -> None:
        words = "The copy is deleted from the disk. The broker and its data stay as they are."
        if await widgets.confirm(f"Delete {row['name']}?", words, action="Delete"):
            await visit.do(Services.delete_backup, row["name"])
            widgets.say(f"The backup {row['name']} is deleted")
            await listing.refresh()

    note = "Copies of the store, made while the broker runs; serve one to restore it"
    with widgets.title("Backups", note):
        ui.space()
        ui.button("Back up now", icon="save", on_click=start).props("no-caps unelevated")
    listing = Listing(
        [
            Column("name", "Name"),
            Column("state", "State"),
            Column("size", "Size", number=True),
            Column("changed", "When", exact="changed_exact"),
            Column("path", "Where", minor=True),
        ],
        fetch,
        Nothing("save", "No backup yet", "One is a consistent copy of the whole store."),
        key="name",
        actions=[Action("delete", "Delete", delete, danger=True, offered="ended")],
    )
    await listing.restart()
    keep_fresh(REFRESH_S, listing.refresh)


def _row(one: BackupInfo) -> Row:
    size = human.size(one.bytes)
    if one.state == "running" and one.bytes_max:
        size = f"{size} of at most {human.size(one.bytes_max)}"
    return {
        "name": one.name,
        "state": one.state,
        "state_class": f"ql-chip ql-chip-{STATES[one.state]}",
        "ended": one.state != "running",
        "size": size,
        "changed": human.ago(one.changed_at_ms),
        "changed_exact": human.moment(one.changed_at_ms),
        "path": one.error or one.path,
    }
