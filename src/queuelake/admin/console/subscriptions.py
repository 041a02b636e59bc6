"""Subscriptions: who gets a message to this topic?"""

from __future__ import annotations

from nicegui import ui

from queuelake.admin.console import widgets
from queuelake.admin.console.clients import subscription_row
from queuelake.admin.console.listing import ROWS_PER_PAGE, Listing, Nothing, Row, search_box
from queuelake.admin.console.shell import page
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services


@page("/subscriptions", "Subscriptions", icon="rss_feed", section="Clients")
async def subscriptions(visit: Visit, topic: str = "") -> None:
    async def fetch(cursor: str) -> tuple[list[Row], str | None]:
        wanted = {"topic": box.value} if box.value else {}
        found = await visit.look(Services.subscriptions, ROWS_PER_PAGE, cursor, **wanted)
        return [subscription_row(one) for one in found.subscriptions], found.next

    async def search_again() -> None:
        await listing.restart()

    with widgets.title(
        "Subscriptions", "With a topic: who gets a message which is published there"
    ):
        box = search_box("Who gets a message to this topic?", topic, search_again)
        box.classes("ql-search-wide")
    listing = Listing(
        [
            Column("client_id", "Client", link="href"),
            Column("filter", "Topic filter"),
            Column("qos", "QoS", number=True),
            Column("options", "Options", minor=True),
        ],
        fetch,
        Nothing("rss_feed", "Nobody", "No subscription gets a message to this topic."),
        key="key",
    )
    await listing.restart()
    ui.label("Of a shared subscription ($share) one member gets each message.").classes("ql-note")
