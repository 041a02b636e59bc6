"""`queuelake config`: what the broker would use, and whether it may."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from queuelake.cli.options import Assignments, Config, DataDir, read_settings

if TYPE_CHECKING:
    pass

EPILOG = """
Examples:

  queuelake config show > queuelake.toml           every key with its value, to start from
  queuelake config check --config queuelake.toml   before a restart: exit code 2 when wrong
"""
BARE_KEY = re.compile("[A-Za-z0-9_-]+")

app = typer.Typer(
    help="Show and check the configuration.", no_args_is_help=True, rich_markup_mode="rich"
)


@app.command()
def show(
    config: Config = None,
    data_dir: DataDir = None,
    assignments: Assignments = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of TOML.")] = False,
) -> None:
    """Print the effective configuration, defaults included; secrets are left out."""
    from queuelake.settings import shown_table

    table = shown_table(read_settings(config, data_dir, assignments))
    print(json.dumps(table, indent=2) if as_json else "\n".join(toml_lines(table)))


@app.command()
def check(config: Config = None, data_dir: DataDir = None, assignments: Assignments = None) -> None:
    """Check the configuration: one line for each mistake, exit code 2 when there is one."""
    read_settings(config, data_dir, assignments)
    print("configuration ok")


def toml_lines(table: dict[str, object], section: str = "") -> Iterator[str]:
    """Write tables of strings, numbers, booleans and lists as TOML, plain values first."""
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{key} = {_toml_value(value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            level = key if BARE_KEY.fullmatch(key) else _toml_value(key)
            name = f"{section}.{level}" if section else level
            yield ""
            yield f"[{name}]"
            yield from toml_lines(value, name)


def _toml_value(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(one) for one in value) + "]"
    if isinstance(value, dict):
        pairs = (f"{key} = {_toml_value(one)}" for key, one in value.items() if one is not None)
        return "{ " + ", ".join(pairs) + " }"
    # JSON writes strings, integers, floats and booleans as TOML does, apart from DEL.
    return json.dumps(value).replace("\x7f", "\\u007f")
