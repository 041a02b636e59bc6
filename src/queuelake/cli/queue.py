"""`queuelake queue`: see and change durable queues, of this machine or another."""

from __future__ import annotations

import base64
import json
import time
from typing import Annotated, Any
from urllib.parse import quote

import typer

from queuelake.cli.progress import watched
from queuelake.cli.rest import AsJson, Rest, Yes, confirm, over_rest, path, queue_names
from queuelake.cli.showing import moment, payload_text, print_json, print_table
from queuelake.errors import RefusedError

EPILOG = """
Examples:

  queuelake queue list
  queuelake queue create tasks/image partitions=4 retry_policy.max_retries=3
  queuelake queue create orders --type quorum delivery_limit=5
  queuelake queue show tasks/image
  queuelake queue peek tasks/image --limit 5 --partition 2 --from 17
  queuelake queue peek '$q/alarms/#'
  queuelake queue watch tasks/image
  queuelake queue list --url http://broker:18083 --key "$KEY" --json
"""

MESSAGE_QUEUE = "$q/"

app = typer.Typer(
    help="Durable queues, $queue/...: list, change, look into.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE", help="With or without $queue/ in front.", autocompletion=queue_names
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Settings, such as partitions=4 or archive=true."),
]
Type = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="classic|stream|quorum",
        help="What it is, until it is deleted.",
    ),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")]
From = Annotated[
    int, typer.Option("--from", min=0, help="The offset to begin with, of a durable queue.")
]
Partition = Annotated[
    int | None, typer.Option("--partition", min=0, help="Only this one of a durable queue.")
]


@app.command("list")
@over_rest
def list_queues(rest: Rest, as_json: AsJson = False) -> None:
    """Every queue: depth, in flight, groups, consumers."""
    queues = list(rest.pages(path("queues"), "queues"))
    if as_json:
        print_json(queues)
        return
    print_table(
        ["queue", "type", "partitions", "depth", "in flight", "groups", "consumers"],
        (
            [
                one["name"],
                one["type"],
                one["partitions"],
                one["depth"],
                one["in_flight"],
                one["groups"],
                one["consumers"],
            ]
            for one in queues
        ),
    )


@app.command()
@over_rest
def show(rest: Rest, name: Name, as_json: AsJson = False) -> None:
    """One queue: state, partitions, groups with their lag, and what was set for it."""
    info, stats = rest.get(path("queues", name)), rest.get(path("queues", name, "stats"))
    if as_json:
        print_json(info | {"stats": stats})
        return
    print(f"{info['name']}: {stats['depth']} messages, {stats['in_flight']} in flight,", end=" ")
    print(f"{stats['retrying']} retrying, {stats['delayed']} delayed, {stats['dlq']} dead letters")
    print(f"set for it: {json.dumps(info['configured'])}\n")
    print_table(
        ["group", "lag", "consumers", "in flight", "retrying"],
        (
            [g["group"], g["lag"], g["consumers"], g["in_flight"], g["retrying"]]
            for g in stats["groups"]
        ),
    )
    print_table(
        ["partition", "depth", "first offset", "next offset"],
        (
            [p["partition"], p["depth"], p["first_offset"], p["next_offset"]]
            for p in stats["partitions"]
        ),
    )


@app.command()
@over_rest
def create(rest: Rest, name: Name, settings: Settings = None, kind: Type = None) -> None:
    """Make a queue; one which is there already is refused."""
    changes = parse_settings(settings or []) | ({"type": kind} if kind else {})
    if _exists(rest, name):
        raise RefusedError(f"queue {name!r} exists already; change it with: queuelake queue set")
    made = rest.call("PUT", path("queues", name), changes)
    print(f"created {made['name']}")


@app.command("set")
@over_rest
def set_settings(rest: Rest, name: Name, settings: Settings = None) -> None:
    """Change settings of a queue; the others stay."""
    rest.get(path("queues", name))
    changed = rest.call("PUT", path("queues", name), parse_settings(settings or []))
    print(f"{changed['name']}: {json.dumps(changed['configured'])}")


