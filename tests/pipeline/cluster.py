"""A standalone cluster of Spark on this machine: one master, two workers, from the pip package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from queuelake.pipeline.java import find_java_home

START_S_MAX = 180.0
WORKERS = 2
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


class Cluster:
    """Nodes have the packages of this Python and `python_path`, unless an application gives its
    executors another path."""

    def __init__(self, folder: Path, python_path: str) -> None:
        self._folder = folder
        self._environ = {
            "JAVA_HOME": str(find_java_home(os.environ)),
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYTHONPATH": python_path,
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        try:
            self._start_all()
        except BaseException:
            self._stop_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop_all()

    def _start_all(self) -> None:
        log = self._start("master", MASTER, "--host", "127.0.0.1", "--port", "0")
        port = self._wait(log, r"Starting Spark master at \S+:(\d+)")
        self.url = f"spark://127.0.0.1:{port}"
        options = ("--host", "127.0.0.1", "--cores", "1", "--memory", "512m", self.url)
        logs = [self._start(f"worker-{n}", WORKER, *options) for n in range(WORKERS)]
        for log in logs:
            self._wait(log, r"Successfully registered with master (.*)")

    def _stop_all(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(60)

    def _start(self, name: str, *command: str) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / f"{name}.log"
        program = Path(self._environ["SPARK_HOME"], "bin", "spark-class")
        web = ("--webui-port", "0")
        with log.open("wb") as file:
            self._processes.append(
                subprocess.Popen(
                    [str(program), command[0], *web, *command[1:]],
                    env=self._environ,
                    stdout=file,
                    stderr=file,
                )
            )
        return log

    def _wait(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found[1]
            if any(process.poll() is not None for process in self._processes):
                break
            time.sleep(0.1)
        raise AssertionError(f"no {pattern!r} in {log.name}:\n{log.read_text()[-3000:]}")


def run_program(code: str, environ: dict[str, str], timeout_s: float = 850.0) -> str:
    """What a driver of its own printed; a process has one Spark context."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
