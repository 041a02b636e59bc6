"""Jobs on a real broker, started as users start them; killed where it hurts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from queuelake.apikey import read_api_key
from queuelake.client.blocking import Client
from queuelake.pipeline.jobs import archive, fanout, redrive, replay
from queuelake.pipeline.jobs.job import JobContext, Place
from tests.harness.broker import BrokerProcess, package_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from queuelake.client.blocking import Queue

ONCE = archive.Options(once=True)


class Plant:
    """A broker of its own, its lake, and the session of the tests."""

    def __init__(self, broker: BrokerProcess, spark: SparkSession) -> None:
        self.broker = broker
        self.spark = spark
        self.lake = broker.data_dir / "lake"
        url = f"grpc://127.0.0.1:{broker.flight_port}"
        self.place = Place(url, read_api_key(broker.data_dir), str(self.lake))

    def context(self, kind: str, job_id: str = "") -> JobContext:
        return JobContext(kind, self.place, job_id, self.spark)

    def client(self) -> Client:
        return Client("127.0.0.1", self.broker.mqtt_port)

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        """`queuelake pipeline ...`, with JSON lines on stdout."""
        line = [sys.executable, "-m", "queuelake.cli.main", "pipeline", *arguments, "--json"]
        return subprocess.Popen(
            [*line, "--data-dir", str(self.broker.data_dir), "--master", "local[2]"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": package_root()},
        )


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Plant]:
    broker = BrokerProcess(tmp_path_factory.mktemp("plant"), {"flight.enabled": True})
    broker.start()
    yield Plant(broker, spark)
    broker.stop()


def consume(queue: Queue, count: int, group: str = "g") -> list[Any]:
    found = []
    for message in queue.consume(group=group):
        found.append(message)
        message.ack()
        if len(found) == count:
            break
    return found


def lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def hit(process: subprocess.Popen[str], rows: int, number: signal.Signals) -> None:
    """Send a signal when so many rows are done, while more are to come."""
    for line in lines(process):
        if line["done"] >= rows:
            assert line["done"] < line["total"]
            process.send_signal(number)
            return
    raise AssertionError(process.stderr.read() if process.stderr else "")


@pytest.mark.slow
@pytest.mark.rule("acceptance 11")
@pytest.mark.timeout(600)
def test_acceptance_11_a_replay_which_is_killed_continues_without_doubles(plant: Plant) -> None:
    with plant.client() as client:
        orders = client.queue("orders")
        for number in range(60):
            orders.publish(f"m{number}".encode(), key=f"k{number % 3}")
    archive.run(plant.context("archive"), ONCE)
    arguments = ["replay", "--queue", "$queue/orders", "--to", "$queue/again", "--job-id", "j1"]
    process = plant.command(*arguments, "--rate", "10")
    hit(process, 20, signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    summary = replay.run(
        plant.context("replay", "j1"), replay.Options("$queue/orders", "$queue/again")
    )
    assert summary.detail == {"rows": 60}
    with plant.client() as client:
        got = consume(client.queue("again"), 60)
    assert sorted(message.payload for message in got) == sorted(
        f"m{number}".encode() for number in range(60)
    )
    assert len({message.id for message in got}) == 60
    assert all("original-ts" in message.properties for message in got)


@pytest.mark.slow
@pytest.mark.rule("P12")
@pytest.mark.timeout(600)
def test_p12_ctrl_c_ends_a_job_cleanly_and_the_next_run_continues(plant: Plant) -> None:
    with plant.client() as client:
        source = client.queue("stops")
        for number in range(40):
            source.publish(f"m{number}".encode())
    archive.run(plant.context("archive"), ONCE)
    arguments = ["replay", "--queue", "$queue/stops", "--to", "$queue/stopped", "--job-id", "j2"]
    process = plant.command(*arguments, "--rate", "5")
    hit(process, 5, signal.SIGINT)
    rest = list(lines(process))
    assert process.wait(60) == 130
    assert rest[-1]["state"] == "cancelled"
    assert "Traceback" not in (process.stderr.read() if process.stderr else "")
    options = replay.Options("$queue/stops", "$queue/stopped")
    assert replay.run(plant.context("replay", "j2"), options).detail == {"rows": 40}
    jobs = DeltaTable(plant.lake / "jobs").to_pyarrow_table().to_pylist()
    states = [(job["kind"], job["state"]) for job in jobs if job["id"] == "j2"]
    assert ("replay", "cancelled") in states  # beside the row of its plan


@pytest.mark.rule("acceptance 12")
@pytest.mark.timeout(600)
def test_acceptance_12_dead_letters_go_back_mended_and_leave_their_queue(plant: Plant) -> None:
    with plant.client() as client:
        bills = client.queue("bills")
        for number in range(6):
            bills.publish(f"{number} EURO".encode(), key=f"k{number}")
        for seen, message in enumerate(bills.consume(group="g"), 1):
            message.reject("no such currency" if message.payload[0] % 2 else "too late")
            if seen == 6:
                break
    options = redrive.Options(
        "$queue/dlq/bills",
        where="reason = 'rejected' AND reason_text = 'no such currency' AND key IS NOT NULL",
        set_payload="replace(string(payload), 'EURO', 'EUR')",
    )
    context = plant.context("redrive", "r1")
    assert redrive.run(context, options).detail == {"rows": 3}
    with plant.client() as client:
        got = consume(client.queue("bills"), 3)
    assert sorted(message.payload for message in got) == [b"1 EUR", b"3 EUR", b"5 EUR"]
    # Again for all of them: those which went back are not sent a second time.
    rest = redrive.run(plant.context("redrive"), redrive.Options("$queue/dlq/bills"))
    assert rest.detail["rows"] == 3
    with plant.client() as client:
        got = consume(client.queue("bills"), 3)
        assert sorted(message.payload for message in got) == [b"0 EURO", b"2 EURO", b"4 EURO"]
        letters = client.queue("dlq/bills").consume(group="g")
        with letters, pytest.raises(TimeoutError):
            letters.get(timeout=1.0)


@pytest.mark.slow
@pytest.mark.rule("acceptance 13")
@pytest.mark.timeout(600)
def test_acceptance_13_a_hundred_thousand_vehicles_and_half_of_them_called_off(
    plant: Plant, tmp_path: Path
) -> None:
    fleet = tmp_path / "fleet.parquet"
    plant.spark.range(100_000).selectExpr("concat('V', id) AS vin", "id % 2 AS odd").write.parquet(
        str(fleet)
    )
    data = tmp_path / "map.bin"
    data.write_bytes(b"roads of spring")
    options = fanout.Options("task_map_1", source=str(fleet), id_column="vin", data=data)
    done = fanout.run(plant.context("fanout", "f1"), options)
    assert (done.detail["vehicles"], done.detail["pending"]) == (100_000, 100_000)
    again = fanout.run(plant.context("fanout", "f1"), options)
    assert again.detail["triggered"] == 100_000
    half = fanout.Options(
        "task_map_1",
        sql="SELECT vin FROM fleet WHERE odd = 1",
        tables={"fleet": str(fleet)},
        id_column="vin",
        cancel=True,
    )
    called_off = fanout.run(plant.context("fanout"), half)
    assert called_off.detail["cancelled"] == 50_000
    left = fanout.request(plant.context("fanout"), "task_map_1")
    assert (left["pending"], left["cancelled"]) == (50_000, 50_000)
