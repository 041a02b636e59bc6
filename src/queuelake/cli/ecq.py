"""`queuelake ecq`: look into device mailboxes, and let an owner read again. JSON on stdout."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Literal

import typer

from queuelake.cli.asking import (
    AsJson,
    Asker,
    Which,
    WhichConfig,
    print_config,
    print_garbage_collection,
)
from queuelake.cli.options import Assignments, Config, DataDir
from queuelake.cli.showing import print_json

EPILOG = """
Examples:

  queuelake ecq status --data-dir data
  queuelake ecq inspect car-17
  queuelake ecq rewind car-17 --to first
  queuelake ecq show-config origin --json

They ask the running broker: use the same --config or --data-dir as for serve.
"""
OWNER_HELP = "The client id of the device."

app = typer.Typer(
    help="Device mailboxes, $ECQ: what is in them, and who has read how far.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Owner = Annotated[str, typer.Argument(metavar="OWNER", help=OWNER_HELP)]


@app.command()
def status(
    config: Config = None, data_dir: DataDir = None, assignments: Assignments = None
) -> None:
    """How many mailboxes there are, and the ends of their tables."""
    print_json(Asker(config, data_dir, assignments).ask("ecq_status"))


@app.command()
def inspect(
    owner: Owner, config: Config = None, data_dir: DataDir = None, assignments: Assignments = None
) -> None:
    """How far one owner has read, and the sequence numbers in its mailbox."""
    print_json(Asker(config, data_dir, assignments).ask("ecq_inspect", owner=owner))


@app.command()
def gc(config: Config = None, data_dir: DataDir = None, assignments: Assignments = None) -> None:
    """Begin to delete what is too old."""
    print_garbage_collection(Asker(config, data_dir, assignments).ask("ecq_gc"))


@app.command("show-config")
def show_config(
    which: WhichConfig = Which.inuse,
    as_json: AsJson = False,
    config: Config = None,
    data_dir: DataDir = None,
    assignments: Assignments = None,
) -> None:
    """The settings the running broker uses, changes at run time included."""
    answer = Asker(config, data_dir, assignments).ask("ecq_config")
    print_config("ecq", answer, which, as_json)


@app.command()
def rewind(
    owner: Owner,
    seqno: Annotated[
        int | None, typer.Option("--seqno", min=0, help="Read again from this number on.")
    ] = None,
    ts: Annotated[
        str | None,
        typer.Option(
            "--ts",
            metavar="TIME",
            help="Read again what came since: 2026-01-31T12:00:00Z, or milliseconds since 1970.",
        ),
    ] = None,
    to: Annotated[Literal["first"] | None, typer.Option("--to", help="Read all again.")] = None,
    config: Config = None,
    data_dir: DataDir = None,
    assignments: Assignments = None,
) -> None:
    """Let an owner read again what is still in its mailbox; name one of --seqno, --ts, --to."""
    asked = {"seqno": seqno, "ts": None if ts is None else milliseconds(ts), "to": to}
    body = {key: value for key, value in asked.items() if value is not None}
    if len(body) != 1:
        raise typer.BadParameter("name exactly one of --seqno, --ts and --to")
    asker = Asker(config, data_dir, assignments)
    print_json(asker.ask("ecq_rewind", owner=owner, body=json.dumps(body).encode()))


def milliseconds(text: str) -> int:
    """A moment as people write it, in milliseconds since 1970."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time; write 2026-01-31T12:00:00Z or milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no time zone; add Z, or +02:00")
    return max(0, int(moment.timestamp() * 1000))
