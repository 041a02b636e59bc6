"""The first page: how the broker is, and how the last minutes were."""

from __future__ import annotations

from nicegui import ui

from queuelake.admin.console import human, widgets
from queuelake.admin.console.alarms import Alarm, alarms
from queuelake.admin.console.charts import AMBER, BLUE, GREEN, VIOLET, Chart, Line
from queuelake.admin.console.shell import link_to, page
from queuelake.admin.console.visit import Visit
from queuelake.admin.services import Services

REFRESH_S = 1.0


@page("/", "Overview", icon="space_dashboard")
async def overview(visit: Visit) -> None:
    widgets.title("Overview")
    alarms_shown = Alarms()
    with ui.element("div").classes("ql-tiles"):
        figures = Figures()
    with ui.element("div").classes("ql-grid"):
        charts = Charts()

    def refresh() -> None:
        alarms_shown.show(visit)
        figures.show(visit)
        charts.show(visit)

    ui.timer(REFRESH_S, refresh)
    status = await visit.do(Services.status)
    with widgets.card("This broker"):
        widgets.facts(
            [
                ("Version", f"{status.version}{'' if status.compiled else ', interpreted'}"),
                ("Running since", human.moment(status.started_at_ms)),
                *((f"Listener {name}", url) for name, url in status.addresses.items()),
            ]
        )


class Alarms:
    """What to look at; one quiet line while there is nothing."""

    def __init__(self) -> None:
        self._shown: list[Alarm] | None = None
        self._place = ui.column().classes("ql-alarms").props('role="status"')

    def show(self, visit: Visit) -> None:
        found = alarms(visit.sampler)
        if found == self._shown or visit.sampler.metrics is None:
            return
        self._shown = found
        self._place.clear()
        with self._place:
            if not found:
                with ui.row().classes("ql-alarm ql-alarm-good"):
                    ui.icon("check_circle")
                    ui.label("All is well")
            for one in found:
                with ui.row().classes("ql-alarm" + (" ql-alarm-bad" if one.is_bad else "")):
                    ui.icon("error" if one.is_bad else "report")
                    if one.queue:
                        tab = "state" if one.is_bad else "letters"
                        ui.link(one.text, link_to("/queue", name=one.queue, tab=tab))
                    else:
                        ui.label(one.text)


class Figures:
    """What is so now."""

    def __init__(self) -> None:
        self._received = widgets.Tile("Messages in")
        self._sent = widgets.Tile("Messages out")
        self._depth = widgets.Tile("Waiting in queues")
        self._in_flight = widgets.Tile("In flight")
        self._connections = widgets.Tile("Connections")
        self._commit = widgets.Tile("Commit")
        self._store = widgets.Tile("Store")
        self._memory = widgets.Tile("Memory")

    def show(self, visit: Visit) -> None:
        points, metrics = visit.sampler.points, visit.sampler.metrics
        if not points or metrics is None:
            return
        last = points[-1]
        self._received.set(
            human.rate(last.received_per_s), note=_traffic(last.received_bytes_per_s)
        )
        self._sent.set(human.rate(last.sent_per_s), note=_traffic(last.sent_bytes_per_s))
        self._depth.set(human.count(last.depth), f"{last.depth:,}", f"{metrics.queues:,} queues")
        self._in_flight.set(human.count(last.in_flight), f"{last.in_flight:,}")
        note = f"{metrics.sessions:,} sessions"
        self._connections.set(human.count(last.connections), f"{last.connections:,}", note)
        commits = [one.commit_ms for one in points if one.commit_ms is not None]
        lag = f"loop lag {human.duration(last.loop_lag_ms / 1000)}"
        self._commit.set(human.duration(commits[-1] / 1000) if commits else "—", note=lag)
        self._store.set(human.size(last.store_bytes), f"{last.store_bytes:,} bytes")
        self._memory.set(human.size(last.memory_bytes), f"{last.memory_bytes:,} bytes")


def _traffic(bytes_per_s: float) -> str:
    return f"{human.size(bytes_per_s)}/s"


class Charts:
    """How it went."""

    def __init__(self) -> None:
        self._messages = Chart("Messages", [Line("in", BLUE), Line("out", GREEN)], "rate")
        lines = [Line("waiting", AMBER), Line("in flight", VIOLET)]
        self._depth = Chart("Queues", lines, "count")
        self._connections = Chart("Connections", [Line("connections", BLUE)], "count")
        self._commit = Chart("Commit latency", [Line("mean", VIOLET)], "ms")

    def show(self, visit: Visit) -> None:
        points = list(visit.sampler.points)
        times = [one.at_ms for one in points]
        received = [round(one.received_per_s, 1) for one in points]
        self._messages.show(times, [received, [round(one.sent_per_s, 1) for one in points]])
        self._depth.show(times, [[one.depth for one in points], [one.in_flight for one in points]])
        self._connections.show(times, [[one.connections for one in points]])
        commits = [None if one.commit_ms is None else round(one.commit_ms, 3) for one in points]
        self._commit.show(times, [commits])
