"""Charts as SVG text: lines over time, columns over time, and bars by name.

Colours and fonts are those of the page's style sheet (classes `s0` to `s7`), so that a chart
follows light and dark. Sizes are units of the view box; the page scales it to its width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape

WIDTH, HEIGHT = 560, 230
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 10, 28
SERIES_MAX = 8  # as many colours as can be told apart
BAR_HEIGHT, BAR_GAP, NAME_WIDTH = 20, 12, 150
# Steps of a time axis which people read easily.
TIME_STEPS = (
    *(timedelta(minutes=m) for m in (1, 2, 5, 10, 15, 30)),
    *(timedelta(hours=h) for h in (1, 2, 3, 6, 12)),
    *(timedelta(days=d) for d in (1, 2, 7, 14, 28, 91, 182, 365)),
)
TIME_TICKS_MAX = 7


@dataclass(frozen=True, slots=True)
class Series:
    """Values at the times of the chart; None where there is nothing to say."""

    name: str
    values: Sequence[float | None]


def line_chart(
    times: Sequence[datetime],
    series: Sequence[Series],
    unit: str,
    *,
    filled: bool = False,
    decades: bool = False,
) -> str:
    """Lines over time; a gap where a value is missing. `filled`: the area below the first line, for
    lines which may hide each other; `decades`: each step of the axis is ten times the last."""
    frame = _Frame(times, [value for one in series for value in one.values], unit, decades)
    parts = [frame.axes()]
    if filled:
        parts.append(frame.area(series[0].values))
    for number, one in enumerate(series[:SERIES_MAX]):
        points: list[str] = []
        for time, value in zip(times, one.values, strict=True):
            if value is None:
                parts.append(_line(points, number))
                points = []
            else:
                points.append(f"{frame.x(time):.1f},{frame.y(value):.1f}")
        parts.append(_line(points, number))
    parts.append(frame.columns([(one.name, one.values) for one in series[:SERIES_MAX]]))
    return _svg("".join(parts), HEIGHT) + _legend([one.name for one in series[:SERIES_MAX]])


def column_chart(times: Sequence[datetime], series: Sequence[Series], unit: str) -> str:
    """Columns over time, the series on top of each other; named also when there is only one."""
    sums = [sum(one.values[i] or 0 for one in series) for i in range(len(times))]
    frame = _Frame(times, sums, unit)
    width = max(1.0, frame.step * 0.72)
    parts = [frame.axes()]
    for i, time in enumerate(times):
        below = 0.0
        for number, one in enumerate(series[:SERIES_MAX]):
            value = one.values[i] or 0
            if value:
                top, bottom = frame.y(below + value), frame.y(below)
                parts.append(
                    f'<rect class="fill s{number}" x="{frame.x(time) - width / 2:.1f}" '
                    f'y="{top:.1f}" width="{width:.1f}" height="{max(bottom - top, 0.5):.1f}"/>'
                )
                below += value
    parts.append(frame.columns([(one.name, one.values) for one in series[:SERIES_MAX]]))
    return _svg("".join(parts), HEIGHT) + _legend(
        [one.name for one in series[:SERIES_MAX]], alone=True
    )


def bar_chart(bars: Sequence[tuple[str, float]]) -> str:
    """One bar for each name, the value at its end."""
    most = max((value for _, value in bars), default=0) or 1
    room = WIDTH - NAME_WIDTH - 90
    parts: list[str] = []
    for row, (name, value) in enumerate(bars):
        y = row * (BAR_HEIGHT + BAR_GAP) + 4
        length = max(2.0, room * value / most)
        middle = y + BAR_HEIGHT / 2 + 4
        parts.append(
            f'<text class="name" x="{NAME_WIDTH - 10}" y="{middle}">{escape(shorten(name, 28))}'
            f"<title>{escape(name)}</title></text>"
            f'<rect class="fill s0" rx="3" x="{NAME_WIDTH}" y="{y}" width="{length:.1f}" '
            f'height="{BAR_HEIGHT}"/>'
            f'<text class="value" x="{NAME_WIDTH + length + 8:.1f}" y="{middle}">'
            f"{number(value)}</text>"
        )
    return _svg("".join(parts), max(1, len(bars)) * (BAR_HEIGHT + BAR_GAP) + 8)


class _Frame:
    """The scales of a chart over time, and what belongs to no single series."""

    def __init__(
        self,
        times: Sequence[datetime],
        values: Sequence[float | None],
        unit: str,
        decades: bool = False,
    ) -> None:
        self._times = times
        self._unit = unit
        known = [value for value in values if value is not None]
        self._ticks = decade_ticks(known) if decades else even_ticks(max(known, default=0))
        self._decades = decades
        # Half a step of room on both sides, so that the first and last column fit.
        count = len(times)
        self._step_t = (times[-1] - times[0]) / (count - 1) if count > 1 else timedelta(minutes=1)
        self._from = times[0] - self._step_t / 2
        self._span_s = (self._step_t * count).total_seconds()
        self.step = (WIDTH - LEFT - RIGHT) / count

    def x(self, time: datetime) -> float:
        share = (time - self._from).total_seconds() / self._span_s
        return LEFT + (WIDTH - LEFT - RIGHT) * share

    def y(self, value: float) -> float:
        least, most = self._ticks[0], self._ticks[-1]
        if self._decades:
            share = math.log10(max(value, least) / least) / math.log10(most / least)
        else:
            share = value / most
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    def axes(self) -> str:
        parts = []
        for i, value in enumerate(self._ticks):
            y = self.y(value)
            kind = "base" if i == 0 else "grid"
            parts.append(
                f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text class="tick y" x="{LEFT - 8}" y="{y + 4:.1f}">{number(value)}</text>'
            )
        for tick, words in time_ticks(self._times[0], self._times[-1]):
            x = self.x(tick)
            parts.append(
                f'<line class="base" x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT - BOTTOM}" '
                f'y2="{HEIGHT - BOTTOM + 5}"/>'
                f'<text class="tick x" x="{x:.1f}" y="{HEIGHT - 9}">{words}</text>'
            )
        return "".join(parts)

    def area(self, values: Sequence[float | None]) -> str:
        points = [
            f"{self.x(time):.1f},{self.y(value or 0):.1f}"
            for time, value in zip(self._times, values, strict=True)
        ]
        floor = HEIGHT - BOTTOM
        ends = f"{self.x(self._times[-1]):.1f},{floor} {self.x(self._times[0]):.1f},{floor}"
        return f'<polygon class="area s0" points="{" ".join(points)} {ends}"/>'

    def columns(self, series: Sequence[tuple[str, Sequence[float | None]]]) -> str:
        """Unseen columns which say the values of their time under the mouse."""
        parts = []
        for i, time in enumerate(self._times):
            lines = [f"{time:%Y-%m-%d %H:%M} UTC"]
            for name, values in series:
                value = values[i]
                lines.append(f"{name}: {'none' if value is None else number(value)}")
            x = self.x(time) - self.step / 2
            parts.append(
                f'<rect class="hover" x="{x:.1f}" y="{TOP}" width="{self.step:.1f}" '
                f'height="{HEIGHT - TOP - BOTTOM}"><title>{escape(chr(10).join(lines))}\n'
                f"({escape(self._unit)})</title></rect>"
            )
        return "".join(parts)


def _line(points: list[str], number: int) -> str:
    if not points:
        return ""
    if len(points) == 1:
        x, y = points[0].split(",")
        return f'<circle class="fill s{number}" cx="{x}" cy="{y}" r="2.5"/>'
    return f'<polyline class="line s{number}" points="{" ".join(points)}"/>'


def _svg(inside: str, height: int) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{inside}</svg>'


def _legend(names: Sequence[str], alone: bool = False) -> str:
    if len(names) < 2 and not alone:
        return ""
    entries = "".join(
        f'<span><i class="s{i}"></i>{escape(shorten(name, 40))}</span>'
        for i, name in enumerate(names)
    )
    return f'<div class="legend">{entries}</div>'


def even_ticks(most: float) -> list[float]:
    """Ticks from 0 to `most` or a bit more, a step of 1, 2 or 5 times a power of ten apart."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    step = max(step, 1.0)  # what is counted has no fractions
    return [i * step for i in range(math.ceil(most / step - 1e-9) + 1)]


