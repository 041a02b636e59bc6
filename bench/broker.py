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
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from peers import Running, Starter, find_peers, in_own_folder, queuelake
from reports import aligned, median_text, run_generator


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
    mosquitto = find_peers()["mosquitto"]
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


def measure(scenario: Scenario, options: argparse.Namespace, mosquitto: Starter | None) -> Result:
    """Fresh brokers for the scenario, then turns: who goes first changes every round."""
    result = Result(scenario)
    # Memory is measured once: what earlier connections left behind is reused, not counted.
    rounds = options.rounds if scenario.count else 1
    count = max(1, scenario.count // (10 if options.quick else 1))
    with contextlib.ExitStack() as stack:
        subject = mosquitto if options.subject == "mosquitto" else queuelake()
        assert subject is not None
        turns = [("subject", stack.enter_context(in_own_folder(subject)))]
        if mosquitto is not None:
            turns.append(("peer", stack.enter_context(in_own_folder(mosquitto))))
        for number in range(rounds):
            for role, running in turns if number % 2 == 0 else turns[::-1]:
                extra = scenario.subject_load if role == "subject" else ()
                run_load(result, role, running, [*scenario.load, *extra], count)
    return result


def run_load(result: Result, role: str, running: Running, load: list[str], count: int) -> None:
    load = ["--count", str(count), "--label", role, *load]
    report, problem = run_generator("mqttload", running, load)
    result.reports.append(report)
    section, key = result.scenario.metric
    idle = report.get("idle", {})
    if problem:
        result.problems.append(f"{role}: {problem}")
    elif idle.get("up", 0) < idle.get("n", 0):
        result.problems.append(f"{role}: {idle['up']} of {idle['n']} connections")
    else:
        values = result.subject if role == "subject" else result.peer
        values.append(float(report[section][key]))


def table(results: list[Result], subject: str) -> str:
    rows: list[tuple[str, ...]] = [
        ("scenario", "unit", subject, "mosquitto", "ratio", "target", "")
    ]
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
    return aligned(rows)


def as_json(result: Result) -> dict[str, Any]:
    facts = {"ratio": result.ratio, "figure": result.figure, "verdict": result.verdict}
    return asdict(result) | facts


if __name__ == "__main__":
    sys.exit(main())
