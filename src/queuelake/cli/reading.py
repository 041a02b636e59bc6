"""The configuration which the options of a command line describe."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queuelake.settings import Settings

CONFIG_VARIABLE = "QUEUELAKE_CONFIG"


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