def decade_ticks(values: Sequence[float]) -> list[float]:
    """Powers of ten around these values."""
    positive = [value for value in values if value > 0] or [1.0]
    least = math.floor(math.log10(min(positive)))
    most = max(math.ceil(math.log10(max(positive))), least + 1)
    return [10.0**power for power in range(least, most + 1)]


def time_ticks(first: datetime, last: datetime) -> list[tuple[datetime, str]]:
    """At most `TIME_TICKS_MAX` round times from first to last, and what to write below them."""
    span = last - first
    step = next((s for s in TIME_STEPS if span / s < TIME_TICKS_MAX), TIME_STEPS[-1])
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    tick = epoch + math.ceil((first - epoch) / step) * step
    ticks: list[tuple[datetime, str]] = []
    while tick <= last:
        whole_day = tick.hour == tick.minute == 0
        ticks.append((tick, f"{tick:%d %b}" if whole_day else f"{tick:%H:%M}"))
        tick += step
    return ticks or [(first, f"{first:%d %b %H:%M}")]


def number(value: float) -> str:
    """Short and readable: 1,234 as it is, 12.3k, 4.5M; fractions only of small numbers."""
    for limit, divisor, suffix in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= limit:
            return f"{value / divisor:.3g}{suffix}"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}"


def shorten(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"
