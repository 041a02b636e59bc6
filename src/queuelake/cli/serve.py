"""`queuelake serve`: the broker, in the foreground."""

from __future__ import annotations

import typer

from queuelake.cli.foreground import ServeOptions, run_broker
from queuelake.cli.options import Assignments, Config, DataDir

EPILOG = """
Examples:

  queuelake serve
  queuelake serve --data-dir ./data --set listeners.mqtt.port=1884
  queuelake serve --config /etc/queuelake/queuelake.toml --set log.format=json
  QUEUELAKE__LISTENERS__MQTT__PORT=1884 queuelake serve

Without users it serves this machine only (127.0.0.1), and refuses to listen wider.
SIGTERM or Ctrl-C ends it cleanly; SIGHUP reads the certificates again.
"""


def serve(config: Config = None, data_dir: DataDir = None, assignments: Assignments = None) -> None:
    """Run the broker until SIGTERM or Ctrl-C.

    It prints one line that begins with "ready" and holds all addresses; logs go to stderr.
    The configuration is the TOML file, then QUEUELAKE__SECTION__KEY, then --set; see
    "queuelake config show" for every key.
    """
    raise typer.Exit(run_broker(ServeOptions(config, data_dir, assignments or [])))
