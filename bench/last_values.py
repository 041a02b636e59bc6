"""A last-value queue with a million keys of 256 bytes: memory, disk, restart after a crash.

The queue is filled with nobody there, then the broker is killed with SIGKILL and started again on
the same data. Some values are overwritten, some are drained, and the memory is looked at each time:
neither the index of keys nor the messages may be in it as a whole.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backlog import FILL_S_MAX
from figures import Figure, LoadError, disk_bytes, seconds, show, status_mb
from message_queues import make_last_value
from peers import Running, open_queuelake, read_ports
from reports import run_generator

SIZE = 256
PART = 10_000  # overwritten, and drained
READY_S_TARGET, RSS_MB_TARGET = 3.0, 300.0
ONE_KEY_EACH = ("-P", "10", "-S", "0", "--size", str(SIZE), "--topic", "values/%d/%n")
TAKEN = ("-P", "0", "-S", "10", "--filter", "$q/values/#", "--drain-only")


def measure(folder: Path, count: int) -> Iterator[Figure]:
    data = folder / "data"
    with open_queuelake(folder) as process:
        ports = read_ports(process, folder)
        key = (data / "api-key").read_text().strip()
        running = Running(ports["mqtt"], process.pid, ports["http"], key)
        make_last_value(running)
        report = load(running, *ONE_KEY_EACH, "--count", str(count))
        yield Figure("fill", report["published_per_s"], "msg/s")
        yield Figure("fill, CPU", report["broker"]["us_per_msg"], "us/msg")
        yield from memory(process.pid, "filled")
        yield Figure("disk", disk_bytes(data) / 1e6, "MB")
        process.kill()
        process.wait()
    start_s = time.monotonic()
    with open_queuelake(folder) as process:
        running = Running(read_ports(process, folder)["mqtt"], process.pid)
        yield Figure("exec to ready, after kill -9", seconds(start_s), "s", READY_S_TARGET)
        yield from memory(process.pid, "restarted")
        start_s = time.monotonic()
        load(running, *ONE_KEY_EACH, "--count", "10")
        yield Figure("first overwrite", seconds(start_s), "s")
        yield from memory(process.pid, "after the first overwrite")
        report = load(running, *ONE_KEY_EACH, "--count", str(PART))
        yield Figure(f"{PART:,} overwritten, CPU", report["broker"]["us_per_msg"], "us/msg")
        report = load(running, *TAKEN, "--count", str(PART))
        yield Figure(f"{PART:,} drained", report["delivered_per_s"], "msg/s")
        yield from memory(process.pid, "drained")


def load(running: Running, *flags: str) -> dict[str, Any]:
    report, problem = run_generator("mqttload", running, list(flags), FILL_S_MAX)
    if problem:
        raise LoadError(problem)
    return report


def memory(pid: int, when: str) -> Iterator[Figure]:
    yield Figure(f"{when}: RSS of the broker", status_mb(pid, "VmRSS"), "MB", RSS_MB_TARGET)
    yield Figure(f"{when}: of that not mapped from files", status_mb(pid, "RssAnon"), "MB")


if __name__ == "__main__":
    sys.exit(show("last_values", __doc__, "keys", measure))
