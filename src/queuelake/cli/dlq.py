"""`queuelake dlq`: dead letters of a queue: see, put back, discard."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import typer

from queuelake.cli.progress import watched
from queuelake.cli.rest import AsJson, Rest, Yes, confirm, over_rest, path, queue_names
from queuelake.cli.showing import payload_text, print_json, print_table
from queuelake.errors import NotFoundError, RefusedError

EPILOG = """
Examples:

  queuelake dlq list tasks/image
  queuelake dlq show tasks/image '$queue/dlq/tasks/image:0:17'
  queuelake dlq retry tasks/image '$queue/dlq/tasks/image:0:17'
  queuelake dlq retry tasks/image --reason timeout --since 2026-01-31
  queuelake dlq discard tasks/image --all --yes
"""

app = typer.Typer(
    help="Dead letters: list, show, retry, discard.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Name = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="The queue they came from.", autocompletion=queue_names),
]
Id = Annotated[str | None, typer.Argument(metavar="ID", help="One of them; else choose below.")]
Reason = Annotated[
    str | None,
    typer.Option("--reason", help="max_retries, timeout, rejected, expired.", metavar="REASON"),
]
ByKey = Annotated[str | None, typer.Option("--message-key", help="Of this key.")]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="ISO 8601.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="ISO 8601.")]
Everything = Annotated[bool, typer.Option("--all", help="All of them.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="At most so many.")]


@app.command("list")
@over_rest
def list_letters(rest: Rest, name: Name, limit: Limit = 100, as_json: AsJson = False) -> None:
    """The dead letters of a queue, the oldest first."""
    letters = list(rest.pages(path("queues", name, "dlq"), "messages", limit))
    if as_json:
        print_json(letters)
        return
    print_table(
        ["id", "reason", "tries", "moved (UTC)", "key", "payload"],
        (
            [
                one["id"],
                one["dlq-reason"],
                one["dlq-delivery-count"],
                one["dlq-moved-at"],
                one["key"],
                payload_text(base64.b64decode(one["payload"]), 40),
            ]
            for one in letters
        ),
    )


@app.command()
@over_rest
def show(rest: Rest, name: Name, message_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """One dead letter with its story, as JSON."""
    for letter in rest.pages(path("queues", name, "dlq"), "messages"):
        if letter["id"] == message_id:
            print_json(letter)
            return
    raise NotFoundError(f"queue {name!r} has no dead letter {message_id!r}")


@app.command()
@over_rest
def retry(
    rest: Rest,
    name: Name,
    message_id: Id = None,
    reason: Reason = None,
    message_key: ByKey = None,
    since: Since = None,
    until: Until = None,
    everything: Everything = False,
    limit: Limit = 10_000,
) -> None:
    """Put dead letters back into their queue, as new messages: one, or all which fit."""
    if message_id is not None:
        done = rest.call("POST", path("queues", name, "dlq", message_id, "retry"))
        print(f"{message_id} is {done['id']} now")
        return
    choice = _choice(reason, message_key, since, until, everything) | {"limit": limit}
    _tell("put back", _many(rest, name, "retry", choice))


@app.command()
@over_rest
def discard(
    rest: Rest,
    name: Name,
    message_id: Id = None,
    reason: Reason = None,
    message_key: ByKey = None,
    since: Since = None,
    until: Until = None,
    everything: Everything = False,
    limit: Limit = 10_000,
    yes: Yes = False,
) -> None:
    """Delete dead letters: one, or all which fit."""
    if message_id is not None:
        rest.call("DELETE", path("queues", name, "dlq", message_id))
        print(f"discarded {message_id}")
        return
    choice = _choice(reason, message_key, since, until, everything) | {"limit": limit}
    confirm(f"Delete up to {limit} dead letters of {name}?", yes)
    _tell("discarded", _many(rest, name, "discard", choice))


def _many(rest: Rest, name: str, what: str, choice: dict[str, Any]) -> dict[str, Any]:
    def left() -> int:
        return int(rest.get(path("queues", name, "stats"))["dlq"])

    before = left()
    with watched(what, min(before, choice["limit"]), lambda: before - left()):
        done: dict[str, Any] = rest.call("POST", path("queues", name, "dlq", what), choice)
    return done


def _choice(
    reason: str | None, key: str | None, since: str | None, until: str | None, everything: bool
) -> dict[str, Any]:
    named = {"reason": reason, "key": key, "moved_after": since, "moved_before": until}
    choice = {name: value for name, value in named.items() if value is not None}
    if bool(choice) == everything:
        raise RefusedError("name an ID, or --reason, --message-key, --since, --until, or --all")
    return choice


def _tell(what: str, answer: dict[str, Any]) -> None:
    print(f"{what} {answer['done']}" + (", there are more: --limit" if answer["more"] else ""))
