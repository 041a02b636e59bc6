"""The crash test of message queues in full: `python -m tests.soak.message_queues --kills 40`.

Prints one line per kill and a last line with the sums; the exit code is 0 when no promise was
broken. The data directory is kept when one was, and its path printed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.crash.mq_workload import MqWorkload
from tests.crash.ports import free_port
from tests.harness.broker import BrokerProcess

SHOWN_MAX = 40


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.message_queues")
    parser.add_argument("--kills", type=int, default=40, help="how often to kill (default 40)")
    parser.add_argument("--seed", type=int, default=1, help="dice for loads and moments")
    parser.add_argument("--quiet", action="store_true", help="only the last line")
    chosen = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="queuelake-message-queues-"))
    settings = {"listeners.mqtt.port": free_port(), "http.enabled": False}
    broker = BrokerProcess(directory, settings)
    try:
        report = (lambda line: None) if chosen.quiet else (lambda line: print(line, flush=True))
        outcome = MqWorkload(broker, chosen.seed).run(chosen.kills, report)
    finally:
        broker.close()
    for violation in outcome.violations[:SHOWN_MAX]:
        print(f"violation: {violation}")
    print(f"message_queues: {outcome}")
    if outcome.violations:
        print(f"kept: {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
