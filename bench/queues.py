"""Durable queues beside RabbitMQ and NATS, their CPU per message as a multiple of M.

M is what mosquitto spends on one message, 1->1, QoS 1, 256 B, in the same run: mosquitto keeps
nothing, so M says what moving the bytes costs here. All brokers run side by side and take turns
under load; who goes first changes every round, and a figure is the median over the rounds. CPU is
that of the whole process tree.

Everybody confirms a publish when it is on disk, and settles each delivery by itself:
queuelake with a `$ack` publish or with PUBACK, RabbitMQ (quorum queue, AMQP) with basic.ack, NATS
(JetStream, `sync_interval: always`, its MQTT 3.1.1 listener) with PUBACK. Prefetch is 10, which is
the default of queuelake; RabbitMQ sets no limit by default, so the last load does without one, too.
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
from reports import LOAD_S_MAX, aligned, median_text, run_generator

# The loads publish as fast as they may: a backlog is no reason to refuse them.
CONFIG = """
[queues.defaults]
limits.max_queue_depth = 100000000
[queues."bench-one"]
partitions = 1
[queues."bench-wide"]
partitions = 1
performance.prefetch = 1000
"""
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

    @property
    def program(self) -> str:
        return "amqpload" if self.broker == "rabbitmq" else "mqttload"


def on_queue(queue: str, clients: int, *flags: str) -> tuple[str, ...]:
    topic = f"$queue/{queue}"
    many = ("-P", str(clients), "-S", str(clients), "--topic", topic, "--filter", topic)
    return (*many, "--pub-prop", "partition-key=k%d", "--sub-prop", "consumer-group=g", *flags)


ACK = ("--app-ack", "--ack-qos", "1")
M = "m"
ONE_TO_ONE = ("-P", "1", "-S", "1", "--qos", "1", "--size", "256")
LOADS = (
    Load(M, "1->1 QoS 1, nothing kept: M", "mosquitto", ONE_TO_ONE, 200_000),
    Load("ack", "10/10, $ack", "queuelake", on_queue("bench", 10, *ACK), 100_000, 0.5),
    Load(
        "puback",
        "10/10, ack-mode=puback",
        "queuelake",
        on_queue("bench", 10, "--sub-prop", "ack-mode=puback"),
        100_000,
        0.35,
    ),
    Load(
        "ack-rabbitmq",
        "10/10, quorum queue",
        "rabbitmq",
        ("-P", "10", "-S", "10", "--prefetch", "10"),
        50_000,
    ),
    Load(
        "one",
        "1/1, 1 partition, $ack, prefetch 10",
        "queuelake",
        on_queue("bench-one", 1, *ACK),
        100_000,
        0.5,
        beats="one-rabbitmq",
    ),
    Load(
        "one-rabbitmq",
        "1/1, quorum queue, prefetch 10",
        "rabbitmq",
        ("-P", "1", "-S", "1", "--prefetch", "10"),
        50_000,
    ),
    Load(
        "one-nats",
        "1/1, JetStream, MQTT 3.1.1",
        "nats",
        ("--version", "4", *ONE_TO_ONE, "--persistent"),
        10_000,
    ),
    Load(
        "wide",
        "1/1, 1 partition, $ack, prefetch 1000",
        "queuelake",
        on_queue("bench-wide", 1, *ACK),
        100_000,
        0.5,
        beats="wide-rabbitmq",
    ),
    Load(
        "wide-rabbitmq",
        "1/1, quorum queue, no prefetch limit",
        "rabbitmq",
        ("-P", "1", "-S", "1", "--prefetch", "0"),
        50_000,
    ),
)


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


def main() -> int:
    options = parse_arguments()
    starters: dict[str, Starter] = {"queuelake": queuelake(CONFIG)}
    for name, starter in find_peers().items():
        if starter is not None:
            starters[name] = starter
        elif any(load.broker == name for load in chosen(options)):
            print(f"{name} is not installed here: left out", file=sys.stderr)
    loads = [load for load in chosen(options) if load.broker in starters]
    results = {load.name: Result(load) for load in LOADS}
    with contextlib.ExitStack() as stack:
        brokers: dict[str, Running] = {}
        for name in sorted({load.broker for load in loads}):
            brokers[name] = stack.enter_context(in_own_folder(starters[name]))
        for number in range(1 if options.sustained else options.rounds):
            for load in loads if number % 2 == 0 else loads[::-1]:
                print(f"round {number + 1}: {load.broker}, {load.title}", file=sys.stderr)
                measure(results[load.name], brokers[load.broker], options)
    print(table(results, [load.name for load in loads]))
    if options.json:
        facts = [as_json(results[load.name], results) for load in loads]
        Path(options.json).write_text(json.dumps(facts, indent=2) + "\n")
    for result in results.values():
        for problem in result.problems:
            print(f"error: {result.load.name}: {problem}", file=sys.stderr)
    verdicts = [results[load.name].verdict(results) for load in loads]
    if "BROKEN" in verdicts:
        return 1
    return 1 if options.check and any(v.startswith("MISSED") for v in verdicts) else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench queues", description=__doc__)
    names = [load.name for load in LOADS]
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


def chosen(options: argparse.Namespace) -> list[Load]:
    return [load for load in LOADS if not options.only or load.name in (M, *options.only)]


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
    return asdict(result) | facts


if __name__ == "__main__":
    sys.exit(main())
