"""One durable queue: how it is doing, its messages, its dead letters, its settings."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import msgspec
from nicegui import ui

from queuelake import names
from queuelake.admin.console import human, letters, peek, queue_forms, widgets
from queuelake.admin.console.charts import AMBER, BLUE, GREEN, VIOLET, Chart, Line
from queuelake.admin.console.shell import belongs_to, link_to, page
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services
from queuelake.control_queues import ITEMS_PER_PAGE_MAX, ConsumerInfo, QueueInfo, QueueStats

REFRESH_S = 1.0
POINTS_MAX = 300

belongs_to("/queue", "/queues")


@page("/queue", "Queue")
async def queue(visit: Visit, name: str = "", tab: str = "state") -> None:
    bare = names.bare_name(name)
    info = await visit.do(Services.queue, bare)
    stats = await visit.do(Services.queue_stats, bare)
    ui.page_title(f"{info.name} · Queuelake")
    with widgets.title(info.name, _described(info)):
        _actions(visit, bare, info)
    with ui.tabs().props("dense no-caps align=left inline-label") as tabs:
        ui.tab("state", "State", icon="insights")
        ui.tab("messages", "Messages", icon="mail")
        dead = ui.tab("letters", "Dead letters", icon="report")
        ui.tab("settings", "Settings", icon="tune")
    tabs.classes("ql-tabs")
    with ui.tab_panels(tabs, value=tab, animated=False).classes("ql-panels"):
        with ui.tab_panel("state"):
            state = State(visit, bare)
        with ui.tab_panel("messages"):
            peek.messages(visit, bare, info.settings.partitions)
        with ui.tab_panel("letters"):
            letters.letters(visit, bare)
        with ui.tab_panel("settings"):
            _settings(info)
    badge = _badge(dead)

    async def refresh() -> None:
        found = await visit.look(Services.queue_stats, bare)
        page_of = await visit.look(Services.queue_consumers, bare, ITEMS_PER_PAGE_MAX, "")
        state.show(found, page_of.consumers)
        badge.set_text(human.count(found.dlq))
        badge.set_visibility(found.dlq > 0)

    state.show(stats, [])
    ui.timer(REFRESH_S, refresh)


def _badge(tab: ui.tab) -> ui.badge:
    with tab:
        made = ui.badge("").props("color=negative rounded")
    made.set_visibility(False)
    return made


def _described(info: QueueInfo) -> str:
    kind = {"classic": "durable queue", "quorum": "quorum queue"}.get(info.settings.type, "stream")
    made = f", made {human.ago(info.created_at_ms)}" if info.created_at_ms else ""
    if info.settings.type == "quorum":
        return f"{kind}{made}"
    ordered = {"none": "no order", "partition": "ordered by key", "strict": "strictly ordered"}
    order = ordered[info.settings.ordering]
    return f"{kind}, {info.settings.partitions} partitions, {order}{made}"


def _actions(visit: Visit, name: str, info: QueueInfo) -> None:
    async def change() -> None:
        if await queue_forms.configure(visit, info):
            ui.navigate.reload()

    async def purge() -> None:
        stats = await visit.do(Services.queue_stats, name)
        text = (
            f"This deletes the {stats.depth:,} messages of {info.name}, but for those which "
            "consumers have in hand. It cannot be undone."
        )
        asked = widgets.confirm("Purge this queue?", text, action="Purge", type_first=name)
        if await asked:
            purged = await visit.do(Services.purge_queue, name)
            widgets.say(f"{purged.purged:,} messages are deleted")

    async def delete() -> None:
        if await queue_forms.delete(visit, name, await visit.do(Services.queue_stats, name)):
            ui.navigate.to("/queues")

    if visit.may(Services.publish_message):
        ui.button("Publish", icon="send", on_click=lambda: peek.publish(visit, name))
    if visit.may(Services.configure_queue):
        ui.button("Settings", icon="tune", on_click=change).props("outline")
    if visit.may(Services.purge_queue):
        with ui.button(icon="more_vert").props('flat round aria-label="More"'), ui.menu():
            widgets.menu_item("Purge …", purge)
            widgets.menu_item("Delete …", delete)


class State:
    """Figures and charts which move; partitions, groups and consumers."""

    def __init__(self, visit: Visit, name: str) -> None:
        self._points: deque[tuple[int, QueueStats]] = deque(maxlen=POINTS_MAX)
        with ui.column().classes("ql-stack"):
            with ui.element("div").classes("ql-tiles"):
                self._tiles = {
                    label: widgets.Tile(label) for label in _figures(QueueStats(name, 0))
                }
            with ui.element("div").classes("ql-grid"):
                lines = [Line("waiting", AMBER), Line("in flight", VIOLET)]
                self._depth = Chart("Messages", lines, "count")
                lines = [Line("in", BLUE), Line("out", GREEN)]
                self._rates = Chart("Rates", lines, "rate")
            self._groups = Groups(visit, name)
            with widgets.card("Partitions"):
                self._partitions = widgets.table(_PARTITION_COLUMNS, [], "partition", pagination=10)

    def show(self, stats: QueueStats, consumers: list[ConsumerInfo]) -> None:
        for label, (value, exact) in _figures(stats).items():
            self._tiles[label].set(value, exact)
        self._points.append((int(time.time() * 1000), stats))
        times = [at for at, _ in self._points]
        found = [one for _, one in self._points]
        self._depth.show(times, [[one.depth for one in found], [one.in_flight for one in found]])
        rates = [one.rates for one in found]
        entered = [round(one.enqueue_per_s, 1) for one in rates]
        self._rates.show(times, [entered, [round(one.dequeue_per_s, 1) for one in rates]])
        self._groups.show(stats, consumers)
        widgets.show_rows(self._partitions, _partition_rows(stats, consumers))


def _figures(stats: QueueStats) -> dict[str, tuple[str, str]]:
    def latency(seconds: float | None) -> str:
        return human.NONE if seconds is None else human.duration(seconds)

    exact = f"50 %: {latency(stats.latency_p50_s)}, 99 %: {latency(stats.latency_p99_s)}"
    return {
        "Waiting": (human.count(stats.depth), f"{stats.depth:,}"),
        "In flight": (human.count(stats.in_flight), f"{stats.in_flight:,}"),
        "Retrying": (human.count(stats.retrying), f"{stats.retrying:,}"),
        "Delayed": (human.count(stats.delayed), f"{stats.delayed:,}"),
        "Dead letters": (human.count(stats.dlq), f"{stats.dlq:,}"),
        "In": (human.rate(stats.rates.enqueue_per_s), f"{stats.enqueued_total:,} in all"),
        "Out": (human.rate(stats.rates.dequeue_per_s), f"{stats.dequeued_total:,} in all"),
        "Time to delivery": (latency(stats.latency_p50_s), exact),
    }


class Groups:
    """Consumer groups with their lag, and who is in them."""

    def __init__(self, visit: Visit, name: str) -> None:
        self._visit = visit
        self._name = name
        with widgets.card("Consumer groups"):
            opens = visit.may(Services.delete_group)
            columns = [*_GROUP_COLUMNS, Column("remove", "", opens=True)]
            self._groups = widgets.table(
                columns if opens else _GROUP_COLUMNS, [], "group", on_open=self._remove
            )
            self._empty = widgets.empty(
                "group", "Nobody has consumed from it", f"Subscribe to {names.address(name)}."
            )
            self._consumers = widgets.table(_CONSUMER_COLUMNS, [], "key", pagination=10)

    def show(self, stats: QueueStats, consumers: list[ConsumerInfo]) -> None:
        rows = [
            {
                "group": one.group,
                "lag": human.count(one.lag),
                "consumers": one.consumers,
                "in_flight": human.count(one.in_flight),
                "retrying": human.count(one.retrying),
                "remove": "" if one.consumers else "forget",
            }
            for one in stats.groups
        ]
        widgets.show_rows(self._groups, rows)
        self._groups.set_visibility(bool(rows))
        self._empty.set_visibility(not rows)
        widgets.show_rows(self._consumers, [_consumer_row(one) for one in consumers])
        self._consumers.set_visibility(bool(consumers))

    async def _remove(self, row: dict[str, Any]) -> None:
        group = str(row["group"])
        text = f"The group {group} loses its place: whoever joins it later starts anew."
        if await widgets.confirm("Forget this group?", text, action="Forget"):
            await self._visit.do(Services.delete_group, self._name, group)
            widgets.say(f"The group {group} is forgotten")


_GROUP_COLUMNS = [
    Column("group", "Group"),
    Column("lag", "Lag", number=True),
    Column("consumers", "Consumers", number=True),
    Column("in_flight", "In flight", number=True, minor=True),
    Column("retrying", "Retrying", number=True, minor=True),
]
_CONSUMER_COLUMNS = [
    Column("client_id", "Consumer", link="link"),
    Column("group", "Group", minor=True),
    Column("partitions", "Partitions"),
    Column("held", "Held", number=True),
    Column("heartbeat", "Last heard of", exact="heartbeat_exact", minor=True),
]
_PARTITION_COLUMNS = [
    Column("partition", "Partition", sortable=True),
    Column("depth", "Waiting", number=True, sortable=True),
    Column("first", "First offset", number=True, minor=True),
    Column("next", "Next offset", number=True, minor=True),
    Column("consumers", "Consumers"),
]


def _consumer_row(one: ConsumerInfo) -> dict[str, Any]:
    return {
        "key": f"{one.group} {one.client_id}",
        "client_id": one.client_id,
        "link": link_to("/client", id=one.client_id),
        "group": one.group,
        "partitions": human.ranges(one.partitions),
        "held": human.count(one.held),
        "heartbeat": human.ago(one.last_heartbeat_ms),
        "heartbeat_exact": human.moment(one.last_heartbeat_ms),
    }


def _partition_rows(stats: QueueStats, consumers: list[ConsumerInfo]) -> list[dict[str, Any]]:
    owners: dict[int, list[str]] = {}
    for one in consumers:
        for number in one.partitions:
            owners.setdefault(number, []).append(one.client_id)
    return [
        {
            "partition": one.partition,
            "depth": one.depth,
            "first": f"{one.first_offset:,}",
            "next": f"{one.next_offset:,}",
            "consumers": ", ".join(owners.get(one.partition, [])) or human.NONE,
        }
        for one in stats.partitions
    ]


def _settings(info: QueueInfo) -> None:
    """All settings in force; those which were set for this queue stand out."""
    rows: list[dict[str, Any]] = []
    _collect(rows, msgspec.to_builtins(info.settings), info.configured, "")
    columns = [
        Column("key", "Setting"),
        Column("value", "Value"),
        Column("source", "", minor=True),
    ]
    with widgets.card("Settings in force"):
        widgets.table(columns, rows, "key", pagination=0)


def _collect(rows: list[dict[str, Any]], tree: Any, own: Any, prefix: str) -> None:
    for key, value in tree.items():
        mine = own.get(key) if isinstance(own, dict) else None
        if isinstance(value, dict):
            _collect(rows, value, mine, f"{prefix}{key}.")
            continue
        is_own = isinstance(own, dict) and key in own
        rows.append(
            {
                "key": f"{prefix}{key}",
                "value": widgets.worded(value),
                "source": "set for this queue" if is_own else "default",
                "value_class": "ql-strong" if is_own else "",
                "source_class": "" if is_own else "ql-soft",
            }
        )
