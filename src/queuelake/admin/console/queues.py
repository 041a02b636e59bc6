"""All queues, of every kind: found, sorted and paged on the server, however many there are."""

from __future__ import annotations

from typing import Any, get_args

from nicegui import ui

from queuelake import names
from queuelake.admin.console import human, queue_forms, widgets
from queuelake.admin.console.directory import Kind, Row
from queuelake.admin.console.shell import link_to, page
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services

REFRESH_S = 2.0
PAGE_ROWS_MIN = 10  # the smallest page one can choose
COLUMNS = [
    Column("name", "Queue", sortable=True, link="link"),
    Column("kind", "Kind", sortable=True, minor=True),
    Column("depth", "Depth", number=True, sortable=True, exact="depth_exact"),
    Column("in_flight", "In flight", number=True, sortable=True, minor=True),
    Column("in_per_s", "In", number=True, sortable=True, minor=True),
    Column("out_per_s", "Out", number=True, sortable=True, minor=True),
    Column("oldest_s", "Oldest", number=True, sortable=True, minor=True, exact="oldest_exact"),
    Column("consumers", "Consumers", number=True, sortable=True, minor=True),
    Column("dead", "Dead", number=True, sortable=True),
]


@page("/queues", "Queues", icon="inventory_2")
async def queues(visit: Visit, search: str = "") -> None:
    with widgets.title("Queues"):
        if visit.may(Services.configure_queue):
            ui.button("New queue", icon="add", on_click=lambda: queue_forms.create(visit))
    _sums(visit)
    listing = Listing(visit, search)
    await listing.refresh()
    ui.timer(REFRESH_S, listing.refresh)


class Listing:
    """The table, and what somebody wants to see of it."""

    def __init__(self, visit: Visit, search: str) -> None:
        self._visit = visit
        self._pagination: dict[str, Any] = {
            "page": 1,
            "rowsPerPage": widgets.ROWS_PER_PAGE,
            "sortBy": "name",
            "descending": False,
            "rowsNumber": 0,
        }
        with widgets.card():
            with ui.row().classes("ql-filters"):
                self._search = ui.input("Search", value=search).classes("ql-search")
                self._search.props("outlined dense clearable debounce=250 type=search")
                kinds = ["all kinds", *get_args(Kind)]
                self._kind = ui.select(kinds, value="all kinds", label="Kind")
                self._kind.props("outlined dense options-dense").classes("ql-kind")
                self._background = ui.switch("Dead-letter and reply queues", value=False)
            self._table = widgets.table(COLUMNS, [], "key", pagination=self._pagination)
            self._table.props("binary-state-sort")
            self._table.on("request", self._on_request)
            self._empty = ui.column().classes("full-width")
        for control in (self._search, self._kind, self._background):
            control.on_value_change(self._on_filter)

    async def refresh(self) -> None:
        rows = await self._visit.directory.rows()
        found = self._sorted([row for row in rows if self._fits(row)])
        wanted = self._pagination
        wanted["rowsNumber"] = len(found)
        per_page = int(wanted["rowsPerPage"]) or len(found) or 1
        wanted["page"] = min(int(wanted["page"]), max(1, -(-len(found) // per_page)))
        start = (int(wanted["page"]) - 1) * per_page
        self._table.props["pagination"] = dict(wanted)
        self._table.rows = [_shown(row) for row in found[start : start + per_page]]
        self._table.props["hide-pagination"] = len(found) <= PAGE_ROWS_MIN
        self._table.set_visibility(bool(found))
        self._say_empty(bool(found), any(not row.is_background for row in rows))

    async def _on_filter(self) -> None:
        self._pagination["page"] = 1
        await self.refresh()

    async def _on_request(self, event: Any) -> None:
        wanted = event.args["pagination"]
        for key in ("page", "rowsPerPage", "sortBy", "descending"):
            self._pagination[key] = wanted[key]
        await self.refresh()

    def _fits(self, row: Row) -> bool:
        text = (self._search.value or "").strip().removeprefix("$queue/").lower()
        if row.is_background and not self._background.value:
            return False
        if self._kind.value not in ("all kinds", row.kind):
            return False
        return text in row.name.lower() or text in row.topic_filter.lower()

    def _sorted(self, rows: list[Row]) -> list[Row]:
        by = self._pagination["sortBy"] or "name"
        rows.sort(key=lambda row: row.name)

        def value(row: Row) -> Any:
            found = getattr(row, by)
            return -1 if found is None else found

        return sorted(rows, key=value, reverse=bool(self._pagination["descending"]))

    def _say_empty(self, any_found: bool, any_there: bool) -> None:
        self._empty.clear()
        self._empty.set_visibility(not any_found)
        if any_found:
            return
        with self._empty:
            if any_there:
                widgets.empty(
                    "search_off", "No queue fits", "Search for less, or for another kind."
                )
            else:
                hint = "Publish to $queue/tasks and it is there, or make one with New queue."
                widgets.empty("inventory_2", "There is no queue yet", hint)


def _shown(row: Row) -> dict[str, Any]:
    filled = row.kind in ("message queue", "last value")
    path = "/message-queue" if filled else "/queue"
    return {
        "key": f"{row.kind}:{row.name}",
        "name": row.name if filled else names.address(row.name),
        "link": link_to(path, name=row.name),
        "kind": row.kind,
        "depth": human.count(row.depth),
        "depth_exact": f"{row.depth:,} messages",
        "in_flight": human.count(row.in_flight),
        "in_per_s": human.rate(row.in_per_s),
        "out_per_s": human.rate(row.out_per_s),
        "oldest_s": human.NONE if row.oldest_s is None else human.duration(row.oldest_s),
        "oldest_exact": "" if row.oldest_s is None else f"{row.oldest_s:,.3f} s",
        "consumers": human.count(row.consumers),
        "dead": human.count(row.dead),
        "dead_class": "ql-bad" if row.dead else "ql-soft",
    }


def _sums(visit: Visit) -> None:
    """All queues together. Mailboxes and fan-out have a queue for each device: only their sums."""
    with ui.element("div").classes("ql-tiles"):
        queues = widgets.Tile("Durable queues")
        message_queues = widgets.Tile("Message queues")
        mailboxes = widgets.Tile("Device mailboxes", link="/mailboxes")
        fanout = widgets.Tile("Fan-out, waiting", link="/fanout")

    def show() -> None:
        metrics = visit.sampler.metrics
        if metrics is None:
            return
        mq, ecq, sdv = metrics.mq, metrics.ecq, metrics.sdv
        waiting = sum(one.depth for one in metrics.queue_metrics)
        note = f"{human.count(waiting)} messages wait"
        queues.set(human.count(metrics.queues), f"{metrics.queues:,}", note)
        waiting = sum(one.messages for one in mq.named.values())
        note = f"{human.count(waiting)} messages wait"
        message_queues.set(human.count(mq.queues), f"{mq.queues:,}", note)
        mailboxes.set(human.count(ecq.queues), f"{ecq.queues:,}", f"{ecq.attached:,} read now")
        note = f"{sdv.inflight:,} in flight"
        fanout.set(human.count(sdv.pending), f"{sdv.pending:,} rows", note)

    show()
    ui.timer(REFRESH_S, show)
