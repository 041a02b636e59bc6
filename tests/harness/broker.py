"""The real broker as a subprocess, on free ports, with its own data directory.

`BrokerProcess` waits for the one `ready` line and reads the addresses from it. Standard error goes
to a file in the data directory's parent; `conftest.py` shows its end when a test fails.

Set `QUEUELAKE_TEST_MQTT=host:port` to point the shared broker at one which already runs (another
broker, for a comparison). Tests which need their own broker are skipped then.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from tests.harness.machines import Machine
from tests.harness.wire import Wire

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 40.0
EXTERNAL_VARIABLE = "QUEUELAKE_TEST_MQTT"
SHARDS_VARIABLE = "QUEUELAKE_TEST_SHARDS"  # see sharded.py
DEFAULTS: dict[str, Any] = {
    "listeners.mqtt.port": 0,
    "listeners.ws.port": 0,
    "listeners.mqtts.port": 0,  # these two listen when there is a certificate
    "listeners.wss.port": 0,
    "http.port": 0,
    # They start slowly, and few tests need them.
    "grpc.enabled": False,
    "grpc.port": 0,
    "flight.enabled": False,
    "flight.port": 0,
}

running: list[BrokerProcess] = []


class BrokerError(AssertionError):
    """The broker did not start, or did not end, as it should."""


class Broker:
    """Where the clients of a test connect."""

    host = "127.0.0.1"
    mqtt_port = 0
    ws_port = 0
    http_port = 0
    grpc_port = 0
    flight_port = 0
    tls_port = 0
    wss_port = 0
    unix_path = ""

    def client(self, version: int = 5, **fields: Any) -> Wire:
        """A raw client, with its TCP connection open and no CONNECT sent."""
        return Wire(self.mqtt_port, version, host=self.host, **fields)


class ExternalBroker(Broker):
    """A broker somebody else runs: only its MQTT port is known."""

    def __init__(self, address: str) -> None:
        self.host, _, port = address.rpartition(":")
        self.mqtt_port = int(port)


class BrokerProcess(Broker):
    """`queuelake serve` in a directory of its own.

    `settings` are `--set` pairs, `config` the text of a TOML file, both on top of free ports.
    """

    def __init__(
        self,
        directory: Path,
        settings: dict[str, Any] | None = None,
        *,
        config: str = "",
        environment: dict[str, str] | None = None,
        machine: Machine | None = None,
    ) -> None:
        self.machine = machine or Machine()
        self.host = self.machine.host
        self.directory = directory
        self.data_dir = directory / "data"
        self.settings = DEFAULTS | (settings or {})
        self.config = config
        self.environment = environment or {}
        self.stderr_path = directory / "stderr.txt"
        self.urls: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the broker was not started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def command(self) -> list[str]:
        module = "tests.harness.sharded" if SHARDS_VARIABLE in os.environ else "queuelake.cli.main"
        line = [*self.machine.prefix, sys.executable, "-m", module, "serve"]
        if self.config:
            path = self.directory / "queuelake.toml"
            path.write_text(self.config)
            line += ["--config", str(path)]
        line += ["--data-dir", str(self.data_dir)]
        for key, value in self.settings.items():
            line += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
        return line

    def start(self) -> BrokerProcess:
        """Start and wait until the broker says it is ready."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.stderr_path.open("a") as stderr:
            self._process = subprocess.Popen(
                self.command(),
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=os.environ | {"PYTHONPATH": f"{package_root()}:{ROOT}"} | self.environment,
                text=True,
            )
        running.append(self)
        self._read_urls(self._wait_ready_line())
        return self

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it with SIGTERM and check that it ends cleanly, in time."""
        code = self._end(signal.SIGTERM)
        if code != 0:
            raise BrokerError(f"the broker ended with {code} after SIGTERM:\n{self.stderr_tail()}")

    def restart(self) -> BrokerProcess:
        """Start again on the same data, after `kill` or `stop` (which is done when it still runs).

        The ports are new ones: read `mqtt_port` again.
        """
        if self.alive():
            self.stop()
        return self.start()

    def close(self) -> None:
        """End it, however it is."""
        if self.alive():
            self.kill()

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stderr_tail(self, lines_max: int = 60) -> str:
        text = self.stderr_path.read_text(errors="replace") if self.stderr_path.exists() else ""
        return "\n".join(text.splitlines()[-lines_max:])

    def _end(self, number: signal.Signals) -> int:
        if self in running:
            running.remove(self)
        self.process.send_signal(number)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise BrokerError(f"still alive {STOP_TIMEOUT_S} s after {number.name}") from None

    def _wait_ready_line(self) -> str:
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert self.process.stdout is not None
        # The thread reads on to the end, so that a chatty broker never blocks on a full pipe.
        threading.Thread(target=_drain, args=(self.process.stdout, lines), daemon=True).start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = ""
            if line.startswith("ready "):
                return line
            if not line:
                # A broker which ended by itself keeps its own exit code.
                code = self._end(signal.SIGKILL)
                raise BrokerError(f"no ready line, exit code {code}:\n{self.stderr_tail()}")

    def _read_urls(self, line: str) -> None:
        self.urls = line.split()[1:]
        names = {
            "mqtt": "mqtt_port",
            "mqtts": "tls_port",
            "ws": "ws_port",
            "wss": "wss_port",
            "http": "http_port",
            "grpc": "grpc_port",
            "grpcs": "grpc_port",
            "flight": "flight_port",
            "flight+tls": "flight_port",
        }
        for url in self.urls:
            parts = urlsplit(url)
            if parts.scheme == "unix":
                self.unix_path = parts.path
            elif parts.scheme in names:
                setattr(self, names[parts.scheme], parts.port)


def _drain(stream: IO[str], lines: queue.SimpleQueue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def package_root() -> str:
    """The folder the tests themselves import `queuelake` from, so that both run the same build."""
    spec = importlib.util.find_spec("queuelake")
    if spec is None or spec.origin is None:
        return str(ROOT / "src")
    return str(Path(spec.origin).parents[1])
