"""`queuelake serve`: the broker, in the foreground."""

from __future__ import annotations

import typer

from queuelake.cli.options import Assignments, Config, DataDir, read_settings_and_origins

FILES_BESIDE_CONNECTIONS = 100
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
    settings, origins = read_settings_and_origins(config, data_dir, assignments)
    from queuelake.broker.server import run
    from queuelake.logs import configure_logging

    configure_logging(settings.log)
    raise_file_limit(settings.limits.connections_max)
    raise typer.Exit(run(settings, origins))


def raise_file_limit(connections_max: int) -> None:
    """Let this process open a file for each connection, as far as the system allows."""
    import contextlib
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = connections_max + FILES_BESIDE_CONNECTIONS if connections_max else hard
    limit = want if hard == resource.RLIM_INFINITY else min(want, hard)
    if soft != resource.RLIM_INFINITY and (limit == resource.RLIM_INFINITY or limit > soft):
        # macOS reports no hard limit and yet refuses more than its own.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
