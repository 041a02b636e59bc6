"""`queuelake dlq`: dead letters of a queue: see, put back, discard."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import typer

from queuelake.cli.progress import watched
from queuelake.cli.rest import AsJson, Rest, Yes, confirm, over_rest, path, queue_names
from queuelake.cli.showing import payload_text, print_fields, print_json, print_table
from queuelake.errors import NotFoundError, RefusedError

EPILOG = """
Examples:

  queuelake dlq list tasks/image
  queuelake dlq show tasks/image '$queue/dlq/tasks/image:0:17'
  queuelake dlq retry tasks/image '$queue/dlq/tasks/image:0:17'
  queuelake dlq retry tasks/image --reason timeout --since 2026-01-31
  queuelake dlq discard tasks/image --all --yes
"""

PAYLOAD_MAX = 1000  # characters of one letter which is shown

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
def show(
    rest: Rest,
    name: Name,
    message_id: Annotated[str, typer.Argument(metavar="ID")],
    as_json: AsJson = False,
) -> None:
    """One dead letter with its story."""
    for letter in rest.pages(path("queues", name, "dlq"), "messages"):
        if letter["id"] == message_id:
            print_json(letter) if as_json else _show(letter)
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
    as_json: AsJson = False,
) -> None:
    """Put dead letters back into their queue, as new messages: one, or all which fit."""
    if message_id is not None:
        done = rest.call("POST", path("queues", name, "dlq", message_id, "retry"))
        print_json(done) if as_json else print(f"{message_id} is {done['id']} now")
        return
    choice = _choice(reason, message_key, since, until, everything) | {"limit": limit}
    _tell("put back", _many(rest, name, "retry", choice), as_json)


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
    as_json: AsJson = False,
) -> None:
    """Delete dead letters: one, or all which fit."""
    if message_id is not None:
        rest.call("DELETE", path("queues", name, "dlq", message_id))
        print_json({"done": 1, "more": False}) if as_json else print(f"discarded {message_id}")
        return
    choice = _choice(reason, message_key, since, until, everything) | {"limit": limit}
    confirm(f"Delete up to {limit} dead letters of {name}?", yes)
    _tell("discarded", _many(rest, name, "discard", choice), as_json)


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


def _show(letter: dict[str, Any]) -> None:
    payload = payload_text(base64.b64decode(letter["payload"]), PAYLOAD_MAX)
    properties = ", ".join(f"{key}={value}" for key, value in letter["properties"])
    print_fields(letter | {"properties": properties, "payload": payload})


def _tell(what: str, answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    print(f"{what} {answer['done']}" + (", there are more: --limit" if answer["more"] else ""))
