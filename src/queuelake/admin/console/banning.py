"""Banning somebody: the form, for the page of a client and that of the bans."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from queuelake.admin.console import widgets
from queuelake.admin.console.visit import Visit
from queuelake.admin.services import Services

KINDS = {"clientid": "Client id", "username": "User", "ip": "Address or network"}
TIMES = {600: "for 10 minutes", 3600: "for an hour", 86_400: "for a day", 0: "until a restart"}

Then = Callable[[], Awaitable[None]]


def ban_form(
    visit: Visit, kind: str = "clientid", value: str = "", then: Then | None = None
) -> None:
    """Ask whom to ban and for how long; whoever it means is disconnected too."""
    note = "Whoever it means is disconnected now and refused from then on."
    with widgets.form("Ban", note) as dialog:
        kinds = ui.select(KINDS, value=kind, label="What").classes("full-width")
        values = ui.input("Value", value=value).classes("full-width").props("autofocus")
        times = ui.select(TIMES, value=3600, label="How long").classes("full-width")

        async def ban() -> None:
            await visit.do(Services.ban, kinds.value, values.value.strip(), float(times.value))
            dialog.close()
            widgets.say(f"{values.value.strip()} is banned {TIMES[times.value]}")
            if then is not None:
                await then()

        with ui.row().classes("ql-buttons"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Ban", color="negative", on_click=ban).props("no-caps")
