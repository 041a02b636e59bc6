"""Broker CPU per message, as a ratio to mosquitto's in the same run.

Absolute times say more about the machine than about the broker, so both brokers run side by side,
take turns under the same generator, and change who goes first from round to round. The figure of
a scenario is the median over its rounds. CPU is that of the whole process tree: a broker cannot
hide work in a child process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
GENERATOR = BENCH / "bin" / "mqttload"
START_S_MAX = 20.0
LOAD_S_MAX = 300.0


@dataclass(frozen=True)
class Scenario:
    """One load. `metric` is a path into the generator's report."""

    name: str
    title: str
    load: tuple[str, ...]
    count: int
    metric: tuple[str, str]
    unit: str
    target: float
    subject_load: tuple[str, ...] = ()  # added for the subject only
    is_ratio: bool = True  # the target is a ratio to mosquitto; otherwise an absolute value


ONE_TO_ONE = ("-P", "1", "-S", "1", "--qos", "1", "--size", "256")
PER_MESSAGE = ("broker", "us_per_msg")
SCENARIOS = (
    Scenario("qos1", "1->1 QoS 1, 256 B", ONE_TO_ONE, 200_000, PER_MESSAGE, "us/msg", 0.5),
    Scenario(
        "fanin",
        "10->1 QoS 0 fan-in",
        ("-P", "10", "-S", "1", "--qos", "0", "--size", "256", "--max-lag", "1000"),
        400_000,
        PER_MESSAGE,
        "us/msg",
        0.5,
    ),
    Scenario(
        "fanout",
        "1->100 QoS 1 fan-out",
        ("-P", "1", "-S", "100", "--qos", "1", "--size", "256", "--max-lag", "100"),
        3_000,
        ("broker", "us_per_delivery"),
        "us/delivery",
        0.6,
    ),
    Scenario(
        "fsync",
        "1->1 QoS 1, persistent subscriber",
        ONE_TO_ONE,
        200_000,
        PER_MESSAGE,
        "us/msg",
        0.7,
        subject_load=("--persistent",),
    ),
    Scenario(
        "idle",
        "5,000 idle connections",
        ("-P", "0", "-S", "0", "--idle", "5000", "--hold", "1"),
        0,
        ("idle", "kb_per_conn"),
        "KB each",
        12.0,
        is_ratio=False,
    ),
)


@dataclass
class Result:
    scenario: Scenario
    subject: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        if not self.subject or not self.peer or not statistics.median(self.peer):
            return None
        return statistics.median(self.subject) / statistics.median(self.peer)

    @property
    def figure(self) -> float | None:
        """What is held against the target."""
        if self.scenario.is_ratio:
            return self.ratio
        return statistics.median(self.subject) if self.subject else None

    @property
    def verdict(self) -> str:
        if self.problems:
            return "BROKEN"
        if self.figure is None:
            return "-"
        return "ok" if self.figure <= self.scenario.target else "MISSED"


def main() -> int:
    options = parse_arguments()
    mosquitto = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if options.subject == "mosquitto" and mosquitto is None:
        print("error: --subject mosquitto, but there is no mosquitto", file=sys.stderr)
        return 2
    results = []
    for scenario in SCENARIOS:
        if not options.only or scenario.name in options.only:
            print(f"{scenario.title} ...", file=sys.stderr, flush=True)
            results.append(measure(scenario, options, mosquitto))
    print(table(results, options.subject))
    if options.json:
        Path(options.json).write_text(json.dumps([as_json(r) for r in results], indent=2) + "\n")
    for result in results:
        for problem in result.problems:
            print(f"error: {result.scenario.name}: {problem}", file=sys.stderr)
    if any(result.problems for result in results):
        return 1
    return 1 if options.check and any(r.verdict == "MISSED" for r in results) else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--rounds", type=int, default=5, help="turns of each broker (default 5)")
    parser.add_argument("--only", action="append", choices=names, help="may be repeated")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    parser.add_argument("--json", metavar="FILE", help="write every figure and report there")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument(
        "--subject",
        choices=("queuelake", "mosquitto"),
        default="queuelake",
        help="mosquitto against itself shows the noise of this machine",
    )
    return parser.parse_args()


