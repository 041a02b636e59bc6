"""`queuelake keys`: API keys besides the first one, each with a role."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from queuelake.cli.options import Config, DataDir
from queuelake.cli.reading import read_settings

EPILOG = """
Examples:

  queuelake keys add grafana                     a key which may read, printed once
  queuelake keys add ci --role operator          one which may change queues
  queuelake keys list
  queuelake keys rm grafana

The first key is in the file api-key of the data directory; its role is admin. A running broker
follows changes at once.
"""

app = typer.Typer(
    help="Add, list and remove API keys.", no_args_is_help=True, rich_markup_mode="rich"
)


class Role(StrEnum):
    viewer = "viewer"
    operator = "operator"
    admin = "admin"


Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the key.")]
WithRole = Annotated[
    Role, typer.Option("--role", help="viewer reads, operator changes, admin may do everything.")
]


@app.command()
def add(
    name: Name, role: WithRole = Role.viewer, config: Config = None, data_dir: DataDir = None
) -> None:
    """Make a key and print it; it cannot be shown again."""
    from queuelake.apikey import add_key

    print(add_key(_directory(config, data_dir), name, role.value))


@app.command("list")
def list_keys(config: Config = None, data_dir: DataDir = None) -> None:
    """Names and roles, the first key included."""
    from queuelake.apikey import read_api_key, read_further_keys

    directory = _directory(config, data_dir)
    first = read_api_key(directory).partition(":")[0]
    rows = [(first, "admin"), *((key.name, key.role) for key in read_further_keys(directory))]
    width = max(len(name) for name, _ in rows)
    for name, role in rows:
        print(f"{name:{width}}  {role}")


@app.command()
def rm(name: Name, config: Config = None, data_dir: DataDir = None) -> None:
    """Remove a key: whoever uses it is refused from now on."""
    from queuelake.apikey import remove_key

    remove_key(_directory(config, data_dir), name)
    print(f"removed {name!r}")


def _directory(config: str | None, data_dir: str | None) -> Path:
    return Path(read_settings(config, data_dir, None).data_dir).expanduser()
