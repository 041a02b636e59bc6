"""The crash test of the pipeline in full: `python -m tests.soak.pipeline --minutes 10`.

Prints one line per kill and a last line with the sums; the exit code is 0 when no promise was
broken. The data directory is kept when one was, and its path printed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.crash.pipeline_workload import CONFIG, PipelineWorkload
from tests.crash.ports import free_port
from tests.harness.broker import BrokerProcess

SHOWN_MAX = 40


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.pipeline", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long (default 10)")
    parser.add_argument("--seed", type=int, default=1, help="dice for moments and victims")
    parser.add_argument("--quiet", action="store_true", help="only the last line")
    chosen = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="queuelake-pipeline-"))
    settings = {
        "listeners.mqtt.port": free_port(),
        "flight.enabled": True,
        "flight.port": free_port(),
        "http.enabled": False,
    }
    broker = BrokerProcess(directory, settings, config=CONFIG).start()
    try:
        report = (lambda line: None) if chosen.quiet else (lambda line: print(line, flush=True))
        outcome = PipelineWorkload(broker, chosen.seed).run(chosen.minutes * 60, 0, report)
    finally:
        broker.close()
    for violation in outcome.violations[:SHOWN_MAX]:
        print(f"violation: {violation}")
    print(f"pipeline: {outcome}")
    if outcome.violations:
        print(f"kept: {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
