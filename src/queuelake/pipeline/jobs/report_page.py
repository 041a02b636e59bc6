"""The report as one HTML file: figures, charts, tables. Nothing in it is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape

from queuelake.pipeline.jobs.report_charts import (
    SERIES_MAX,
    Series,
    bar_chart,
    column_chart,
    line_chart,
    shorten,
)
from queuelake.pipeline.jobs.report_figures import COUNTS, Figures, Row, by_reason
from queuelake.pipeline.jobs.report_style import STYLE

REASONS_MAX = 12
WORDS = {
    "enqueued": "In",
    "delivered": "Delivered",
    "acked": "Acknowledged",
    "retried": "Retries",
    "dead_lettered": "Dead letters",
    "expired": "Expired",
    "dropped": "Dropped",
}
BAD = frozenset({"dead_lettered", "dropped"})


def page(figures: Figures, title: str, made: datetime) -> str:
    """The whole page."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<header><h1>{escape(title)}</h1><p class="note">{_period(figures)}</p></header>
{_tiles(figures.totals)}
{_charts(figures)}
{_queues(figures)}
{_dead_letters(figures)}
{_hours(figures)}
<footer>Made {made:%Y-%m-%d %H:%M} UTC by queuelake. All times are UTC. Figures above are sums over
all queues: a dead letter comes in a second time, to its dead-letter queue. Retries are deliveries
which were nacked or timed out. Latency is from publish to delivery; a p50 is the median of its
minutes, weighted by deliveries, a p99 that of the worst minute.</footer>
</main>
</body>
</html>
"""


def _period(figures: Figures) -> str:
    since, until = figures.since, figures.until
    end = f"{until:%H:%M}" if since.date() == until.date() else f"{until:%a %d %b %Y, %H:%M}"
    count = len(figures.queues) + figures.queues_left_out
    queues = "1 queue" if count == 1 else f"{count:,} queues"
    return f"{since:%a %d %b %Y, %H:%M} to {end} UTC, {queues}"


def _tiles(totals: Row) -> str:
    tiles = [
        _tile("Messages in", f"{totals.enqueued:,}", "enqueued"),
        _tile("Delivered", f"{totals.delivered:,}", "delivered"),
        _tile("Acknowledged", f"{totals.acked:,}", "acked"),
        _tile("Retries", f"{totals.retried:,}", "retried"),
        _tile("Dead letters", f"{totals.dead_lettered:,}", "dead_lettered", totals.dead_lettered),
        _tile("Waiting now", f"{totals.depth:,}", "depth"),
        _tile("Latency p50", _latency_html(totals.latency_p50_ms), "latency_p50_ms"),
        _tile("Latency p99", _latency_html(totals.latency_p99_ms), "latency_p99_ms"),
    ]
    return f'<div class="figures">{"".join(tiles)}</div>'


def _tile(label: str, figure: str, name: str, bad: int = 0) -> str:
    kind = "card bad" if bad else "card"
    return (
        f'<div class="{kind}"><div class="label">{label}</div>'
        f'<div class="figure" id="{name}">{figure}</div></div>'
    )


def _charts(figures: Figures) -> str:
    points = figures.points
    times = [point.ts for point in points]
    per = {1: "minute", 60: "hour", 1440: "day"}[figures.point_minutes]
    charts = [
        _chart(
            "Throughput",
            f"Messages per {per}",
            line_chart(
                times,
                [
                    Series("in", [p.enqueued for p in points]),
                    Series("delivered", [p.delivered for p in points]),
                    Series("acknowledged", [p.acked for p in points]),
                ],
                f"messages per {per}",
                filled=True,
            ),
        ),
        _chart(
            "Delivery latency",
            f"Milliseconds from publish to delivery, each {per}, logarithmic",
            line_chart(
                times,
                [
                    Series("p50", [p.latency_p50_ms for p in points]),
                    Series("p99", [p.latency_p99_ms for p in points]),
                ],
                "ms",
                decades=True,
            ),
        ),
        _chart(
            "Depth over time",
            f"Messages waiting at the end of each {per}, {_deepest(figures)}",
            line_chart(times, _depth_series(figures, times), "messages"),
        ),
        _chart(
            "What went wrong",
            f"Messages per {per}",
            _failures(times, points, f"messages per {per}"),
        ),
    ]
    return f'<div class="charts">{"".join(charts)}</div>'


def _failures(times: Sequence[datetime], points: Sequence[Row], unit: str) -> str:
    series = [
        Series("retries", [p.retried for p in points]),
        Series("dead letters", [p.dead_lettered for p in points]),
        Series("expired", [p.expired for p in points]),
        Series("dropped", [p.dropped for p in points]),
    ]
    happened = [one for one in series if any(one.values)]
    if not happened:
        return '<p class="empty">Nothing in this period.</p>'
    return column_chart(times, happened, unit)


def _deepest(figures: Figures) -> str:
    if len(figures.depths) < len(figures.queues) + figures.queues_left_out:
        return f"the {len(figures.depths)} deepest queues"
    return "each queue"


def _depth_series(figures: Figures, times: Sequence[datetime]) -> list[Series]:
    """A queue of which nothing was written for a while is as deep as it was."""
    series = []
    for queue, points in list(figures.depths.items())[:SERIES_MAX]:
        known = dict(points)
        last: int | None = None
        values: list[float | None] = []
        for time in times:
            last = known.get(time, last)
            values.append(last)
        series.append(Series(queue, values))
    return series


def _chart(title: str, note: str, chart: str) -> str:
    return (
        f'<section class="card"><h2>{title}</h2><p class="note">{escape(note)}</p>{chart}</section>'
    )


def _queues(figures: Figures) -> str:
    rows = [_cells(shorten(row.queue, 80), row) for row in figures.queues]
    left = _left_out(figures.queues_left_out, "queues with less traffic")
    return (
        '<section class="card wide"><h2>Queues</h2>'
        f'<p class="note">Over the whole period; the busiest first.{left}</p>'
        f"{_table(['Queue'], rows, 'queues')}</section>"
    )


def _dead_letters(figures: Figures) -> str:
    reasons = by_reason(figures.dead_letters)
    if not reasons:
        inside = '<p class="empty">None in this period.</p>'
    else:
        inside = (
            f'<div class="pair">{bar_chart(reasons[:REASONS_MAX])}{_reasons_table(figures)}</div>'
        )
    return (
        '<section class="card wide"><h2>Dead letters by reason</h2>'
        f'<p class="note">Messages which were given up, from the events of the queues.</p>{inside}'
        "</section>"
    )


def _reasons_table(figures: Figures) -> str:
    rows = "".join(
        f'<tr><td class="text">{escape(one.queue)}</td><td class="text">{escape(one.reason)}</td>'
        f"<td>{one.count:,}</td></tr>"
        for one in figures.dead_letters
    )
    return (
        '<div class="scroll"><table id="dead_letters"><thead><tr><th class="text">Queue</th>'
        '<th class="text">Reason</th><th>Messages</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _hours(figures: Figures) -> str:
    rows = [
        f'<td class="text">{row.ts:%Y-%m-%d %H:%M}</td>' + _cells(row.queue, row)
        for row in figures.hours
    ]
    left = _left_out(figures.hours_left_out, "rows")
    return (
        '<section class="card wide"><details><summary>Each queue, each hour</summary>'
        f'<p class="note">Hours in which nothing happened are left out.{left}</p>'
        f"{_table(['Hour', 'Queue'], rows, 'hours')}</details></section>"
    )


def _left_out(count: int, what: str) -> str:
    return f" {count:,} {what} are not shown." if count else ""


def _table(names: list[str], rows: list[str], name: str) -> str:
    heads = [f'<th class="text">{one}</th>' for one in names]
    heads += [f"<th>{WORDS[count]}</th>" for count in COUNTS]
    heads += ["<th>Waiting</th>", "<th>p50</th>", "<th>p99</th>"]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table id="{name}"><thead><tr>{"".join(heads)}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cells(queue: str, row: Row) -> str:
    cells = [f'<td class="text">{escape(queue)}</td>']
    for name in COUNTS:
        value: int = getattr(row, name)
        kind = ' class="bad"' if value and name in BAD else ""
        cells.append(f"<td{kind}>{value:,}</td>")
    cells.append(f"<td>{row.depth:,}</td>")
    cells += [f"<td>{_latency(value)}</td>" for value in (row.latency_p50_ms, row.latency_p99_ms)]
    return "".join(cells)


def _latency(ms: float | None) -> str:
    value, unit = _scaled(ms)
    return f"{value} {unit}".rstrip()


def _latency_html(ms: float | None) -> str:
    value, unit = _scaled(ms)
    return f"{value} <small>{unit}</small>" if unit else value


def _scaled(ms: float | None) -> tuple[str, str]:
    """A time in a unit in which it has few digits."""
    if ms is None:
        return "-", ""
    if ms < 1000:
        return (f"{ms:.1f}" if ms < 10 else f"{ms:.0f}"), "ms"
    if ms < 120_000:
        return f"{ms / 1000:.3g}", "s"
    return f"{ms / 60_000:,.3g}", "min"
