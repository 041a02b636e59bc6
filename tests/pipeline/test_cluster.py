"""P14 on a standalone cluster of one master and two workers, and over Spark Connect."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.broker import package_root
from tests.pipeline.cluster import Cluster, run_program
from tests.queues.client import QueueClient

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

# Reads a queue, streams it into a second one, and reads that.
PROGRAM = """
import json, os, sys
from queuelake.pipeline.session import build_session, send_package

given = json.loads(os.environ["GIVEN"])
conf = {
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}
if given["executor_path"]:
    conf["spark.executorEnv.PYTHONPATH"] = given["executor_path"]
spark = build_session("cluster", given["master"], given["remote"], conf)
if given["by_value"]:
    send_package(spark)

def read(queue):
    reader = spark.read.format("queuelake").options(**given["options"], maxRowsPerTask="10")
    rows = reader.option("queue", queue).load().orderBy("payload").collect()
    return [bytes(row.payload).decode() for row in rows]

batch = read(given["queue"])
stream = spark.readStream.format("queuelake").options(**given["options"], maxRowsPerTrigger="12")
stream = stream.option("queue", given["queue"]).load().select("payload", "key")
writer = stream.writeStream.format("queuelake").options(**given["options"])
writer = writer.option("queue", given["queue"] + "/copy").trigger(availableNow=True)
query = writer.option("checkpointLocation", given["checkpoint"]).start()
query.awaitTermination()
print(json.dumps({"batch": batch, "copy": read(given["queue"] + "/copy")}))
spark.stop()
"""


def run(
    tmp_path: Path,
    options: dict[str, str],
    queue: str,
    *,
    master: str = "",
    remote: str | None = None,
    executor_path: str = "",
    by_value: bool = False,
) -> dict[str, list[str]]:
    given = {
        "master": master,
        "remote": remote,
        "executor_path": executor_path,
        "by_value": by_value,
        "options": options,
        "queue": f"$queue/{queue}",
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    path = os.pathsep.join([package_root(), os.environ.get("PYTHONPATH", "")])
    environ = {"GIVEN": json.dumps(given), "PYTHONPATH": path}
    found: dict[str, list[str]] = json.loads(run_program(PROGRAM, environ).splitlines()[-1])
    return found


@pytest.fixture
def published(producer: QueueClient, queue_name: str) -> list[str]:
    payloads = [f"m{number:02}" for number in range(20)]
    producer.publish_each(queue_name, *payloads)
    return payloads


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Its nodes lack our package, unless a program says where it is."""
    lacking = without_package(tmp_path_factory.mktemp("nodes"))
    with Cluster(tmp_path_factory.mktemp("cluster"), lacking) as cluster:
        yield cluster


@pytest.mark.rule("acceptance 15", "P14")
def test_acceptance_15_p14_a_cluster_reads_and_writes_with_the_package_installed(
    tmp_path: Path,
    connect_options: dict[str, str],
    queue_name: str,
    published: list[str],
    cluster: Cluster,
) -> None:
    found = run(
        tmp_path, connect_options, queue_name, master=cluster.url, executor_path=package_root()
    )
    assert found == {"batch": published, "copy": published}


@pytest.mark.rule("acceptance 15", "P14")
def test_acceptance_15_p14_a_cluster_reads_and_writes_with_the_package_by_value(
    tmp_path: Path,
    connect_options: dict[str, str],
    queue_name: str,
    published: list[str],
    cluster: Cluster,
) -> None:
    found = run(tmp_path, connect_options, queue_name, master=cluster.url, by_value=True)
    assert found == {"batch": published, "copy": published}


@pytest.mark.rule("P13")
@pytest.mark.skipif(
    importlib.util.find_spec("grpc_status") is None, reason="needs pyspark[connect]"
)
def test_p13_spark_connect_reads_and_writes(
    tmp_path: Path, connect_options: dict[str, str], queue_name: str, published: list[str]
) -> None:
    found = run(tmp_path, connect_options, queue_name, remote="local[2]")
    assert found == {"batch": published, "copy": published}


def without_package(folder: Path) -> str:
    """A path with which Python has every package but ours, and msgspec, which ours needs."""
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "for name in ('queuelake', 'pyspark_queuelake', 'msgspec'):\n"
        "    sys.modules[name] = None\n"
    )
    return str(folder)
