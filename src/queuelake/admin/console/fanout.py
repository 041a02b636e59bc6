"""Vehicle fan-out: requests and how far they have come, and what waits for one vehicle."""

from __future__ import annotations

from nicegui import ui

from queuelake.admin.console import human, widgets
from queuelake.admin.console.listing import ROWS_PER_PAGE, Action, Listing, Nothing, Row, keep_fresh
from queuelake.admin.console.mailboxes import collect_button, finder
from queuelake.admin.console.shell import belongs_to, page
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services
from queuelake.control_sdv import SdvRequest, SdvVehicle

REFRESH_S = 3.0
# In the order of the bar, with the class of each part.
PARTS = ("acked", "in_flight", "pending", "rejected", "expired", "cancelled", "dropped")

belongs_to("/vehicle", "/fanout")


@page("/fanout", "Vehicle fan-out", icon="hub", section="Devices")
async def fanout(visit: Visit) -> None:
    status = await visit.do(Services.sdv_status)

    async def fetch(cursor: str) -> tuple[list[Row], str | None]:
        found = await visit.look(Services.fanout_requests, ROWS_PER_PAGE, cursor)
        newest_first = sorted(found.data, key=lambda one: -one.last_trigger_ms)
        return [_row(one) for one in newest_first], found.cursor

    async def cancel(row: Row) -> None:
        if await _cancelled(visit, row):
            await listing.refresh()

    with widgets.title("Vehicle fan-out", "One payload for many vehicles, each when it is there"):
        finder("Find a vehicle by its VIN", "/vehicle", "vin")
    with ui.element("div").classes("ql-tiles"):
        widgets.Tile("Rows which wait", human.count(status.remaining_messages))
        widgets.Tile("Payloads", human.count(status.unique_payloads))
        usage = status.memory_usage
        widgets.Tile("On disk", human.size(usage.index + usage.data.payload + usage.data.meta))
    actions = []
    if visit.may(Services.cancel_fanout_request):
        actions = [Action("cancel", "Cancel", cancel, danger=True, offered="open")]
    with widgets.card("Requests"):
        _legend()
        listing = Listing(
            [
                Column("request_id", "Request"),
                Column("bar", "Progress"),
                Column("triggered", "Vehicles", number=True),
                Column("acked", "Acked", number=True, minor=True),
                Column("pending", "Pending", number=True, minor=True),
                Column("in_flight", "In flight", number=True, minor=True),
                Column("failed", "Not done", number=True, minor=True, exact="failed_exact"),
                Column("triggered_at", "Triggered", exact="triggered_exact", minor=True),
            ],
            fetch,
            Nothing(
                "hub",
                "No request",
                "A publish to $SDV-FANOUT/trigger begins one, for its vehicles.",
            ),
            key="request_id",
            actions=actions,
        )
        listing.add_cell("bar", _BAR)
        await listing.restart()
    if visit.may(Services.collect_fanout_garbage):
        collect_button("Delete what is too old", lambda: _collect(visit))
    keep_fresh(REFRESH_S, listing.refresh)


# One part for each outcome, as wide as its share; the words are for those who cannot see it.
_BAR = """<q-td :props="props"><div class="ql-bar" role="img" :aria-label="props.row.bar_words"
    :title="props.row.bar_words"><i v-for="part in props.row.bar" :key="part[0]"
    :class="'ql-part-' + part[0]" :style="{flexGrow: part[1]}"></i></div></q-td>"""


def _legend() -> None:
    with ui.row().classes("ql-legend"):
        for part in PARTS:
            with ui.row().classes("ql-legend-part"):
                ui.element("i").classes(f"ql-part-{part}")
                ui.label(part.replace("_", " "))


def _row(one: SdvRequest) -> Row:
    counts = {part: int(getattr(one, part)) for part in PARTS}
    failed = {part: counts[part] for part in PARTS[3:] if counts[part]}
    words = [f"{count:,} {part.replace('_', ' ')}" for part, count in counts.items() if count]
    return {
        "request_id": one.request_id,
        "bar": [[part, count] for part, count in counts.items() if count],
        "bar_words": ", ".join(words) or "nothing",
        "triggered": human.count(one.triggered),
        "acked": human.count(one.acked),
        "pending": human.count(one.pending),
        "in_flight": human.count(one.in_flight),
        "failed": human.count(sum(failed.values())),
        "failed_exact": ", ".join(f"{count:,} {part}" for part, count in failed.items()),
        "triggered_at": human.ago(one.last_trigger_ms),
        "triggered_exact": human.moment(one.last_trigger_ms),
        "open": one.pending > 0,
        "pending_exact": f"{one.pending:,}",
    }


async def _cancelled(visit: Visit, row: Row) -> bool:
    request_id = row["request_id"]
    words = (
        f"{row['pending_exact']} vehicles which wait for it will not get it.\n"
        "What is on its way to a vehicle cannot be called back."
    )
    if not await widgets.confirm(f"Cancel {request_id}?", words, action="Cancel the request"):
        return False
    done = await visit.do(Services.cancel_fanout_request, request_id, [])
    words = f"{request_id} is cancelled for {done.cancelled:,} vehicles"
    widgets.say(f"{words}; {done.in_flight:,} are on their way" if done.in_flight else words)
    return True


async def _collect(visit: Visit) -> None:
    answer = await visit.do(Services.collect_fanout_garbage)
    widgets.say("Began to delete what is too old" if answer.started else "That goes on already")


@page("/vehicle", "Vehicle")
async def vehicle(visit: Visit, vin: str = "") -> None:
    one = await visit.do(Services.inspect_vehicle, vin)
    widgets.title(vin, "Vehicle")
    with widgets.card("State"):
        flying = one.in_flight
        widgets.facts(
            [
                ("Connected", one.connected),
                ("Subscribed to its requests", one.subscribed),
                ("On its way", flying.request_id if flying is not None else "nothing"),
                ("Sent", human.moment(flying.sent_at_ms) if flying is not None else ""),
            ]
        )
    with widgets.card("Rows", "the oldest first; a vehicle gets one at a time"):
        rows = _vehicle_rows(one)
        if not rows:
            widgets.empty("check_circle", "Nothing waits", "This vehicle has all it was to get.")
            return
        widgets.table(
            [
                Column("request_id", "Request"),
                Column("data_id", "Data"),
                Column("state", "State"),
                Column("triggered", "Triggered", exact="triggered_exact"),
            ],
            rows,
            "key",
        )
        if one.has_more:
            ui.label(f"There are more than these {len(rows):,}.").classes("ql-note")


def _vehicle_rows(one: SdvVehicle) -> list[Row]:
    flying = one.in_flight
    rows: list[Row] = []
    for number, row in enumerate(one.pending):
        sent = flying is not None and (flying.ts, flying.request_id) == (row.ts, row.request_id)
        state, kind = ("waits", "info") if row.has_data else ("no data yet", "warn")
        if sent:
            state, kind = "on its way", "good"
        rows.append(
            {
                "key": number,
                "request_id": row.request_id,
                "data_id": row.data_id,
                "state": state,
                "state_class": f"ql-chip ql-chip-{kind}",
                "triggered": human.ago(row.ts),
                "triggered_exact": human.moment(row.ts),
            }
        )
    return rows
