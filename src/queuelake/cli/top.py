"""`queuelake top`: the broker live in a terminal, like top for processes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from queuelake.cli.rest import Rest, over_rest, path
from queuelake.cli.showing import plain_console, table

if TYPE_CHECKING:
    from rich.console import Group

EPILOG = """
Example:

  queuelake top --interval 1
"""
ROWS_MAX = 30


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
        before: dict[str, Any] = {}
        while True:
            live.update(_page(rest, before), refresh=True)
            looks += 1
            if looks == count:
                return
            time.sleep(interval_s)


def _page(rest: Rest, before: dict[str, Any]) -> Group:
    """One look; rates are differences to what `before` remembers of the last one."""
    from rich.console import Group
    from rich.text import Text

    status = rest.get(path("status"))
    rows = []
    for queue in rest.get(path("queues"), limit=1000)["queues"]:
        if queue["depth"] or queue["consumers"] or queue["name"] in before:
            rows.append(_row(rest, queue["name"]))
            before[queue["name"]] = True
    rows.sort(key=lambda row: (-row[4] - row[5], -row[1]))
    head = (
        f"queuelake {status['version']}  up {_duration(status['uptime_s'])}"
        f"  connections {status['connections']:,}  sessions {status['sessions']:,}"
        f"  subscriptions {status['subscriptions']:,}  retained {status['retained_messages']:,}\n"
    )
    headings = ["queue", "depth", "in flight", "consumers", "in/s", "out/s", "dlq", "p99 ms"]
    return Group(Text(head), table(headings, rows[:ROWS_MAX]))


def _row(rest: Rest, name: str) -> list[Any]:
    stats = rest.get(path("queues", name, "stats"))
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
