"""Three nodes with three NATS servers, beside a quorum queue on three RabbitMQ nodes.

A publisher and a consumer of one durable queue, QoS 1, 256 B, each delivery settled by itself:
with a `$ack` publish, and with basic.ack. Everybody confirms what a majority has on disk. Clients
are connected to the node which owns, or leads, the queue, and then to another one. CPU is that of
all nodes and of what they need. Latency is taken at a fixed rate. The two take turns, and a figure
is the median over the rounds.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clusters import Cluster, find_clusters, made
from figures import Figure, LoadError, show
from queues import CONFIG
from reports import run_generator
from usage import cpu_s

CPU_TARGET, P50_TARGET = 0.5, 1.0  # as a multiple of RabbitMQ's
ROUNDS = 3
RATE, PACED_S = 500, 8
PROGRAMS = {"queuelake": "mqttload", "rabbitmq": "amqpload"}
PREFETCHES = {"prefetch 10": "bench-one", "prefetch 1000": "bench-wide"}  # in CONFIG


@dataclass(frozen=True)
class Case:
    """One load; `is_paced` is for its latency, the others are for CPU."""

    prefetch: str
    place: str  # where clients are: "owner" or "another node"
    is_paced: bool = False

    @property
    def title(self) -> str:
        pace = f", {RATE}/s" if self.is_paced else ""
        return f"clients at {self.place}, {self.prefetch}{pace}"


CASES = (
    *(Case(prefetch, "owner") for prefetch in PREFETCHES),
    *(Case(prefetch, "another node") for prefetch in PREFETCHES),
    Case("prefetch 1000", "owner", is_paced=True),
    Case("prefetch 1000", "another node", is_paced=True),
)


class Samples:
    """What was measured, by broker, case and name."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, Case, str], list[float]] = defaultdict(list)

    def add(self, broker: str, case: Case, name: str, value: float) -> None:
        self._values[broker, case, name].append(value)

    def median(self, broker: str, case: Case, name: str) -> float:
        return statistics.median(self._values[broker, case, name])

    def names(self, broker: str, case: Case) -> list[str]:
        return [key[2] for key in self._values if key[:2] == (broker, case)]


def measure(folder: Path, count: int) -> Iterator[Figure]:
    samples = Samples()
    with contextlib.ExitStack() as stack:
        clusters: dict[str, Cluster] = {}
        for broker, starter in find_clusters(CONFIG).items():
            if starter is None:
                print(f"{broker} cannot be started here: left out", file=sys.stderr)
            else:
                clusters[broker] = stack.enter_context(starter(made(folder / broker)))
        for number in range(ROUNDS):
            for case in CASES:
                for broker, cluster in list(clusters.items())[:: 1 if number % 2 else -1]:
                    print(f"round {number + 1}: {broker}, {case.title}", file=sys.stderr)
                    put_under_load(samples, broker, cluster, case, count)
    for case in CASES:
        yield from figures_of(samples, case, list(clusters))


def put_under_load(samples: Samples, broker: str, cluster: Cluster, case: Case, count: int) -> None:
    running = cluster.first if case.place == "owner" else cluster.other
    flags = amqp_flags(cluster, case) if broker == "rabbitmq" else mqtt_flags(case)
    flags += ["-P", "1", "-S", "1", "--size", "256"]
    if case.is_paced:
        flags += ["--rate", str(RATE), "--duration", str(PACED_S)]
    else:
        flags += ["--count", str(count)]
    before_s = usage_of(cluster)
    report, problem = run_generator(PROGRAMS[broker], running, flags)
    if problem:
        raise LoadError(f"{broker}, {case.title}: {problem}")
    for part, used_s in usage_of(cluster).items():
        used_us = (used_s - before_s[part]) * 1e6 / int(report["published"])
        samples.add(broker, case, f"CPU of {part}", used_us)
    samples.add(broker, case, "CPU", float(report["broker"]["us_per_msg"]))
    samples.add(broker, case, "rate", float(report["msgs_per_s"]))
    for quantile in ("p50", "p99"):
        samples.add(broker, case, quantile, float(report["lat_us"][quantile]) / 1000)


def mqtt_flags(case: Case) -> list[str]:
    topic = f"$queue/{PREFETCHES[case.prefetch]}"
    flags = ["--topic", topic, "--filter", topic, "--sub-prop", "consumer-group=g"]
    return [*flags, "--pub-prop", "partition-key=k", "--qos", "1", "--app-ack", "--ack-qos", "1"]


def amqp_flags(cluster: Cluster, case: Case) -> list[str]:
    prefetch = case.prefetch.removeprefix("prefetch ")
    return ["--prefetch", prefetch, "--declare-port", str(cluster.first.port)]


def usage_of(cluster: Cluster) -> dict[str, float]:
    return {part: sum(map(cpu_s, pids)) for part, pids in cluster.parts.items()}


def figures_of(samples: Samples, case: Case, brokers: list[str]) -> Iterator[Figure]:
    wanted = {"p50": "ms", "p99": "ms"} if case.is_paced else {"CPU": "us/msg", "rate": "msg/s"}
    for broker in brokers:
        for name, unit in wanted.items():
            value = samples.median(broker, case, name)
            yield Figure(f"{broker}, {case.title}: {name}", value, unit)
        if not case.is_paced and broker == "queuelake":
            for part in [name for name in samples.names(broker, case) if name.startswith("CPU of")]:
                yield Figure(f"    {part}", samples.median(broker, case, part), "us/msg")
    if len(brokers) == len(PROGRAMS):
        compared, target = ("p50", P50_TARGET) if case.is_paced else ("CPU", CPU_TARGET)
        ours, theirs = (samples.median(broker, case, compared) for broker in PROGRAMS)
        title = f"{case.title}: {compared}, ours to RabbitMQ's"
        yield Figure(title, ours / theirs, "x", target)


if __name__ == "__main__":
    sys.exit(show("cluster", __doc__, "messages", measure, default=50_000))
