"""`queuelake clients`, `queuelake retained`, `queuelake acl`: who is there, and may do what."""

from __future__ import annotations

import base64
from enum import StrEnum
from typing import Annotated

import typer

from queuelake.cli.rest import AsJson, Directory, Key, Rest, Url, Yes, confirm, path
from queuelake.cli.showing import moment, payload_text, print_json, print_table

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
def list_clients(
    limit: Limit = 0,
    as_json: AsJson = False,
    url: Url = None,
    key: Key = None,
    data_dir: Directory = None,
) -> None:
    """Clients which are connected or have a session."""
    found = list(Rest(url, key, data_dir).pages(path("clients"), "items", limit))
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
def show(client_id: ClientId, url: Url = None, key: Key = None, data_dir: Directory = None) -> None:
    """One client and its subscriptions, as JSON."""
    rest = Rest(url, key, data_dir)
    client = rest.get(path("clients", client_id))
    subscriptions = rest.pages(path("subscriptions"), "subscriptions", client_id=client_id)
    print_json(client | {"topic_filters": list(subscriptions)})


@clients.command()
def disconnect(
    client_id: ClientId,
    yes: Yes = False,
    url: Url = None,
    key: Key = None,
    data_dir: Directory = None,
) -> None:
    """Close the connection of a client; its session stays as long as it asked for."""
    rest = Rest(url, key, data_dir)
    confirm(f"Disconnect {client_id}?", yes)
    rest.call("DELETE", path("clients", client_id))
    print(f"disconnected {client_id}")


@clients.command()
def ban(
    kind: BanKind,
    value: BanValue,
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="0: for ever.")] = 0,
    url: Url = None,
    key: Key = None,
    data_dir: Directory = None,
) -> None:
    """Refuse a client from now on, until the broker ends; who is connected is disconnected."""
    rest = Rest(url, key, data_dir)
    made = rest.call("PUT", path("bans", kind.value, value), query={"seconds": seconds})
    until = moment(made["until_ms"])
    print(f"banned {kind.value} {made['value']}" + (f" until {until} UTC" if until else ""))


@clients.command()
def unban(
    kind: BanKind, value: BanValue, url: Url = None, key: Key = None, data_dir: Directory = None
) -> None:
    """End a ban which was made while the broker runs."""
    Rest(url, key, data_dir).call("DELETE", path("bans", kind.value, value))
    print(f"{kind.value} {value} is not banned any more")


@clients.command()
def bans(
    as_json: AsJson = False, url: Url = None, key: Key = None, data_dir: Directory = None
) -> None:
    """The bans made while the broker runs."""
    found = Rest(url, key, data_dir).get(path("bans"))["bans"]
    if as_json:
        print_json(found)
        return
    print_table(
        ["what", "value", "until (UTC)"],
        ([one["kind"], one["value"], moment(one["until_ms"]) or "for ever"] for one in found),
    )


@retained.command("list")
def list_retained(
    topic_filter: Annotated[str, typer.Option("--filter", help="A topic filter.")] = "",
    limit: Limit = 0,
    as_json: AsJson = False,
    url: Url = None,
    key: Key = None,
    data_dir: Directory = None,
) -> None:
    """Topics with a retained message."""
    rest = Rest(url, key, data_dir)
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
def show_retained(
    topic: Topic, url: Url = None, key: Key = None, data_dir: Directory = None
) -> None:
    """The retained message of a topic."""
    found = Rest(url, key, data_dir).get(path("retained", topic))
    print(payload_text(base64.b64decode(found["payload"]), 100_000))


@retained.command("delete")
def delete_retained(
    topic: Topic, yes: Yes = False, url: Url = None, key: Key = None, data_dir: Directory = None
) -> None:
    """Delete the retained message of a topic."""
    rest = Rest(url, key, data_dir)
    confirm(f"Delete the retained message of {topic}?", yes)
    rest.call("DELETE", path("retained", topic))
    print(f"deleted {topic}")


@acl.command("test")
def try_acl(
    action: Annotated[Action, typer.Argument(help="What the client would do.")],
    topic: Topic,
    client: Annotated[str, typer.Option("--client", help="Its client id.")] = "",
    user: Annotated[str, typer.Option("--user", help="Its user name; none: anonymous.")] = "",
    ip: Annotated[str, typer.Option("--ip", help="Where it comes from.")] = "127.0.0.1",
    url: Url = None,
    key: Key = None,
    data_dir: Directory = None,
) -> None:
    """Whether a client may publish or subscribe there: exit code 0 for yes, 1 for no."""
    rest = Rest(url, key, data_dir)
    asked = {
        "action": action.value,
        "topic": topic,
        "client_id": client,
        "username": user,
        "ip": ip,
    }
    allowed = rest.get(path("acl", "test"), **asked)["allowed"]
    print("allowed" if allowed else "denied")
    raise typer.Exit(0 if allowed else 1)