@app.command()
@over_rest
def delete(rest: Rest, name: Name, yes: Yes = False) -> None:
    """Delete a queue with its messages and groups; its dead letters stay."""
    depth = _depth(rest, name)
    confirm(f"Delete {name} with {depth} messages?", yes)
    deleted = rest.call("DELETE", path("queues", name))
    lost = f", {deleted['unarchived']} messages were not archived" if deleted else ""
    print(f"deleted {name}{lost}")


@app.command()
@over_rest
def purge(rest: Rest, name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete every message of a queue which nobody has in hand."""
    depth = _depth(rest, name)
    confirm(f"Delete {depth} messages of {name}, but for those which consumers hold?", yes)
    with watched("purge", depth, lambda: depth - _depth(rest, name)):
        done = rest.call("POST", path("queues", name, "purge"))
    print_json(done) if as_json else print(f"purged {done['purged']}")


@app.command()
@over_rest
def peek(
    rest: Rest,
    name: Name,
    limit: Limit = 10,
    begin: From = 0,
    partition: Partition = None,
    as_json: AsJson = False,
) -> None:
    """Look at messages, of a message queue ($q/...) too; nothing changes."""
    place = {"from": begin} if begin else {}
    if partition is not None:
        place["partition"] = partition
    if place and name.startswith(MESSAGE_QUEUE):
        raise RefusedError(f"{name!r}: --from and --partition are for durable queues")
    messages = list(rest.pages(_messages_path(name), "messages", limit, **place))
    if as_json:
        print_json(messages)
        return
    print_table(
        ["place", "key", "published (UTC)", "publisher", "payload"],
        (
            [
                f"{one['partition']}:{one['offset']}",
                one["key"],
                moment(one["published_at_ms"]),
                one["publisher"],
                payload_text(base64.b64decode(one["payload"])),
            ]
            for one in messages
        ),
    )


@app.command()
@over_rest
def watch(
    rest: Rest,
    name: Name,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between two lines.")
    ] = 2.0,
    count: Annotated[int, typer.Option("--count", min=0, help="Lines; 0: until Ctrl-C.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Follow a queue: depth, in flight and rates, a line at a time."""
    if not as_json:
        print(
            f"{'depth':>10} {'in flight':>10} {'in/s':>10} {'out/s':>10} {'acked/s':>10} {'dlq':>8}"
        )
    lines = 0
    while True:
        stats = rest.get(path("queues", name, "stats"))
        print(json.dumps(stats) if as_json else _line(stats), flush=True)
        lines += 1
        if lines == count:
            return
        time.sleep(interval_s)


def _messages_path(name: str) -> str:
    bare = name.removeprefix(MESSAGE_QUEUE)
    if bare == name:
        return path("queues", name, "messages")
    return f"/api/v5/message_queues/queues/{quote(bare, safe='')}/messages"


def _depth(rest: Rest, name: str) -> int:
    return int(rest.get(path("queues", name, "stats"))["depth"])


def _line(stats: dict[str, Any]) -> str:
    rates = stats["rates"]
    return (
        f"{stats['depth']:>10,} {stats['in_flight']:>10,} {rates['enqueue_per_s']:>10,.1f}"
        f" {rates['dequeue_per_s']:>10,.1f} {rates['ack_per_s']:>10,.1f} {stats['dlq']:>8,}"
    )


def _exists(rest: Rest, name: str) -> bool:
    from queuelake.errors import AnswerError

    try:
        rest.get(path("queues", name))
    except AnswerError as error:
        if error.http_status == 404:
            return False
        raise
    return True


def parse_settings(assignments: list[str]) -> dict[str, Any]:
    """`a.b=1` as a tree; a value is JSON where it can be, else text."""
    tree: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key:
            raise RefusedError(f"setting {assignment!r}: not KEY=VALUE")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        *groups, last = key.split(".")
        place = tree
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                raise RefusedError(f"setting {assignment!r}: {group!r} has a value already")
        if isinstance(place.get(last), dict):
            raise RefusedError(f"setting {assignment!r}: {last!r} is a table already")
        place[last] = value
    return tree
