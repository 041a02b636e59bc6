"""The options by which every command that needs the configuration finds it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from queuelake.settings import Settings

CONFIG_VARIABLE = "QUEUELAKE_CONFIG"

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


def read_settings(
    config: str | None, data_dir: str | None, assignments: list[str] | None
) -> Settings:
    """Load the configuration these options describe."""
    return read_settings_and_origins(config, data_dir, assignments)[0]


def read_settings_and_origins(
    config: str | None, data_dir: str | None, assignments: list[str] | None
) -> tuple[Settings, dict[str, str]]:
    """The same, and where each value came from which is no default."""
    from queuelake.settings import load_settings_and_origins

    values = list(assignments or [])
    if data_dir is not None:
        values.append(f"data_dir={data_dir}")
    return load_settings_and_origins(config, os.environ, values)
