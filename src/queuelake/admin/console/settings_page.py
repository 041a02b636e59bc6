"""Settings in force: each with its value, its default, and where it came from."""

from __future__ import annotations

from nicegui import ui

from queuelake.admin.console import widgets
from queuelake.admin.console.differences import flattened, value_text
from queuelake.admin.console.listing import Listing, Nothing, Row, search_box
from queuelake.admin.console.shell import page
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services
from queuelake.control_admin import SettingsInForce
from queuelake.settings import Settings, shown_table

DEFAULT = "default"


@page("/settings", "Settings", icon="tune", section="Administration")
async def settings(visit: Visit, search: str = "") -> None:
    rows = setting_rows(await visit.do(Services.settings))

    async def fetch(_cursor: str) -> tuple[list[Row], str | None]:
        wanted = (box.value or "").casefold()
        return [
            row
            for row in rows
            if (row["changed"] or not only.value) and wanted in f"{row['key']} {row['value']}"
        ], None

    async def search_again() -> None:
        await listing.restart()

    changed = sum(row["changed"] for row in rows)
    note = f"{changed} of {len(rows)} differ from their default; they are read at the start"
    with widgets.title("Settings in force", note):
        only = ui.switch("Changed only", value=False, on_change=search_again)
        box = search_box("Key or value", search, search_again)
    listing = Listing(
        [
            Column("key", "Key"),
            Column("value", "Value"),
            Column("default", "Default", minor=True),
            Column("origin", "From", minor=True),
        ],
        fetch,
        Nothing("tune", "No such setting", "docs/configuration.md has every key."),
        key="key",
    )
    await listing.restart()


def setting_rows(in_force: SettingsInForce) -> list[Row]:
    """One row for each key, those which differ from their default marked."""
    now, usual = flattened(in_force.settings), flattened(shown_table(Settings()))
    rows: list[Row] = []
    for key, value in now.items():
        default = value_text(usual[key]) if key in usual else ""
        shown = value_text(value)
        origin = in_force.origins.get(key, DEFAULT)
        # A key which was set to its default was set all the same, and where is worth knowing.
        changed = shown != default
        rows.append(
            {
                "key": key,
                "value": shown,
                "value_class": "ql-changed" if changed else "",
                "default": default,
                "origin": origin,
                "origin_class": "" if origin == DEFAULT else "ql-chip ql-chip-info",
                "changed": changed,
            }
        )
    return rows
