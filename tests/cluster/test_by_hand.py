"""The commands of docs/cluster.md, as they are there; only the ports are free ones."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.broker import package_root

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "cluster.md"
# The ports in the document end in 1, 2 and 3, or in the number of a loop.
PORTS = re.compile(r"\b(422|622|188|1808)(?=[123]\b|\$i)")
READY_TIMEOUT_S = 90.0


def blocks() -> list[str]:
    section = DOCUMENT.read_text().partition("\n## Three nodes on one machine\n")[2]
    section = section.partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.S)


def free_prefix(taken: set[str]) -> str:
    """Four digits, of which the ports with 1, 2 and 3 behind them are free."""
    while True:
        prefix = str(random.randint(1100, 3100))
        if prefix not in taken and all(is_free(int(f"{prefix}{last}")) for last in (1, 2, 3)):
            return prefix


def is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Shell:
    """One shell in a directory of its own, with what it started in the background."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "bin").mkdir()
        program = directory / "bin" / "queuelake"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m queuelake.cli.main "$@"\n')
        program.chmod(0o755)
        paths = [str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
        self.environment = os.environ | {
            "PATH": ":".join(paths),
            "PYTHONPATH": package_root(),
        }
        self.log = directory / "log"
        self._groups: list[int] = []

    def start(self, script: str) -> None:
        """What is in the background of this script stays."""
        with self.log.open("a") as log:
            started = subprocess.Popen(
                ["bash", "-ec", script + "\nwait"],
                cwd=self.directory,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._groups.append(started.pid)

    def run(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (done, self.log.read_text()[-4000:])
        return done.stdout

    def wait_until_ready(self, count: int) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while self.log.read_text().count("ready mqtt://") < count:
            assert time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(0.1)

    def close(self) -> None:
        for group in reversed(self._groups):
            os.killpg(group, signal.SIGKILL)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def test_three_nodes_on_one_machine(shell: Shell) -> None:
    prefixes: dict[str, str] = {}
    for one in ("422", "622", "188", "1808"):
        prefixes[one] = free_prefix(set(prefixes.values()))
    servers, nodes, usage = [PORTS.sub(lambda found: prefixes[found[1]], one) for one in blocks()]
    shell.start(servers)
    shell.start(nodes)
    shell.wait_until_ready(3)
    shown = shell.run(usage)
    assert shown.startswith("cluster queuelake, asked at a; owner: ")
    assert re.search(r"^the owner is [abc]$", shown, re.M)
    assert "\nhello\n" in shown
    assert shown.rstrip().endswith(": equal")
