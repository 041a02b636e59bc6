"""The admin process, started by the broker: `python -m queuelake.admin`.

It reads one JSON line (`AdminStart`) from standard input and serves HTTP on the inherited socket,
and gRPC on a port of its own where that is wanted.
The rest of standard input says nothing until it ends, and its end says that the broker is gone.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import uvicorn

from queuelake.admin.app import create_app
from queuelake.admin.job_starting import JobStarter
from queuelake.admin.server import SHUTDOWN_TIMEOUT_S, make_server
from queuelake.admin.services import Services
from queuelake.apikey import KeyFile
from queuelake.control import AdminStart, GrpcStart
from queuelake.control_client import ControlClient
from queuelake.logs import configure_logging

EXIT_USAGE = 2

log = logging.getLogger(__name__)


def main() -> int:
    try:
        start = msgspec.json.decode(sys.stdin.buffer.readline(), type=AdminStart)
    except msgspec.MsgspecError as exc:
        print(f"queuelake.admin is started by `queuelake serve`: {exc}", file=sys.stderr)
        return EXIT_USAGE
    configure_logging(start.log)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    data_dir = Path(start.data_dir)
    control = ControlClient(data_dir)
    starter = JobStarter(control, data_dir, start.lake)
    services = Services(control, KeyFile(data_dir), starter)
    app = create_app(services, start.console, grpc_beside(services, start.grpc))
    server = make_server(app)
    end_with_parent(server)
    server.run(sockets=[socket.socket(fileno=start.fd)])
    return 0


def grpc_beside(
    services: Services, start: GrpcStart | None
) -> AbstractAsyncContextManager[None] | None:
    """What serves gRPC; without it the rest is served all the same."""
    if start is None:
        return None
    # Jobs are other programs: gRPC need not prepare for a fork, nor say at each that it did not.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    try:
        from queuelake.admin.grpc.server import serving
    except Exception as exc:  # each of the libraries has its own words for "too old"
        log.error("no gRPC: %s", exc)
        return None
    return serving(services, start)


def end_with_parent(server: uvicorn.Server) -> None:
    """Stop the server when standard input ends; a thread, so that a stuck loop cannot miss it."""

    def watch() -> None:
        try:
            while os.read(0, 1024):
                pass
        except OSError:
            pass  # a broken pipe says the same as its end
        server.should_exit = True
        time.sleep(SHUTDOWN_TIMEOUT_S + 1)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
