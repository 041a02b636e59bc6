"""The lake of a real broker: drivers which die, two archivers, last values, and what must go."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from queuelake.apikey import read_api_key
from queuelake.errors import QueuelakeError
from queuelake.flight import Lease
from queuelake.pipeline.lake import definitions
from queuelake.pipeline.lake.table import EPOCH
from tests.harness.broker import BrokerProcess
from tests.mq.conftest import KEY
from tests.mq.rest import MqRest
from tests.pipeline.lakes import LakeUnderTest
from tests.pipeline.test_archive import dies_at
from tests.pipeline.test_retain import holding
from tests.queues.client import QueueClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
[queues."kept"]
archive = true
partitions = 2

[queues."json"]
archive = true
partitions = 1
schema.format = "json"
schema.ddl = "a int"
"""
SECRET = "customer-4711"
STEPS = ("before_write", "before_commit", "between", "before_mark")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker", {"flight.enabled": True}, config=CONFIG).start()
    yield process
    process.close()


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession, broker: BrokerProcess) -> LakeUnderTest:
    return lake_at(tmp_path / "lake", spark, broker)


def lake_at(path: Path, spark: SparkSession, broker: BrokerProcess) -> LakeUnderTest:
    uri = f"grpc://127.0.0.1:{broker.flight_port}"
    return LakeUnderTest(path, spark, uri, read_api_key(broker.data_dir))


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[QueueClient]:
    client = QueueClient(broker.client(), "tester")
    client.wire.connect(client.client_id)
    yield client
    client.wire.close()


def publish(client: QueueClient, queue: str, *payloads: str) -> list[str]:
    for payload in payloads:
        assert client.publish(queue, payload, user={"partition-key": payload}) == 0
    return list(payloads)


def payloads(lake: LakeUnderTest, queue: str, table: str = "messages") -> list[str]:
    rows = [row for row in lake.rows(table) if row["queue"] == f"$queue/{queue}"]
    return sorted(row["payload"].decode() for row in rows)


def end_lease(lake: LakeUnderTest) -> None:
    """A driver which was killed keeps it for a minute."""
    epoch = lake.lake.table(definitions.MESSAGES).applied(EPOCH)
    with lake.context().connection as connection:
        connection.release(Lease(lake.lake.uri, epoch, 0))


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a driver of its own for each step
@pytest.mark.rule("acceptance 4", "P9", "P9a")
def test_acceptance_4_a_driver_killed_at_any_step_leaves_an_exact_table(
    lake: LakeUnderTest, client: QueueClient
) -> None:
    good = [f'{{"a": {number}}}' for number in range(30)]
    bad = [f"no {number}" for number in range(10)]
    publish(client, "json", *(one for pair in zip(good, bad, strict=False) for one in pair))
    publish(client, "json", *good[len(bad) :])
    sent = publish(client, "kept", *(f"m{number}" for number in range(40)))
    left: set[str] = set()
    for number, step in enumerate(STEPS):
        dies_at(f"archive:messages:{step}", lake)
        left |= lake.data_files("messages")
        end_lease(lake)
        sent += publish(client, "kept", f"after {number}")
    lake.archive()
    assert payloads(lake, "kept") == sorted(sent)
    assert payloads(lake, "json") == sorted(good)
    assert payloads(lake, "json", "quarantine") == sorted(bad)
    with lake.context().connection as connection:
        shards = connection.shards("messages", "$queue/*")
    assert [shard.archived for shard in shards] == [shard.upto for shard in shards]
    committed = {file.path for file in lake.lake.table(definitions.MESSAGES).files()}
    assert lake.data_files("messages") == committed, "leftovers of failed batches are removed"
    assert left - committed, "and there were some"


@pytest.mark.rule("P9", "P9a")
def test_p9_a_second_archiver_neither_doubles_nor_skips(
    lake: LakeUnderTest, client: QueueClient
) -> None:
    sent = publish(client, "kept", *(f"m{number}" for number in range(60)))
    other = LakeUnderTest(lake.path, lake.spark, lake.place.url, lake.place.token)
    threads = [
        threading.Thread(target=one.archive, kwargs={"rows_max": 15}) for one in (lake, other)
    ]
    for thread in threads:
        thread.start()
    sent += publish(client, "kept", *(f"later {number}" for number in range(20)))
    for thread in threads:
        thread.join()
    lake.archive()
    assert payloads(lake, "kept") == sorted(sent)


