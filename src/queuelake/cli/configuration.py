"""`queuelake config`: what the broker would use, and whether it may."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from queuelake.cli.options import Assignments, Config, DataDir
from queuelake.cli.reading import read_settings
from queuelake.toml_writing import toml_lines

EPILOG = """
Examples:

  queuelake config show > queuelake.toml           every key with its value, to start from
  queuelake config check --config queuelake.toml   before a restart: exit code 2 when wrong
"""

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
