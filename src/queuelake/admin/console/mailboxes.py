"""Device mailboxes: whose there are, and one of them with its position and its entries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec
from nicegui import ui

from queuelake.admin.console import human, widgets
from queuelake.admin.console.listing import ROWS_PER_PAGE, Listing, Nothing, Row
from queuelake.admin.console.shell import belongs_to, link_to, page
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services
from queuelake.control_ecq import EcqEntry, EcqOwner

REWIND_TO = {"first": "the first entry", "seqno": "a number", "ts": "a time (UTC)"}

belongs_to("/mailbox", "/mailboxes")


@page("/mailboxes", "Device mailboxes", icon="inbox", section="Devices")
async def mailboxes(visit: Visit) -> None:
    async def fetch(cursor: str) -> tuple[list[Row], str | None]:
        found = await visit.look(Services.mailbox_owners, ROWS_PER_PAGE, cursor)
        return [_owner_row(one) for one in found.owners], found.next

    status = await visit.do(Services.ecq_status)
    with widgets.title("Device mailboxes", "What waits on disk for devices which come and go"):
        finder("Find a device by its client id", "/mailbox", "owner")
    with ui.element("div").classes("ql-tiles"):
        widgets.Tile("Mailboxes", human.count(status.number_of_queues))
        figures = visit.sampler.metrics
        if figures is not None:
            widgets.Tile("Reading now", human.count(figures.ecq.attached))
            widgets.Tile("Written", human.count(figures.ecq.writes), "since the broker started")
            widgets.Tile(
                "Replaced", human.count(figures.ecq.compacted), "by a newer one of its key"
            )
            widgets.Tile("Delivered", human.count(figures.ecq.delivered))
            widgets.Tile("Expired", human.count(figures.ecq.expired))
    listing = Listing(
        [
            Column("owner", "Device", link="href"),
            Column("state", "State"),
            Column("last", "Last number", number=True, minor=True),
            Column("acked", "Read up to", number=True),
            Column("behind", "Behind", number=True),
            Column("written", "Last written", exact="written_exact", minor=True),
        ],
        fetch,
        Nothing(
            "inbox",
            "No mailbox",
            "The first publish to $ECQ/w/{device}/{key} makes one.",
        ),
        key="owner",
    )
    await listing.restart()
    if visit.may(Services.collect_mailbox_garbage):
        collect_button("Delete what is too old", lambda: _collect(visit))


def finder(label: str, path: str, parameter: str) -> None:
    """A field which leads to the page of the one whose name is typed."""

    def go() -> None:
        if wanted := (box.value or "").strip():
            ui.navigate.to(link_to(path, **{parameter: wanted}))

    box = ui.input(placeholder=label).props(f'dense outlined aria-label="{label}"')
    box.classes("ql-search").on("keydown.enter", go)
    with box.add_slot("append"):
        ui.button(icon="arrow_forward", on_click=go).props('flat round dense aria-label="Go"')


def collect_button(label: str, collect: Callable[[], Awaitable[None]]) -> None:
    button = ui.button(label, icon="cleaning_services", on_click=collect)
    button.props("flat no-caps dense").classes("self-start")


async def _collect(visit: Visit) -> None:
    answer = await visit.do(Services.collect_mailbox_garbage)
    widgets.say("Began to delete what is too old" if answer.started else "That goes on already")


def _owner_row(one: EcqOwner) -> Row:
    return {
        "owner": one.owner,
        "href": link_to("/mailbox", owner=one.owner),
        "state": "reading" if one.attached else "away",
        "state_class": f"ql-chip ql-chip-{'good' if one.attached else 'plain'}",
        "last": f"{one.last:,}",
        "acked": f"{one.acked:,}",
        "behind": "up to date" if one.acked >= one.last else f"{one.last - one.acked:,}",
        "written": human.ago(one.written_at_ms),
        "written_exact": human.moment(one.written_at_ms),
    }


@page("/mailbox", "Device mailbox")
async def mailbox(visit: Visit, owner: str = "") -> None:
    first = await visit.do(Services.mailbox_entries, owner, 1, "")
    shown: dict[int, EcqEntry] = {}

    async def fetch(cursor: str) -> tuple[list[Row], str | None]:
        found = await visit.look(Services.mailbox_entries, owner, ROWS_PER_PAGE, cursor)
        shown.clear()
        shown.update({one.seqno: one for one in found.entries})
        return [_entry_row(one, found.acked) for one in found.entries], found.next

    with widgets.title(owner, "Device mailbox"):
        ui.space()
        if visit.may(Services.rewind_mailbox):
            rewind = ui.button("Rewind", icon="replay", on_click=lambda: _rewind(visit, owner))
            rewind.props("outline no-caps")
    with widgets.card("Position"):
        widgets.facts(
            [
                ("State", "reads now" if first.attached else "away"),
                ("Acknowledged up to", first.acked or "nothing yet"),
                ("Last acknowledged", human.moment(first.acked_at_ms)),
            ]
        )
    with widgets.card("Entries", "the oldest first; one for each key"):
        listing = Listing(
            [
                Column("seqno", "Number", number=True),
                Column("key", "Key"),
                Column("state", "State", minor=True),
                Column("size", "Size", number=True),
                Column("written", "Written", exact="written_exact"),
                Column("expires", "Expires", exact="expires_exact", minor=True),
            ],
            fetch,
            Nothing("inbox", "Empty", "Nothing waits for this device."),
            key="seqno",
            on_row=lambda row: _show(shown[row["seqno"]]),
        )
        await listing.restart()


def _entry_row(one: EcqEntry, acked: int) -> Row:
    read = one.seqno <= acked
    return {
        "seqno": one.seqno,
        "key": one.key,
        "state": "read" if read else "waits",
        "state_class": f"ql-chip ql-chip-{'plain' if read else 'info'}",
        "size": human.size(one.payload_bytes),
        "written": human.ago(one.written_at_ms),
        "written_exact": human.moment(one.written_at_ms),
        "expires": human.ago(one.expires_at_ms) or "by age only",
        "expires_exact": human.moment(one.expires_at_ms),
    }


def _show(entry: EcqEntry) -> None:
    with widgets.form(entry.key, f"number {entry.seqno}") as dialog:
        widgets.facts([("Written", human.moment(entry.written_at_ms))])
        widgets.payload_view(entry.payload, entry.payload_bytes)
        with ui.row().classes("ql-buttons"):
            ui.button("Close", on_click=dialog.close).props("flat no-caps")


def _rewind(visit: Visit, owner: str) -> None:
    note = "The device gets again what is still in its mailbox, from there on."
    with widgets.form(f"Rewind {owner}", note) as dialog:
        to = ui.select(REWIND_TO, value="first", label="Read again from").classes("full-width")
        number = ui.number("Number", min=0, precision=0, value=1).classes("full-width")
        number.bind_visibility_from(to, "value", value="seqno")
        time = ui.input("Time, such as 2026-11-16 13:00").classes("full-width")
        time.bind_visibility_from(to, "value", value="ts")

        async def rewind() -> None:
            wanted: dict[str, object] = {"to": "first"}
            if to.value == "seqno":
                wanted = {"seqno": int(number.value or 0)}
            elif to.value == "ts":
                try:
                    moment = datetime.fromisoformat(time.value.strip()).replace(tzinfo=UTC)
                except ValueError:
                    widgets.say_refused(f"{time.value!r} is no time such as 2026-11-16 13:00")
                    return
                wanted = {"ts": int(moment.timestamp() * 1000)}
            position = await visit.do(Services.rewind_mailbox, owner, msgspec.json.encode(wanted))
            dialog.close()
            widgets.say(f"{owner} reads again from {position.acked + 1} on")
            ui.navigate.to(link_to("/mailbox", owner=owner))

        with ui.row().classes("ql-buttons"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Rewind", color="negative", on_click=rewind).props("no-caps")
