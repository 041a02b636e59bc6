"""`queuelake doctor`: is everything here as the broker needs it, and if not, what mends it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from queuelake.cli.options import Assignments, Config, DataDir
from queuelake.cli.reading import read_settings
from queuelake.errors import ConfigError

if TYPE_CHECKING:
    from queuelake.cli.checks import Check

EPILOG = """
Examples:

  queuelake doctor
  queuelake doctor --config /etc/queuelake/queuelake.toml --json

Use the same options and environment as for serve. Exit code 1 when a check fails; warnings do
not count. Nothing is changed.
"""


def doctor(
    config: Config = None,
    data_dir: DataDir = None,
    assignments: Assignments = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check configuration, ports, disk, limits and store, and say what to mend."""
    checks = list(all_checks(config, data_dir, assignments))
    failed = any(check.status == "fail" for check in checks)
    if as_json:
        rows = [check._asdict() for check in checks]
        print(json.dumps({"ok": not failed, "checks": rows}, indent=2))
    else:
        for check in checks:
            _print(check)
    raise typer.Exit(1 if failed else 0)


def all_checks(
    config: str | None, data_dir: str | None, assignments: list[str] | None
) -> Iterator[Check]:
    """Every check; after a wrong configuration only those that do not need it."""
    from queuelake.cli.checks import Check, machine_checks, settings_checks

    try:
        settings = read_settings(config, data_dir, assignments)
    except ConfigError as error:
        for mistake in error.mistakes:
            yield Check("configuration", "fail", mistake, "correct this key, see docs")
        settings = None
    else:
        yield Check("configuration", "ok", config or "defaults, environment and --set")
    yield from machine_checks()
    if settings is not None:
        yield from settings_checks(settings)


def _print(check: Check) -> None:
    colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    words = check.status.ljust(5)
    if colours:
        colour = {"ok": typer.colors.GREEN, "warn": typer.colors.YELLOW}
        words = typer.style(words, fg=colour.get(check.status, typer.colors.RED))
    print(f"{words} {check.name.ljust(20)} {check.message}")
    if check.mend:
        print(f"{'':26} -> {check.mend}")