def measure(scenario: Scenario, options: argparse.Namespace, mosquitto: str | None) -> Result:
    """Fresh brokers for the scenario, then turns: who goes first changes every round."""
    result = Result(scenario)
    # Memory is measured once: what earlier connections left behind is reused, not counted.
    rounds = options.rounds if scenario.count else 1
    count = max(1, scenario.count // (10 if options.quick else 1))
    with contextlib.ExitStack() as stack:
        turns = [("subject", stack.enter_context(broker(options.subject, mosquitto)))]
        if mosquitto is not None:
            turns.append(("peer", stack.enter_context(broker("mosquitto", mosquitto))))
        for number in range(rounds):
            for role, running in turns if number % 2 == 0 else turns[::-1]:
                extra = scenario.subject_load if role == "subject" else ()
                run_load(result, role, running, [*scenario.load, *extra], count)
    return result


@dataclass(frozen=True)
class Running:
    port: int
    pid: int


@contextlib.contextmanager
def broker(name: str, mosquitto: str | None) -> Iterator[Running]:
    """A broker of its own data directory, ended when the scenario is."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        if name == "mosquitto":
            assert mosquitto is not None
            started = start_mosquitto(mosquitto, Path(folder))
        else:
            started = start_queuelake(Path(folder))
        process, port = started
        try:
            yield Running(port, process.pid)
        finally:
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def start_mosquitto(program: str, folder: Path) -> tuple[subprocess.Popen[str], int]:
    port = free_port()
    config = folder / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
    process = subprocess.Popen(
        [program, "-c", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return process, port
        time.sleep(0.05)
    process.kill()
    raise SystemExit(f"error: mosquitto does not listen on port {port} after {START_S_MAX:g} s")


def start_queuelake(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """Port 0 everywhere; the `ready` line on stdout says which one was taken."""
    program = Path(sys.executable).parent / "queuelake"
    command = [str(program), "serve", "--data-dir", str(folder / "data")]
    for key in ("listeners.mqtt.port", "listeners.ws.port", "http.port"):
        command += ["--set", f"{key}=0"]
    errors = (folder / "log").open("w+")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    for word in line.split():
        if line.startswith("ready ") and word.startswith("mqtt://"):
            return process, int(word.rpartition(":")[2])
    process.kill()
    errors.seek(0)
    raise SystemExit(f"error: queuelake did not get ready; it said {line!r}\n{errors.read()}")


def run_load(result: Result, role: str, running: Running, load: list[str], count: int) -> None:
    command = [str(GENERATOR), "--port", str(running.port), "--broker-pid", str(running.pid)]
    command += ["--count", str(count), "--label", role, *load]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_S_MAX, check=False)
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        result.problems.append(f"{role}: the generator failed: {done.stderr.strip()[-300:]}")
        return
    result.reports.append(report)
    section, key = result.scenario.metric
    idle = report.get("idle", {})
    if report.get("error") or report.get("lost") or report.get("disconnects"):
        shown = {k: report.get(k) for k in ("error", "lost", "disconnects")}
        result.problems.append(f"{role}: {shown}")
    elif idle.get("up", 0) < idle.get("n", 0):
        result.problems.append(f"{role}: {idle['up']} of {idle['n']} connections")
    else:
        values = result.subject if role == "subject" else result.peer
        values.append(float(report[section][key]))


def table(results: list[Result], subject: str) -> str:
    rows = [("scenario", "unit", subject, "mosquitto", "ratio", "target", "")]
    for result in results:
        scenario = result.scenario
        rows.append(
            (
                scenario.title,
                scenario.unit,
                median_text(result.subject),
                median_text(result.peer),
                "-" if result.ratio is None else f"{result.ratio:.2f}",
                f"{scenario.target:g}x" if scenario.is_ratio else f"{scenario.target:g} KB",
                result.verdict,
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def median_text(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def as_json(result: Result) -> dict[str, Any]:
    facts = {"ratio": result.ratio, "figure": result.figure, "verdict": result.verdict}
    return asdict(result) | facts


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
