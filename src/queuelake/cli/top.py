"""`queuelake top`: the broker live in a terminal, like top for processes."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

import typer

from queuelake.cli.rest import Rest, over_rest, path
from queuelake.cli.showing import plain_console, table
from queuelake.errors import AnswerError

if TYPE_CHECKING:
    from rich.console import Group

EPILOG = """
Example:

  queuelake top --interval 1
"""
ROWS_MAX = 30
LOOKED_AT_MAX = 100  # queues whose rates are asked for, each look


@over_rest
def top(
    rest: Rest,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.2, help="Seconds between two looks.")
    ] = 2.0,
    count: Annotated[int, typer.Option("--count", min=0, help="Looks; 0: until Ctrl-C.")] = 0,
) -> None:
    """Follow the broker: connections, and the busiest queues with their rates."""
    from rich.live import Live

    console = plain_console()
    looks = 0
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        shown: set[str] = set()
        while True:
            live.update(_page(rest, shown), refresh=True)
            looks += 1
            if looks == count:
                return
            time.sleep(interval_s)


def _page(rest: Rest, shown: set[str]) -> Group:
    """One look; a queue which was `shown` before stays, used or not."""
    from rich.console import Group
    from rich.text import Text

    status = rest.get(path("status"))
    queues = [
        queue
        for queue in rest.pages(path("queues"), "queues")
        if queue["depth"] or queue["consumers"] or queue["name"] in shown
    ]
    queues.sort(key=lambda queue: (not queue["consumers"], -queue["in_flight"], -queue["depth"]))
    found = [_row(rest, queue["name"]) for queue in queues[:LOOKED_AT_MAX]]
    rows = [row for row in found if row is not None]
    shown.update(row[0] for row in rows)
    rows.sort(key=lambda row: (-row[4] - row[5], -row[1]))
    head = (
        f"queuelake {status['version']}  up {_duration(status['uptime_s'])}"
        f"  connections {status['connections']:,}  sessions {status['sessions']:,}"
        f"  subscriptions {status['subscriptions']:,}  retained {status['retained_messages']:,}\n"
    )
    headings = ["queue", "depth", "in flight", "consumers", "in/s", "out/s", "dlq", "p99 ms"]
    return Group(Text(head), table(headings, rows[:ROWS_MAX]))


def _row(rest: Rest, name: str) -> list[Any] | None:
    try:
        stats = rest.get(path("queues", name, "stats"))
    except AnswerError as error:
        if error.http_status == HTTPStatus.NOT_FOUND:  # deleted since it was listed
            return None
        raise
    rates, p99 = stats["rates"], stats["latency_p99_s"]
    return [
        name,
        stats["depth"],
        stats["in_flight"],
        sum(group["consumers"] for group in stats["groups"]),
        rates["enqueue_per_s"],
        rates["dequeue_per_s"],
        stats["dlq"],
        round(p99 * 1000, 1) if p99 is not None else None,
    ]


def _duration(seconds: float) -> str:
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    if hours >= 24:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {int(seconds) % 60} s"
