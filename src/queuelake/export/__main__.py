"""The export process, started by the broker: `python -m queuelake.export`.

It reads one JSON line (`ExportStart`) from standard input and serves Arrow Flight. The rest of
standard input says nothing until it ends, and its end says that the broker is gone.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path

import msgspec
import pyarrow as pa

from queuelake import control, control_client
from queuelake.control import ExportStart
from queuelake.errors import QueuelakeError
from queuelake.export.server import FlightServer
from queuelake.export.stores import Stores
from queuelake.logs import configure_logging

EXIT_USAGE = 2
START_TIMEOUT_S = 5.0
SHUTDOWN_TIMEOUT_S = 3.0

log = logging.getLogger("queuelake.export")


def main() -> int:
    try:
        start = msgspec.json.decode(sys.stdin.buffer.readline(), type=ExportStart)
    except msgspec.MsgspecError as exc:
        print(f"queuelake.export is started by `queuelake serve`: {exc}", file=sys.stderr)
        return EXIT_USAGE
    configure_logging(start.log)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=_end_with_parent, args=[stop], name="parent", daemon=True).start()
    data_dir = Path(start.data_dir)
    try:
        server = FlightServer(start, Stores.open(data_dir, start.stores, start.heartbeats))
    except (QueuelakeError, OSError, pa.ArrowException) as exc:
        log.error("flight does not listen on %s:%d: %s", start.bind, start.port, exc)
        return 1
    try:
        control_client.call(data_dir, control.CHILD_STARTED, {"name": "export"}, START_TIMEOUT_S)
    except QueuelakeError as exc:
        log.warning("the broker was not told of the start: %s", exc)
    stop.wait()
    # It waits for every call to end, however slow its reader is.
    ending = threading.Thread(target=server.shutdown, name="shutdown", daemon=True)
    ending.start()
    ending.join(SHUTDOWN_TIMEOUT_S)
    logging.shutdown()
    os._exit(0)  # a call which has not ended would keep the process


def _end_with_parent(stop: threading.Event) -> None:
    try:
        while os.read(0, 1024):
            pass
    except OSError:
        pass  # a broken pipe says the same as its end
    stop.set()


if __name__ == "__main__":
    sys.exit(main())
