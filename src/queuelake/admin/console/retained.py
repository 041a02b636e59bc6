"""Retained messages: the last one of each topic, to look at and to delete."""

from __future__ import annotations

from nicegui import ui

from queuelake.admin.console import human, widgets
from queuelake.admin.console.listing import ROWS_PER_PAGE, Listing, Nothing, Row, search_box
from queuelake.admin.console.shell import page
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services
from queuelake.control_admin import RetainedInfo


@page("/retained", "Retained messages", icon="push_pin", section="Clients")
async def retained(visit: Visit, filter: str = "") -> None:
    async def fetch(cursor: str) -> tuple[list[Row], str | None]:
        found = await visit.look(Services.retained, ROWS_PER_PAGE, cursor, box.value or "")
        return [_row(one) for one in found.messages], found.next

    async def search_again() -> None:
        await listing.restart()

    async def show(row: Row) -> None:
        await _show(visit, row["topic"], listing)

    with widgets.title("Retained messages", "What a new subscriber gets at once"):
        box = search_box("Topic filter, such as fleet/+/status", filter, search_again)
    listing = Listing(
        [
            Column("topic", "Topic"),
            Column("size", "Size", number=True),
            Column("qos", "QoS", number=True, minor=True),
            Column("publisher", "Published by", minor=True),
            Column("published", "When", exact="published_exact"),
            Column("expires", "Expires", exact="expires_exact", minor=True),
        ],
        fetch,
        Nothing("push_pin", "No retained message", "None has a topic which fits this filter."),
        key="topic",
        on_row=show,
    )
    await listing.restart()


def _row(one: RetainedInfo) -> Row:
    return {
        "topic": one.topic,
        "size": human.size(one.payload_bytes),
        "qos": one.qos,
        "publisher": one.publisher,
        "published": human.ago(one.published_at_ms),
        "published_exact": human.moment(one.published_at_ms),
        "expires": human.ago(one.expires_at_ms) or "never",
        "expires_exact": human.moment(one.expires_at_ms),
    }


async def _show(visit: Visit, topic: str, listing: Listing) -> None:
    message = await visit.do(Services.retained_message, topic)

    async def delete() -> None:
        words = "New subscribers do not get it any more. Those who have it keep it."
        if await widgets.confirm(f"Delete what is retained for {topic}?", words, action="Delete"):
            await visit.do(Services.delete_retained, topic)
            dialog.close()
            widgets.say(f"Nothing is retained for {topic} any more")
            await listing.refresh()

    with widgets.form(topic) as dialog:
        widgets.facts(
            [
                ("Published by", message.info.publisher),
                ("When", human.moment(message.info.published_at_ms)),
                ("QoS", message.info.qos),
            ]
        )
        widgets.payload_view(message.payload, message.info.payload_bytes)
        with ui.row().classes("ql-buttons"):
            if visit.may(Services.delete_retained):
                button = ui.button("Delete", icon="delete", on_click=delete)
                button.props("flat no-caps color=negative")
            ui.button("Close", on_click=dialog.close).props("flat no-caps")
