"""`queuelake apply`: make a broker what a document says, after showing what that would change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from queuelake.cli.rest import AsJson, Rest, Yes, confirm, over_rest
from queuelake.cli.showing import print_json
from queuelake.errors import ConfigError, QueuelakeError, RefusedError

if TYPE_CHECKING:
    from queuelake.cli.applying.change import Change

EXIT_DIFFERENT = 2
NAMED_MAX = 10  # in a question; they are listed above it
DONE = {"create": "created", "change": "changed", "delete": "deleted"}

EPILOG = """
Examples:

  queuelake apply -f queues.toml --dry-run     what would change: exit code 2, nothing: 0
  queuelake apply -f queues.toml               show it, ask, do it
  queuelake apply -f queues.toml --prune       also delete what the document does not name
  queuelake apply --export > queues.toml       the document of what there is

Exit codes: 0 done, or nothing to change; 1 failed, or the document is wrong; with --dry-run 2 when
there is something to change.
"""


@over_rest
def apply(
    rest: Rest,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="The document; - is standard input."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete what the sections of the document do not name.")
    ] = False,
    passwords: Annotated[
        bool, typer.Option("--passwords", help="Set the passwords of users who are there, too.")
    ] = False,
    export: Annotated[bool, typer.Option("--export", help="Print what there is instead.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Create, change and delete queues of all kinds, users and rules, as a TOML document says."""
    from queuelake.cli.applying.document import read_document
    from queuelake.cli.applying.plan import plan

    if export:
        _export(rest, as_json)
        return
    if file is None:
        raise typer.BadParameter("name a document, or --export", param_hint="--file")
    try:
        changes = plan(rest, read_document(file), prune, passwords)
    except ConfigError as error:
        for mistake in error.mistakes:
            typer.echo(f"error: {mistake}", err=True)
        raise typer.Exit(1) from None
    if not as_json:
        _show(changes)
    elif dry_run:
        _show_json(changes, 0, "")
    if dry_run:
        raise typer.Exit(EXIT_DIFFERENT if changes else 0)
    deletions = [change.title() for change in changes if change.action == "delete"]
    if deletions:
        few = len(deletions) <= NAMED_MAX
        confirm(f"Delete {', '.join(deletions) if few else f'these {len(deletions)}'}?", yes)
    _perform(changes, as_json)


def _show(changes: list[Change]) -> None:
    for change in changes:
        print("\n".join(change.lines()))
    counts = {action: sum(change.action == action for change in changes) for action in DONE}
    if changes:
        print(", ".join(f"{count} to {action}" for action, count in counts.items() if count))
    else:
        print("nothing to change")


def _show_json(changes: list[Change], done: int, error: str) -> None:
    told: dict[str, object] = {"changes": [change.told() for change in changes], "done": done}
    print_json(told | ({"error": error} if error else {}))


def _perform(changes: list[Change], as_json: bool) -> None:
    """One after the other, each with its result; the first which is refused ends it."""
    refused: RefusedError | None = None
    done = 0
    for change in changes:
        try:
            change.perform()
        except QueuelakeError as error:
            said = f"{done} of {len(changes)} changes are done"
            refused = RefusedError(f"{change.title()}: {error}; {said}")
            break
        done += 1
        if not as_json:
            print(f"{DONE[change.action]} {change.title()}")
    if as_json:
        _show_json(changes, done, str(refused) if refused is not None else "")
    if refused is not None:
        raise refused


def _export(rest: Rest, as_json: bool) -> None:
    from queuelake.cli.applying.plan import export
    from queuelake.toml_writing import toml_lines

    document = export(rest)
    if as_json:
        print_json(document)
    else:
        print("\n".join(toml_lines(document)).lstrip("\n"))
