"""Loads on brokers which run side by side: their CPU per message as a multiple of M.

M is what mosquitto spends on one message, 1->1, QoS 1, 256 B, in the same run: mosquitto keeps
nothing, so M says what moving the bytes costs here. All brokers take turns under load; who goes
first changes every round, and a figure is the median over the rounds. CPU is that of the whole
process tree.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from peers import Running, Starter, find_peers, in_own_folder, queuelake
from reports import LOAD_S_MAX, aligned, median_text, run_generator

SUSTAINED_S = 60
# What is measured for a minute should be a steady state, not a growing backlog.
SUSTAINED_LAG = ("--max-lag", "5000")


@dataclass(frozen=True)
class Load:
    """One load on one broker. `us_max` is in M; `beats` is a load with fewer messages a second."""

    name: str
    title: str
    broker: str
    flags: tuple[str, ...]
    count: int
    us_max: float | None = None
    beats: str = ""
    prepare: Callable[[Running], None] | None = None

    @property
    def program(self) -> str:
        return "amqpload" if self.broker == "rabbitmq" else "mqttload"


M = "m"
ONE_TO_ONE = ("-P", "1", "-S", "1", "--qos", "1", "--size", "256")
MOSQUITTO = Load(M, "1->1 QoS 1, nothing kept: M", "mosquitto", ONE_TO_ONE, 200_000)


@dataclass
class Result:
    load: Load
    us: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)

    def ratio(self, m: Result) -> float | None:
        if not self.us or not m.us or not statistics.median(m.us):
            return None
        return statistics.median(self.us) / statistics.median(m.us)

    def verdict(self, results: dict[str, Result]) -> str:
        if self.problems:
            return "BROKEN"
        missed = []
        ratio = self.ratio(results[M])
        if self.load.us_max is not None and ratio is not None and ratio > self.load.us_max:
            missed.append("CPU")
        other = results.get(self.load.beats)
        if other is not None and other.rates and self.rates:
            if statistics.median(self.rates) <= statistics.median(other.rates):
                missed.append("rate")
        if missed:
            return "MISSED " + " and ".join(missed)
        return "ok" if self.load.us_max is not None and ratio is not None else ""


def compare(name: str, description: str | None, config: str, loads: tuple[Load, ...]) -> int:
    """`scripts/bench NAME`: every load on its broker, as a table; M comes first."""
    every = (MOSQUITTO, *loads)
    options = parse_arguments(name, description, every)
    starters: dict[str, Starter] = {"queuelake": queuelake(config)}
    for peer, starter in find_peers().items():
        if starter is not None:
            starters[peer] = starter
        elif any(load.broker == peer for load in chosen(options, every)):
            print(f"{peer} is not installed here: left out", file=sys.stderr)
    used = [load for load in chosen(options, every) if load.broker in starters]
    results = {load.name: Result(load) for load in every}
    with contextlib.ExitStack() as stack:
        brokers: dict[str, Running] = {}
        for broker in sorted({load.broker for load in used}):
            brokers[broker] = stack.enter_context(in_own_folder(starters[broker]))
        for load in used:
            if load.prepare is not None:
                load.prepare(brokers[load.broker])
        for number in range(1 if options.sustained else options.rounds):
            for load in used if number % 2 == 0 else used[::-1]:
                print(f"round {number + 1}: {load.broker}, {load.title}", file=sys.stderr)
                measure(results[load.name], brokers[load.broker], options)
    print(table(results, [load.name for load in used]))
    if options.json:
        facts = [as_json(results[load.name], results) for load in used]
        Path(options.json).write_text(json.dumps(facts, indent=2) + "\n")
    for result in results.values():
        for problem in result.problems:
            print(f"error: {result.load.name}: {problem}", file=sys.stderr)
    verdicts = [results[load.name].verdict(results) for load in used]
    if "BROKEN" in verdicts:
        return 1
    return 1 if options.check and any(v.startswith("MISSED") for v in verdicts) else 0


def parse_arguments(
    name: str, description: str | None, loads: tuple[Load, ...]
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"scripts/bench {name}", description=description)
    names = [load.name for load in loads]
    parser.add_argument("--rounds", type=int, default=5, help="turns of each load (default 5)")
    parser.add_argument(
        "--only", action="append", choices=names, help=f"may be repeated; {M} is always there"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    parser.add_argument(
        "--sustained", action="store_true", help=f"one round, {SUSTAINED_S} s for each load"
    )
    parser.add_argument("--json", metavar="FILE", help="write every figure and report there")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    return parser.parse_args()


def chosen(options: argparse.Namespace, loads: tuple[Load, ...]) -> list[Load]:
    return [load for load in loads if not options.only or load.name in (M, *options.only)]


def measure(result: Result, running: Running, options: argparse.Namespace) -> None:
    load = result.load
    flags = ["--label", load.name, *load.flags]
    if options.sustained:
        flags += ["--duration", str(SUSTAINED_S), *SUSTAINED_LAG]
    else:
        flags += ["--count", str(load.count // (10 if options.quick else 1))]
    report, problem = run_generator(load.program, running, flags, LOAD_S_MAX)
    result.reports.append(report)
    if problem:
        result.problems.append(problem)
        return
    result.us.append(float(report["broker"]["us_per_msg"]))
    result.rates.append(float(report["msgs_per_s"]))
    if report["lat_us"].get("p99") is not None:
        result.p99_ms.append(float(report["lat_us"]["p99"]) / 1000)


def table(results: dict[str, Result], names: list[str]) -> str:
    rows: list[tuple[str, ...]] = [
        ("load", "broker", "us/msg", "M", "target", "msg/s", "p99 ms", "")
    ]
    for name in names:
        result = results[name]
        ratio, target = result.ratio(results[M]), result.load.us_max
        rows.append(
            (
                result.load.title,
                result.load.broker,
                median_text(result.us),
                "-" if ratio is None else f"{ratio:.2f}",
                "" if target is None else f"{target:g} M",
                f"{statistics.median(result.rates):,.0f}" if result.rates else "-",
                f"{statistics.median(result.p99_ms):,.1f}" if result.p99_ms else "-",
                result.verdict(results),
            )
        )
    return aligned(rows)


def as_json(result: Result, results: dict[str, Result]) -> dict[str, Any]:
    facts = {"ratio": result.ratio(results[M]), "verdict": result.verdict(results)}
    shown = {key: value for key, value in asdict(result).items() if key != "load"}
    return shown | {"load": result.load.title} | facts
