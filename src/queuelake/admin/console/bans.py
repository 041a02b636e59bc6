"""Bans: who may not connect, to add one and to lift one."""

from __future__ import annotations

from nicegui import ui

from queuelake.admin.console import human, widgets
from queuelake.admin.console.banning import KINDS, ban_form
from queuelake.admin.console.listing import Action, Listing, Nothing, Row
from queuelake.admin.console.shell import page
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services


@page("/bans", "Bans", icon="block", section="Clients", role="admin")
async def bans(visit: Visit) -> None:
    async def fetch(_cursor: str) -> tuple[list[Row], str | None]:
        found = await visit.look(Services.bans)
        return [
            {
                "key": f"{one.kind} {one.value}",
                "kind": KINDS[one.kind],
                "value": one.value,
                "until": human.ago(one.until_ms) if one.until_ms else "with the broker",
                "until_exact": human.moment(one.until_ms or 0),
                "ban_kind": one.kind,
            }
            for one in found.bans
        ], None

    async def lift(row: Row) -> None:
        words = f"{row['kind']} {row['value']} may connect again, from now on."
        if await widgets.confirm("Lift this ban?", words, action="Lift"):
            await visit.do(Services.end_ban, row["ban_kind"], row["value"])
            widgets.say(f"The ban of {row['value']} is lifted")
            await listing.refresh()

    async def added() -> None:
        await listing.refresh()

    with widgets.title("Bans", "Made while the broker runs; those of the configuration stay there"):
        ui.space()
        add = ui.button("Ban", icon="block", on_click=lambda: ban_form(visit, then=added))
        add.props("no-caps unelevated")
    listing = Listing(
        [
            Column("kind", "What"),
            Column("value", "Value"),
            Column("until", "Ends", exact="until_exact"),
        ],
        fetch,
        Nothing("block", "Nobody is banned", "A ban of a client id, a user or an address is here."),
        key="key",
        actions=[Action("lift", "Lift", lift)],
    )
    await listing.restart()
