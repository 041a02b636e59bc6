"""The examples of the pipeline run as their first lines say: real broker, real Spark."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.broker import BrokerProcess, package_root

ROOT = Path(__file__).resolve().parents[2]
RUN_S_MAX = 800
# Each starts Spark once or several times, which takes long on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def flight_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("examples"), {"flight.enabled": True})
    process.start()
    yield process
    process.stop()


def run_example(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, f"examples/{name}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
        env=os.environ | {"PYTHONPATH": package_root()},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def arguments_of(broker: BrokerProcess) -> list[str]:
    flight = f"grpc://127.0.0.1:{broker.flight_port}"
    return [str(broker.mqtt_port), str(broker.data_dir), flight]


def test_readings_which_are_too_hot_become_alerts(flight_broker: BrokerProcess) -> None:
    output = run_example("pipeline_alerts.py", *arguments_of(flight_broker)[:2])
    alerts = {line for line in output.splitlines() if line.startswith("alert: ")}
    assert alerts == {
        "alert: VIN2 has 93.1 C, call bert",
        "alert: VIN3 has 101.9 C, call cora",
        "alert: VIN9 has 99.0 C, call nobody",
    }


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("grpc_status") is None, reason="needs pyspark[pipelines]"
)
def test_a_declarative_pipeline_reads_a_queue(flight_broker: BrokerProcess) -> None:
    output = run_example("pipeline_declarative.py", *arguments_of(flight_broker))
    assert "VIN1: 101.9 C at most\nVIN2: 93.1 C at most\n" in output


@pytest.mark.slow
def test_a_cluster_reads_a_queue_and_writes_to_another(flight_broker: BrokerProcess) -> None:
    output = run_example("pipeline_cluster.py", *arguments_of(flight_broker))
    counts = {line for line in output.splitlines() if line.endswith(" messages")}
    assert counts == {f"k{number}: 10 messages" for number in range(10)}


@pytest.mark.slow
def test_from_zero_to_a_chart(tmp_path: Path) -> None:
    output = run_example("pipeline_fleet.py", str(tmp_path / "fleet"))
    assert "500 readings were published" in output
    assert "|VIN19|      25|" in output  # what was settled is in the lake, too
    page = (tmp_path / "fleet" / "report.html").read_text()
    assert f"<td>{500:,}</td>" in page
