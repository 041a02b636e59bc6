"""The broker in the foreground, without the library which reads command lines.

That library takes longer to import than the broker itself, and stays in memory as long as it
runs. A plain `serve` needs none of it: pairs of an option and its value. Whatever else is written
(`--help`, `--set=key=value`, a mistake) is read in `commands.py` like every other command.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
from typing import NamedTuple

from queuelake.cli.reading import CONFIG_VARIABLE, read_settings_and_origins

FILES_BESIDE_CONNECTIONS = 100
# What a start makes stays, and messages make no cycles: look for them now and then.
GC_THRESHOLDS = (20_000, 20, 100)


class ServeOptions(NamedTuple):
    config: str | None
    data_dir: str | None
    assignments: list[str]


def plain_serve(words: list[str]) -> ServeOptions | None:
    """The options of a command line which is a plain `serve`; None of any other."""
    if words[:1] != ["serve"] or len(words) % 2 == 0:
        return None
    config = os.environ.get(CONFIG_VARIABLE) or None
    data_dir = None
    assignments: list[str] = []
    for option, value in zip(words[1::2], words[2::2], strict=True):
        if option in ("--config", "-c"):
            config = value
        elif option == "--data-dir":
            data_dir = value
        elif option == "--set":
            assignments.append(value)
        else:
            return None
    return ServeOptions(config, data_dir, assignments)


def run_broker(options: ServeOptions) -> int:
    """Run the broker until SIGTERM or Ctrl-C; returns the exit code."""
    gc.set_threshold(*GC_THRESHOLDS)
    settings, origins = read_settings_and_origins(*options)
    from queuelake.broker.server import run
    from queuelake.logs import configure_logging

    configure_logging(settings.log)
    raise_file_limit(settings.limits.connections_max)
    return run(settings, origins)


def raise_file_limit(connections_max: int) -> None:
    """Let this process open a file for each connection, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = connections_max + FILES_BESIDE_CONNECTIONS if connections_max else hard
    limit = want if hard == resource.RLIM_INFINITY else min(want, hard)
    if soft != resource.RLIM_INFINITY and (limit == resource.RLIM_INFINITY or limit > soft):
        # macOS reports no hard limit and yet refuses more than its own.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
