"""Charts which move: the last minutes of some figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from nicegui import ui

from queuelake.admin.console import widgets

Unit = Literal["count", "rate", "bytes", "ms"]

BLUE, GREEN, AMBER, VIOLET = "#1c8ba3", "#3fa85a", "#e08a1e", "#7c6fd6"
SOFT = "#8696a1"
WINDOW_MS_MIN, WINDOW_MS_MAX = 30_000, 300_000

_SHORT = "v => v >= 1e6 ? +(v/1e6).toFixed(1) + ' M' : v >= 1e4 ? +(v/1e3).toFixed(1) + ' k' : "
_FORMATS: dict[Unit, str] = {
    "count": _SHORT + "String(+v.toFixed(1))",
    "rate": _SHORT + "+v.toFixed(1) + '/s'",
    "bytes": "v => { const u = ['B','KiB','MiB','GiB','TiB']; let i = 0;"
    " while (v >= 1024 && i < 4) { v /= 1024; i++ } return +v.toFixed(1) + ' ' + u[i] }",
    "ms": "v => v == null ? '—' : +v.toFixed(2) + ' ms'",
}


class Line(NamedTuple):
    name: str
    color: str


class Chart:
    """Lines over time. `show` takes times in milliseconds and one list of values for each line."""

    def __init__(self, heading: str, lines: Sequence[Line], unit: Unit) -> None:
        with widgets.card(heading):
            options = _options(lines, unit)
            self._chart = ui.echart(options).classes("ql-chart")
            self._chart.props["aria-label"] = f"chart: {heading}"

    def show(self, times_ms: Sequence[int], values: Iterable[Sequence[float | None]]) -> None:
        series = [
            {"data": [[at, value] for at, value in zip(times_ms, line, strict=True)]}
            for line in values
        ]
        self._chart.run_chart_method("setOption", {"series": series, "xAxis": _window(times_ms)})


def _window(times_ms: Sequence[int]) -> dict[str, int]:
    """The last minutes; as long as there are few, as many as there are."""
    if not times_ms:
        return {}
    width_ms = min(WINDOW_MS_MAX, max(WINDOW_MS_MIN, times_ms[-1] - times_ms[0]))
    return {"min": times_ms[-1] - width_ms, "max": times_ms[-1]}


def _options(lines: Sequence[Line], unit: Unit) -> dict[str, Any]:
    text = _FORMATS[unit]
    return {
        "animation": False,
        "grid": {"left": 56, "right": 12, "top": 28, "bottom": 24},
        "legend": {
            "top": 0,
            "right": 0,
            "icon": "circle",
            "itemWidth": 8,
            "itemHeight": 8,
            "textStyle": {"color": SOFT},
            "show": len(lines) > 1,
        },
        "tooltip": {"trigger": "axis", ":valueFormatter": text, "confine": True},
        "xAxis": {
            "type": "time",
            "axisLine": {"lineStyle": {"color": SOFT, "opacity": 0.4}},
            "axisLabel": {"color": SOFT, "hideOverlap": True, "formatter": "{HH}:{mm}:{ss}"},
            "splitNumber": 3,
        },
        "yAxis": {
            "type": "value",
            "min": 0,
            "splitNumber": 3,
            "axisLabel": {"color": SOFT, ":formatter": text},
            "splitLine": {"lineStyle": {"color": SOFT, "opacity": 0.2}},
        },
        "series": [_series(line) for line in lines],
    }


def _series(line: Line) -> dict[str, Any]:
    return {
        "name": line.name,
        "type": "line",
        "showSymbol": False,
        "connectNulls": True,
        "lineStyle": {"width": 2, "color": line.color},
        "itemStyle": {"color": line.color},
        "areaStyle": {"color": line.color, "opacity": 0.1},
        "data": [],
    }
