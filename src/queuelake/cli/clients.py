"""`queuelake clients`, `queuelake retained`, `queuelake acl`: who is there, and may do what."""

from __future__ import annotations

import base64
from enum import StrEnum
from typing import Annotated

import typer

from queuelake.cli.rest import AsJson, Rest, Yes, confirm, over_rest, path
from queuelake.cli.showing import is_text, moment, print_fields, print_json, print_table

CLIENTS_EPILOG = """
Examples:

  queuelake clients list
  queuelake clients show sensor-1
  queuelake clients disconnect sensor-1
  queuelake clients ban clientid sensor-1 --seconds 3600
"""
RETAINED_EPILOG = """
Examples:

  queuelake retained list --filter 'sensors/#'
  queuelake retained delete sensors/1
"""
ACL_EPILOG = """
Example:

  queuelake acl test publish 'fleet/v1/up' --client v1 --user alice
"""

clients = typer.Typer(
    help="Clients: list, show, disconnect, ban.", no_args_is_help=True, rich_markup_mode="rich"
)
retained = typer.Typer(
    help="Retained messages: list and delete.", no_args_is_help=True, rich_markup_mode="rich"
)
acl = typer.Typer(help="Permissions.", no_args_is_help=True, rich_markup_mode="rich")


class Kind(StrEnum):
    clientid = "clientid"
    username = "username"
    ip = "ip"


class Action(StrEnum):
    publish = "publish"
    subscribe = "subscribe"


ClientId = Annotated[str, typer.Argument(metavar="CLIENT", help="The client id.")]
BanKind = Annotated[Kind, typer.Argument(help="What is banned.")]
BanValue = Annotated[str, typer.Argument(metavar="VALUE", help="A name, address or network.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=0, help="At most so many; 0: all.")]


@clients.command("list")
@over_rest
def list_clients(rest: Rest, limit: Limit = 0, as_json: AsJson = False) -> None:
    """Clients which are connected or have a session."""
    found = list(rest.pages(path("clients"), "items", limit))
    if as_json:
        print_json(found)
        return
    print_table(
        ["client", "connected", "user", "address", "subscriptions", "in flight", "queued"],
        (
            [
                one["client_id"],
                one["connected"],
                one["username"],
                one["address"],
                one["subscriptions"],
                one["inflight_messages"],
                one["queued_messages"],
            ]
            for one in found
        ),
    )


@clients.command()
@over_rest
def show(rest: Rest, client_id: ClientId, as_json: AsJson = False) -> None:
    """One client and its subscriptions."""
    client = rest.get(path("clients", client_id))
    found = list(rest.pages(path("subscriptions"), "subscriptions", client_id=client_id))
    if as_json:
        print_json(client | {"topic_filters": found})
        return
    print_fields(client)
    print()
    print_table(["topic filter", "qos"], ([one["topic_filter"], one["qos"]] for one in found))


@clients.command()
@over_rest
def disconnect(rest: Rest, client_id: ClientId, yes: Yes = False) -> None:
    """Close the connection of a client; its session stays as long as it asked for."""
    confirm(f"Disconnect {client_id}?", yes)
    rest.call("DELETE", path("clients", client_id))
    print(f"disconnected {client_id}")


@clients.command()
@over_rest
def ban(
    rest: Rest,
    kind: BanKind,
    value: BanValue,
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="0: for ever.")] = 0,
) -> None:
    """Refuse a client from now on, until the broker ends; who is connected is disconnected."""
    made = rest.call("PUT", path("bans", kind.value, value), query={"seconds": seconds})
    until = moment(made["until_ms"])
    print(f"banned {kind.value} {made['value']}" + (f" until {until} UTC" if until else ""))


@clients.command()
@over_rest
def unban(rest: Rest, kind: BanKind, value: BanValue) -> None:
    """End a ban which was made while the broker runs."""
    rest.call("DELETE", path("bans", kind.value, value))
    print(f"{kind.value} {value} is not banned any more")


@clients.command()
@over_rest
def bans(rest: Rest, as_json: AsJson = False) -> None:
    """The bans made while the broker runs."""
    found = rest.get(path("bans"))["bans"]
    if as_json:
        print_json(found)
        return
    print_table(
        ["what", "value", "until (UTC)"],
        ([one["kind"], one["value"], moment(one["until_ms"]) or "for ever"] for one in found),
    )


@retained.command("list")
@over_rest
def list_retained(
    rest: Rest,
    topic_filter: Annotated[str, typer.Option("--filter", help="A topic filter.")] = "",
    limit: Limit = 0,
    as_json: AsJson = False,
) -> None:
    """Topics with a retained message."""
    found = list(rest.pages(path("retained"), "messages", limit, filter=topic_filter))
    if as_json:
        print_json(found)
        return
    print_table(
        ["topic", "bytes", "qos", "published (UTC)"],
        (
            [one["topic"], one["payload_bytes"], one["qos"], moment(one["published_at_ms"])]
            for one in found
        ),
    )


@retained.command("show")
@over_rest
def show_retained(rest: Rest, topic: Topic, as_json: AsJson = False) -> None:
    """The retained message of a topic: its text as it is, or its bytes in hex."""
    found = rest.get(path("retained", topic))
    if as_json:
        print_json(found)
        return
    payload = base64.b64decode(found["payload"])
    print(payload.decode() if is_text(payload) else payload.hex(" "))


@retained.command("delete")
@over_rest
def delete_retained(rest: Rest, topic: Topic, yes: Yes = False) -> None:
    """Delete the retained message of a topic."""
    confirm(f"Delete the retained message of {topic}?", yes)
    rest.call("DELETE", path("retained", topic))
    print(f"deleted {topic}")


@acl.command("test")
@over_rest
def try_acl(
    rest: Rest,
    action: Annotated[Action, typer.Argument(help="What the client would do.")],
    topic: Topic,
    client: Annotated[str, typer.Option("--client", help="Its client id.")] = "",
    user: Annotated[str, typer.Option("--user", help="Its user name; none: anonymous.")] = "",
    ip: Annotated[str, typer.Option("--ip", help="Where it comes from.")] = "127.0.0.1",
    as_json: AsJson = False,
) -> None:
    """Whether a client may publish or subscribe there: exit code 0 for yes, 1 for no."""
    asked = {
        "action": action.value,
        "topic": topic,
        "client_id": client,
        "username": user,
        "ip": ip,
    }
    answer = rest.get(path("acl", "test"), **asked)
    allowed = answer["allowed"]
    print_json(answer) if as_json else print("allowed" if allowed else "denied")
    raise typer.Exit(0 if allowed else 1)
