"""The options by which every command that needs the configuration finds it, and how a command gets
options it shares with others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any

import typer

from queuelake.cli.reading import CONFIG_VARIABLE

Values = dict[str, Any]
Parameters = Mapping[str, inspect.Parameter]

Config = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="FILE", envvar=CONFIG_VARIABLE, help="A TOML file."),
]
DataDir = Annotated[
    str | None,
    typer.Option("--data-dir", metavar="DIR", help="Where messages are kept; the key data_dir."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set one key, over file and environment; may be repeated.",
        show_default=False,
    ),
]


def shared(signature: Callable[..., object]) -> Parameters:
    """The options of a function which is there for its signature."""
    return inspect.signature(signature, eval_str=True).parameters


def with_options(
    function: Callable[..., object],
    common: Parameters,
    run: Callable[[Values, Values], None],
    leave_out: int = 0,
) -> Callable[..., None]:
    """A command with the parameters of `function`, but for the first `leave_out`, and with the
    common ones behind them. `run` gets the values of its own ones, and those of the common ones."""

    @wraps(function)
    def command(**given: Any) -> None:
        others = {name: given.pop(name) for name in common}
        run(given, others)

    command.__annotations__ = {}  # the signature has them, without those left out
    own = list(shared(function).values())[leave_out:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [parameter.replace(kind=keyword) for parameter in (*own, *common.values())]
    )
    return command
