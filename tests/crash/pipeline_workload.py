"""Publishing at a steady rate into an archived queue, while everything is killed now and then.

A publisher repeats each message, under its id, until it is acknowledged. Consumers settle all of
them, so nothing but the archive keeps a message in the store. A driver archives without a pause.
Broker, export process and driver are killed at random moments and started again. At the end the
lake must have each accepted message once, row for row, and the broker no more memory than before.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.broker import BrokerProcess, package_root
from tests.harness.packets import WireError
from tests.queues.client import SUCCESS, QueueClient

QUEUE = "soak"
CONFIG = """
[queues.soak]
archive = true
events = "all"
partitions = 3
dedupe_window = "1h"
"""
RATE_PER_S = 150
PAUSE_S = (2.0, 6.0)
CATCH_UP_TIMEOUT_S = 180.0
MEMORY_GROWTH_MAX = 1.35
VICTIMS = ("broker", "export", "driver")


@dataclass
class Outcome:
    accepted: int = 0
    archived: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    memory_mb: list[float] = field(default_factory=list)  # of the broker, before each of its ends
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} of {name}" for name, count in sorted(self.kills.items()))
        memory = " ".join(f"{one:.0f}" for one in self.memory_mb)
        return (
            f"{self.accepted} accepted, {self.archived} in the lake; killed: {kills};"
            f" broker MB: {memory}; {len(self.violations)} violations"
        )


class Publisher(threading.Thread):
    """One message after the other, each until it is acknowledged."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._ending = threading.Event()
        self.accepted: list[str] = []

    def run(self) -> None:
        number = 0
        client: QueueClient | None = None
        while not self._ending.is_set() or client is None:
            payload = f"m{number}"
            try:
                client = client or connected(self._broker, "publisher")
                user = {"message-id": payload, "partition-key": f"k{number % 17}"}
                if client.publish(QUEUE, payload, user=user) == SUCCESS:
                    self.accepted.append(payload)
                    number += 1
                    self._ending.wait(1 / RATE_PER_S)
            except (OSError, WireError, AssertionError):
                client = None
                if self._ending.wait(0.1):
                    return  # this one was never acknowledged: it may be there or not

    def end(self) -> str:
        """Stop; returns the message whose fate is not known."""
        self._ending.set()
        self.join(30)
        return f"m{len(self.accepted)}"


class Consumer(threading.Thread):
    """Settles everything, so that queues would delete it."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.is_set():
            with contextlib.suppress(OSError, WireError, AssertionError):
                client = connected(self._broker, "consumer")
                client.subscribe(QUEUE, group="g", ack_mode="puback")
                while not self.ending.is_set():
                    client.receive(timeout=1.0)
            self.ending.wait(0.1)


def connected(broker: BrokerProcess, client_id: str) -> QueueClient:
    client = QueueClient(broker.client(), client_id)
    client.wire.connect(client_id)
    return client


class Driver:
    """`queuelake pipeline archive`, continuous."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._process: subprocess.Popen[bytes] | None = None
        self._log = broker.directory / "driver.txt"

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command(), "--interval", "1"], stdout=log, stderr=log, env=_environment()
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def run_once(self) -> None:
        """Archive what is left; the lease of a killed driver has to end first."""
        deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
        while True:
            done = subprocess.run(
                [*self._command(), "--once"], capture_output=True, env=_environment(), check=False
            )
            if done.returncode == 0:
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"archive --once: {done.stderr.decode()}")

    def _command(self) -> list[str]:
        line = [sys.executable, "-m", "queuelake.cli.main", "pipeline", "archive", "--json"]
        return [*line, "--data-dir", str(self._broker.data_dir), "--master", "local[1]"]


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": package_root()}


class PipelineWorkload:
    """One run; `seed` decides who is killed when."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._broker = broker
        self._dice = random.Random(seed)
        self._driver = Driver(broker)
        self._outcome = Outcome()

    def run(self, seconds: float, kills_min: int, report: Callable[[str], None]) -> Outcome:
        publisher, consumer = Publisher(self._broker), Consumer(self._broker)
        publisher.start()
        consumer.start()
        self._driver.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline or sum(self._outcome.kills.values()) < kills_min:
            time.sleep(self._dice.uniform(*PAUSE_S))
            victim = self._dice.choice(VICTIMS)
            self._kill(victim)
            report(f"killed {victim}; {len(publisher.accepted)} accepted")
        uncertain = publisher.end()
        self._note_memory()
        self._driver.kill()
        self._driver.run_once()
        consumer.ending.set()
        self._compare(publisher.accepted, uncertain)
        self._check_memory()
        return self._outcome

    def _kill(self, victim: str) -> None:
        if self._driver.ended():  # it gave up while the broker was away
            self._driver.start()
        if victim == "broker":
            self._note_memory()
            self._broker.kill()
            self._broker.start()
        elif victim == "driver":
            self._driver.kill()
            self._driver.start()
        else:
            pid = export_pid(self._broker.pid)
            if pid is None:
                return  # it is being started
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._outcome.kills[victim] += 1

    def _note_memory(self) -> None:
        self._outcome.memory_mb.append(own_memory_mb(self._broker.pid))

    def _compare(self, accepted: list[str], uncertain: str) -> None:
        rows = lake_rows(self._broker.data_dir / "lake")
        payloads = Counter(payload for _, _, payload in rows)
        self._outcome.accepted, self._outcome.archived = len(accepted), len(rows)
        wanted = Counter(accepted)
        payloads.pop(uncertain, None)
        for payload in wanted - payloads:
            self._violation(f"{payload} is not in the lake")
        for payload in payloads - wanted:
            self._violation(f"{payload} is in the lake {payloads[payload]} times")
        places = Counter((partition, seqno) for partition, seqno, _ in rows)
        for place, count in places.items():
            if count > 1:
                self._violation(f"place {place} is in the lake {count} times")

    def _check_memory(self) -> None:
        """What it has in the second half of the run is no more than in the first."""
        memory = self._outcome.memory_mb
        first, second = memory[: len(memory) // 2], memory[len(memory) // 2 :]
        if first and max(second) > MEMORY_GROWTH_MAX * max(first):
            self._violation(f"the broker grew from {max(first):.0f} to {max(second):.0f} MB")

    def _violation(self, words: str) -> None:
        self._outcome.violations.append(words)


def lake_rows(lake: Path) -> list[tuple[int, int, str]]:
    """Partition, sequence and payload of every row of the queue in `messages`."""
    from deltalake import DeltaTable

    table = DeltaTable(str(lake / "messages"))
    columns = ["partition", "seqno", "payload"]
    found = table.to_pyarrow_table(columns=columns, filters=[("queue", "=", f"$queue/{QUEUE}")])
    return [(row["partition"], row["seqno"], row["payload"].decode()) for row in found.to_pylist()]


def export_pid(broker_pid: int) -> int | None:
    """The export process of a broker, from /proc."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == broker_pid and b"queuelake.export" in (entry / "cmdline").read_bytes():
                return int(entry.name)
    return None


def own_memory_mb(pid: int) -> float:
    """What the process has for itself, without the pages of the store it has mapped."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1000
    raise AssertionError("no RssAnon")
