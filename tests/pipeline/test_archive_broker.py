"""The archive on a real broker: kills, the hold, and readers of other makes (P9, P10)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuelake.apikey import read_api_key
from queuelake.pipeline.jobs import archive
from tests.harness.broker import BrokerProcess
from tests.pipeline.lakes import LakeUnderTest
from tests.queues.client import QueueClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
[queues."kept"]
archive = true
partitions = 2

[queues."json"]
archive = true
schema.format = "json"
schema.ddl = "a int"
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]  # the same after a restart: drivers know it
    settings = {"flight.enabled": True, "flight.port": port}
    process = BrokerProcess(tmp_path / "broker", settings, config=CONFIG)
    process.start()
    yield process
    process.close()


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession, broker: BrokerProcess) -> LakeUnderTest:
    uri = f"grpc://127.0.0.1:{broker.flight_port}"
    return LakeUnderTest(tmp_path / "my lake ü%", spark, uri, read_api_key(broker.data_dir))


def client(broker: BrokerProcess) -> QueueClient:
    client = QueueClient(broker.client(), "tester")
    client.wire.connect(client.client_id)
    return client


def publish(broker: BrokerProcess, queue: str, *payloads: str) -> None:
    producer = client(broker)
    for payload in payloads:
        assert producer.publish(queue, payload, user={"partition-key": payload}) == 0
    producer.disconnect()


def payloads(lake: LakeUnderTest, table: str = "messages") -> list[str]:
    return sorted(row["payload"].decode() for row in lake.rows(table))


@pytest.mark.rule("acceptance 5")
def test_acceptance_5_a_broker_killed_during_a_round_costs_nothing(
    lake: LakeUnderTest, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [f"m{number:03}" for number in range(60)]
    publish(broker, "kept", *sent[:40])
    pool = ThreadPoolExecutor(1)
    places = ["archive:messages:before_write", "archive:messages:before_mark"]

    def kill(name: str) -> None:
        if name in places:
            places.remove(name)
            broker.kill()
            pool.submit(broker.start)  # while the round goes on

    monkeypatch.setattr(archive, "failpoint", kill)
    lake.archive(rows_max=15)
    assert places == []
    pool.shutdown()
    publish(broker, "kept", *sent[40:])
    lake.archive()
    assert payloads(lake) == sent


@pytest.mark.rule("acceptance 8")
def test_acceptance_8_what_is_settled_is_kept_until_the_lake_has_it(
    lake: LakeUnderTest, broker: BrokerProcess
) -> None:
    sent = [f"m{number}" for number in range(8)]
    publish(broker, "kept", *sent)
    consumer = client(broker)
    consumer.subscribe("kept")
    consumer.receive_and_ack(len(sent))
    connection = lake.context().connection
    shards = connection.shards("messages", "$queue/kept")
    assert sum(shard.upto - shard.after for shard in shards) == len(sent)
    assert {shard.archived for shard in shards} == {0}
    lake.archive()
    assert payloads(lake) == sent
    marks = {shard.shard: shard.archived for shard in connection.shards("messages", "$queue/kept")}
    assert marks == {shard.shard: shard.upto for shard in shards}


@pytest.mark.rule("P10")
def test_p10_spark_duckdb_and_polars_read_the_same(
    tmp_path: Path, lake: LakeUnderTest, broker: BrokerProcess
) -> None:
    # Not every reader finds files in a folder with escaped characters.
    lake = LakeUnderTest(tmp_path / "lake", lake.spark, lake.place.url, lake.place.token)
    duckdb = pytest.importorskip("duckdb")
    polars = pytest.importorskip("polars")
    from deltalake import DeltaTable

    odd = "tele/ü b=1%/" + "x" * 120
    publish(broker, odd, "plain")
    publish(broker, "json", '{"a": 5}', "no")
    lake.archive()
    expected = {("$queue/json", 5), (f"$queue/{odd}", None)}
    uri = str(lake.path / "messages")
    by_spark = lake.lake.read(lake.spark, "messages").selectExpr("queue", "value.a")
    assert {tuple(row) for row in by_spark.collect()} == expected
    table = polars.read_delta(uri).unnest("value").select("queue", "a")
    assert set(table.iter_rows()) == expected
    dataset = DeltaTable(uri).to_pyarrow_dataset()
    database = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    database.register("messages", dataset)
    found = database.execute("select queue, value.a from messages where date > '2020-01-01'")
    assert set(found.fetchall()) == expected
    assert payloads(lake, "quarantine") == ["no"]
