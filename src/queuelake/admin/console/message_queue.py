"""One message queue: filled from a topic filter, shared by its subscribers."""

from __future__ import annotations

import time
from collections import deque

import msgspec
from nicegui import ui

from queuelake.admin.console import human, peek, queue_forms, widgets
from queuelake.admin.console.charts import AMBER, VIOLET, Chart, Line
from queuelake.admin.console.shell import belongs_to, page
from queuelake.admin.console.visit import Visit
from queuelake.admin.services import Services
from queuelake.control_mq import MqInfo, MqStats

REFRESH_S = 1.0
POINTS_MAX = 300

belongs_to("/message-queue", "/queues")


@page("/message-queue", "Message queue")
async def message_queue(visit: Visit, name: str = "") -> None:
    info = await visit.do(Services.message_queue, name)
    ui.page_title(f"{info.name} · Queuelake")
    kind = "last-value queue" if info.is_lastvalue else "message queue"
    with widgets.title(info.name, f"{kind}, filled from {info.topic_filter}"):
        _actions(visit, info)
    with ui.element("div").classes("ql-tiles"):
        tiles = {label: widgets.Tile(label) for label in _figures(MqStats())}
    chart = Chart("Messages", [Line("waiting", AMBER), Line("in flight", VIOLET)], "count")
    points: deque[tuple[int, MqStats]] = deque(maxlen=POINTS_MAX)
    peek.queued_messages(visit, info.name, info.topic_filter)
    with widgets.card("Settings"):
        told = msgspec.to_builtins(info)
        told["data_retention_period"] = human.duration(info.data_retention_period / 1000)
        limits = told.pop("limits")
        widgets.facts([(key.replace("_", " "), value) for key, value in (told | limits).items()])

    async def refresh() -> None:
        stats = await visit.look(Services.message_queue_stats, info.name)
        for label, (value, exact) in _figures(stats).items():
            tiles[label].set(value, exact)
        points.append((int(time.time() * 1000), stats))
        found = [one for _, one in points]
        values = [[one.messages for one in found], [one.in_flight for one in found]]
        chart.show([at for at, _ in points], values)

    await refresh()
    ui.timer(REFRESH_S, refresh, immediate=False)


def _figures(stats: MqStats) -> dict[str, tuple[str, str]]:
    oldest = human.duration(stats.oldest_age_ms / 1000) if stats.messages else human.NONE
    return {
        "Messages": (human.count(stats.messages), f"{stats.messages:,}"),
        "In flight": (human.count(stats.in_flight), f"{stats.in_flight:,}"),
        "Subscribers": (human.count(stats.subscribers), f"{stats.subscribers:,}"),
        "Oldest": (oldest, f"{stats.oldest_age_ms:,} ms"),
        "Size": (human.size(stats.bytes), f"{stats.bytes:,} bytes"),
        "Inserted": (human.count(stats.inserted), f"{stats.inserted:,}"),
        "Delivered": (human.count(stats.delivered), f"{stats.delivered:,}"),
        "Dropped": (human.count(stats.dropped), f"{stats.dropped:,}, expired {stats.expired:,}"),
    }


def _actions(visit: Visit, info: MqInfo) -> None:
    async def change() -> None:
        if await queue_forms.configure_message_queue(visit, info):
            ui.navigate.reload()

    async def delete() -> None:
        stats = await visit.do(Services.message_queue_stats, info.name)
        if await queue_forms.delete_message_queue(visit, info.name, stats.messages):
            ui.navigate.to("/queues")

    if visit.may(Services.update_message_queue):
        ui.button("Settings", icon="tune", on_click=change).props("outline")
    if visit.may(Services.delete_message_queue):
        ui.button("Delete …", icon="delete", on_click=delete).props("flat color=negative")
