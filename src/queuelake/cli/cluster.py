"""`queuelake cluster`: who is there, who owns what, and what operators change about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from queuelake.cli.recover import recover
from queuelake.cli.rest import AsJson, Rest, Yes, confirm, over_rest, path
from queuelake.cli.showing import print_json, print_table

EPILOG = """
Examples:

  queuelake cluster status
  queuelake cluster transfer node-2          node-2 is the owner from now on
  queuelake cluster transfer node-2 --shard 1
  queuelake cluster rebalance                each node owns as many shards as the others
  queuelake cluster drain                    before this node is stopped for a while
  queuelake cluster drain --end
  queuelake cluster remove node-3            it will not come back
  queuelake cluster check                    are all stores the same?
  queuelake cluster recover                  the log is lost: begin again with this store

They ask the node of this machine, or with --url and --key another one; recover is for a node which
is stopped.
"""

app = typer.Typer(
    help="A cluster: its nodes, its owner, its log.", no_args_is_help=True, rich_markup_mode="rich"
)

Node = Annotated[str, typer.Argument(metavar="NODE", help="The name of a node.")]


@app.command()
@over_rest
def status(rest: Rest, as_json: AsJson = False) -> None:
    """The cluster in a few lines, as one node knows it."""
    found = rest.get(path("cluster"))
    if as_json:
        print_json(found)
        return
    shards = found["shards"]
    owner = shards[0]["owner"] or "nobody"
    owned = f"owner: {owner}" if len(shards) == 1 else f"{len(shards)} shards"
    nats = "" if found["connected"] else ", which has no connection to NATS"
    print(f"cluster {found['name']}, asked at {found['node']}{nats}; {owned}\n")
    _print_members(found["members"])
    print()
    _print_shards(shards)


@app.command()
@over_rest
def members(rest: Rest, as_json: AsJson = False) -> None:
    """The nodes: what each does, and how far it is behind."""
    found = rest.get(path("cluster", "members"))["members"]
    if as_json:
        print_json(found)
    else:
        _print_members(found)


@app.command()
@over_rest
def shards(rest: Rest, as_json: AsJson = False) -> None:
    """The shards: who owns each, and how long its log is."""
    found = rest.get(path("cluster", "shards"))["shards"]
    if as_json:
        print_json(found)
    else:
        _print_shards(found)


@app.command()
@over_rest
def transfer(
    rest: Rest,
    node: Annotated[
        str, typer.Argument(metavar="[NODE]", help="The next owner; else whoever is furthest.")
    ] = "",
    shard: Annotated[
        int | None, typer.Option(min=0, help="Which one, when there are several.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make another node the owner; clients lose their connections and come back."""
    what = "" if shard is None else f" of shard {shard}"
    confirm(f"Make {node or 'another node'} the owner{what}? All clients connect again.", yes)
    moved = rest.call("POST", path("cluster", "transfer"), {"node": node, "shard": shard})
    if as_json:
        print_json(moved)
    elif shard is not None:
        print(f"shard {moved['shard']} is owned by {moved['owner']}")
    else:
        print(f"the owner is {moved['owner']}")


@app.command()
@over_rest
def rebalance(rest: Rest, as_json: AsJson = False) -> None:
    """Move shards so that all nodes which are alive and not drained own equally many."""
    moved = rest.call("POST", path("cluster", "rebalance"))["moved"]
    if as_json:
        print_json(moved)
        return
    for one in moved:
        print(f"shard {one['shard']} is owned by {one['owner']}")
    if not moved:
        print("nothing to move")


@app.command()
@over_rest
def drain(
    rest: Rest,
    end: Annotated[bool, typer.Option("--end", help="It may be the owner again.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let the node which is asked hand on what it owns, and not be the owner meanwhile."""
    if not end:
        confirm("Drain this node? If it is the owner, all clients connect again.", yes)
    done = rest.call("POST", path("cluster", "drain"), {"draining": not end})
    if as_json:
        print_json(done)
    elif done["draining"]:
        print(f"{done['node']} is drained; it may be stopped")
    else:
        print(f"{done['node']} may be the owner again")


@app.command()
@over_rest
def remove(rest: Rest, node: Node, yes: Yes = False) -> None:
    """Forget a node which will not come back."""
    confirm(f"Forget {node}?", yes)
    rest.call("DELETE", path("cluster", "members", node))
    print(f"removed {node}")


@app.command()
@over_rest
def check(rest: Rest, as_json: AsJson = False) -> None:
    """Compare the stores of all nodes: exit code 0 when each has answered and all are equal."""
    found = rest.call("POST", path("cluster", "check"))
    if as_json:
        print_json(found)
    else:
        for one in found.get("shards") or [found]:
            _print_check(one)
    raise typer.Exit(0 if found["equal"] and not found["missing"] else 1)


app.command()(recover)


def _print_check(found: dict[str, Any]) -> None:
    print_table(["node", "hash of its store"], found["hashes"].items())
    for node in found["missing"]:
        print(f"{node} did not answer")
    where = f"shard {found['shard']}, " if "shard" in found else ""
    verdict = "equal" if found["equal"] else "they differ"
    print(f"{where}at position {found['position']}: {verdict}")


def _print_members(found: Sequence[dict[str, Any]]) -> None:
    columns = ["node", "role", "alive", "position", "lag", "draining", "version", "problem"]
    rows = [[one[column] for column in columns] for one in found]
    if any(set(one["owns"]) - {0} for one in found):  # there are several shards
        columns.insert(2, "owns")
        for row, one in zip(rows, found, strict=True):
            row.insert(2, ", ".join(map(str, one["owns"])))
    print_table(columns, rows)


def _print_shards(found: Sequence[dict[str, Any]]) -> None:
    print_table(
        ["shard", "owner", "epoch", "lease age s", "log from", "log to", "log bytes"],
        (
            [
                one["shard"],
                one["owner"] or "nobody",
                one["epoch"],
                one["lease_age_s"],
                one["log_first"],
                one["log_last"],
                one["log_bytes"],
            ]
            for one in found
        ),
    )
