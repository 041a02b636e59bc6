"""How a command asks the running broker: over the control socket of its data directory.

That socket belongs to the user who runs the broker, so no key is needed, and it is there also
without HTTP. Whoever works on another machine has the same over REST.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from queuelake.cli.reading import read_settings
from queuelake.cli.showing import print_json
from queuelake.errors import RefusedError
from queuelake.toml_writing import toml_lines

TIMEOUT_S = 60.0


class Which(StrEnum):
    origin = "origin"
    inuse = "inuse"


WhichConfig = Annotated[
    Which, typer.Argument(help="As it was written (origin) or understood (inuse).")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of TOML.")]


class Asker:
    """The broker of one data directory."""

    def __init__(
        self, config: str | None, data_dir: str | None, assignments: list[str] | None
    ) -> None:
        self._data_dir = Path(read_settings(config, data_dir, assignments).data_dir)

    def ask(self, operation: str, **arguments: object) -> object:
        """The answer, made of dicts, lists and plain values.

        Raises:
            BrokerDownError: no broker runs on this data directory.
            AnswerError: the broker said no.
            RefusedError: an argument is no UTF-8 text, so it can name nothing.
        """
        from queuelake.control_client import call

        try:
            return call(self._data_dir, operation, arguments, TIMEOUT_S)
        except UnicodeEncodeError as error:
            raise RefusedError(f"{error.object!r} is not UTF-8") from error


def print_garbage_collection(answer: object) -> None:
    print_json(answer)
    if answer == {"started": False}:
        typer.echo("warning: a garbage collection is under way already", err=True)


def print_config(section: str, answer: object, which: Which, as_json: bool) -> None:
    """One side of an answer which has `origin` and `inuse`."""
    assert isinstance(answer, dict)
    table = answer[which.value]
    if as_json:
        print_json(table)
    else:
        print("\n".join(toml_lines({section: table})).lstrip("\n"))