@pytest.mark.rule("P9")
def test_p9_marks_belong_to_one_lake_unless_another_is_adopted(
    tmp_path: Path, lake: LakeUnderTest, broker: BrokerProcess, client: QueueClient
) -> None:
    publish(client, "kept", "a", "b")
    lake.archive()
    second = lake_at(tmp_path / "second", lake.spark, broker)
    with pytest.raises(QueuelakeError, match="adopt"):
        second.archive()
    publish(client, "kept", "c")
    second.archive(adopt=True, rows_max=1)
    assert payloads(second, "kept") == ["a", "b", "c"]
    with pytest.raises(QueuelakeError, match="adopt"):
        lake.archive()


@pytest.mark.rule("acceptance 9")
def test_acceptance_9_current_equals_a_dict_after_overwrites_and_tombstones(
    lake: LakeUnderTest, broker: BrokerProcess, client: QueueClient
) -> None:
    MqRest(broker).create("last/#", name="last", is_lastvalue=True, key_expression=KEY)
    dice = random.Random(9)
    model: dict[tuple[str, str], str] = {}
    for round_number in range(2):
        for number in range(80):
            key = f"k{dice.randrange(10)}"
            queue = dice.choice(["kept", "last"])
            payload = "" if dice.random() < 0.25 else f"{round_number}:{number}"
            user = {"partition-key": key, "mq-key": key}
            user |= {} if payload else {"tombstone": "true"}
            topic = "$queue/kept" if queue == "kept" else "last/x"
            assert client.publish_topic(topic, payload, user=user) == 0
            if payload:
                model[f"$queue/{queue}", key] = payload
            else:
                model.pop((f"$queue/{queue}", key), None)
        lake.archive(rows_max=50)
        lake.compact()
        rows = lake.rows("current")
        found = {(row["queue"], row["key"]): row["payload"].decode() for row in rows}
        assert len(found) == len(rows)
        assert found == model


@pytest.mark.rule("acceptance 10", "P11")
def test_acceptance_10_bad_json_waits_in_quarantine_until_the_schema_is_mended(
    lake: LakeUnderTest, client: QueueClient
) -> None:
    publish(client, "json", '{"a": 1}', '{"a": "two"}', "no", '{"a": 4}')
    lake.archive()
    assert [row["value"] for row in lake.rows("messages")] == [{"a": 1}, {"a": 4}]
    reasons = {row["payload"]: row["reason"] for row in lake.rows("quarantine")}
    assert reasons == {
        b'{"a": "two"}': "does not fit the schema: a is not int",
        b"no": "the payload is not JSON",
    }
    assert client.configure("json", schema={"format": "json", "ddl": "a string"}) == 0
    lake.reprocess()
    assert payloads(lake, "json") == ['{"a": "two"}', '{"a": 1}', '{"a": 4}']
    assert payloads(lake, "json", "quarantine") == ["no"]
    lake.archive()
    lake.reprocess()
    assert len(lake.rows("messages")) == 3


@pytest.mark.rule("acceptance 14")
def test_acceptance_14_an_erased_key_is_in_no_table_and_no_version(
    lake: LakeUnderTest, client: QueueClient
) -> None:
    client.subscribe("kept", group="g")
    for key, payload in ((SECRET, "one"), ("other", "two")):
        assert client.publish("kept", payload, user={"partition-key": key}) == 0
        assert client.reject(client.receive()) == 0
    assert client.publish("json", "no", user={"partition-key": SECRET}) == 0
    assert client.publish_topic(f"$ECQ/w/{SECRET}/door", "open") == 0
    lake.archive()
    lake.compact()
    before = {name: DeltaTable(lake.path / name).version() for name in ("messages", "current")}
    assert holding(lake, SECRET)
    assert {row["event"] for row in lake.rows("events")} >= {"rejected", "dead_lettered"}
    lake.retain(erase_keys=[SECRET])
    for table in ("messages", "current", "quarantine"):
        rows = lake.rows(table)
        assert not [row for row in rows if SECRET in (row["key"], row["owner"])]
    assert {row["payload"] for row in lake.rows("messages")} == {b"two"}
    left = {(row["partition"], row["seqno"]) for row in lake.rows("messages")}
    places = {(row["partition"], row["message_seqno"]) for row in lake.rows("events")}
    assert places <= left
    assert holding(lake, SECRET) == []
    for name, version in before.items():
        with pytest.raises(OSError, match=r"\.parquet"):
            lake.rows(name, version)
    # The broker still has the messages: they do not come back.
    lake.archive()
    assert {row["payload"] for row in lake.rows("messages")} == {b"two"}
