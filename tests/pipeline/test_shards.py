"""The pipeline on a real cluster of three nodes whose queues are spread over three shards."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from queuelake import control_mq, control_pipeline, control_queues
from queuelake.apikey import read_api_key
from queuelake.control_pipeline import ArchiveLag
from queuelake.flight import CommitAsked, Range, Stage
from queuelake.pipeline.connection import Connection, endpoint_from
from queuelake.pipeline.jobs import fanout, redrive, replay
from queuelake.pipeline.jobs.job import JobContext
from queuelake.placing import Placing
from tests.harness.broker import BrokerProcess
from tests.harness.cluster import Cluster
from tests.pipeline.conftest import options_of
from tests.pipeline.lakes import LakeUnderTest
from tests.queues.client import SUCCESS, QueueClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARDS = 3
COUNT = 30  # messages of each queue
PLACING = Placing(SHARDS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # Spark takes both cores for seconds: an owner which is only slow is to stay the owner.
    settings = {"cluster.shards": SHARDS, "flight.enabled": True, "cluster.lease": "1m"}
    with Cluster(tmp_path_factory.mktemp("shards"), settings) as running:
        running.eventually(
            lambda: all(one.owner for node in range(3) for one in running.info(node).shards),
            "not every shard has an owner",
        )
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


def lake_at(cluster: Cluster, node: int, folder: Path, spark: SparkSession) -> LakeUnderTest:
    """The one lake, and jobs which reach the cluster at this node."""
    broker = cluster.nodes[node]
    uri = f"grpc://127.0.0.1:{broker.flight_port}"
    return LakeUnderTest(folder, spark, uri, read_api_key(broker.data_dir))


def queue_in(shard: int, stem: str) -> str:
    names = (f"{stem}{number}" for number in range(1_000))
    return next(name for name in names if PLACING.of_queue(name) == shard)


def publish(broker: BrokerProcess, topics: dict[str, list[str]]) -> None:
    client = QueueClient(broker.client(), "producer")
    client.wire.connect(client.client_id)
    for topic, payloads in topics.items():
        for payload in payloads:
            assert client.publish_topic(topic, payload) == SUCCESS
    client.disconnect()


def wait_for_rows(cluster: Cluster, node: int, queue: str, rows: int) -> None:
    """A replica is told of the log some moments after it was written."""
    with Connection(endpoint_from(options_of(cluster.nodes[node]))) as connection:
        cluster.eventually(
            lambda: sum(one.upto for one in connection.shards(queue=queue)) >= rows,
            f"node {node} does not have {rows} rows of {queue}",
        )


def rows_of(lake: LakeUnderTest, queue: str) -> list[dict[str, Any]]:
    return [row for row in lake.rows("messages") if row["queue"] == queue]


def test_queues_of_all_shards_are_archived_once(
    cluster: Cluster, folder: Path, spark: SparkSession
) -> None:
    names = [queue_in(shard, "kept") for shard in range(SHARDS)]
    changes = b'{"archive": true, "partitions": 1, "events": "all"}'
    for name in names:
        cluster.ask(0, control_queues.QUEUE_CONFIGURE, object, name=name, changes=changes)
    created = json.dumps({"topic_filter": "plant/+", "is_lastvalue": False}).encode()
    cluster.ask(1, control_mq.MQ_CREATE, object, settings=created)
    topics = {f"$queue/{name}": [f"{name} {n}" for n in range(COUNT)] for name in names}
    captured = {f"plant/{n}": [f"of plant {n}"] for n in range(COUNT)}
    mailboxes = {f"$ECQ/w/device-{n}/state": [f"of device {n}"] for n in range(COUNT)}
    publish(cluster.nodes[1], topics | captured | mailboxes)
    for node in (0, 2):
        for queue in (*topics, "$q/plant/+", "$ECQ"):
            wait_for_rows(cluster, node, queue, COUNT)
        lake = lake_at(cluster, node, folder, spark)
        lake.archive()
        for queue, payloads in topics.items():
            found = rows_of(lake, queue)
            assert [row["payload"].decode() for row in found] == payloads
            assert len({row["queue_id"] for row in found}) == 1
        found = rows_of(lake, "$q/plant/+")
        assert Counter(row["topic"] for row in found) == Counter(captured.keys())
        assert len({row["queue_id"] for row in found}) == SHARDS
        owners = [row["owner"] for row in rows_of(lake, "$ECQ")]
        assert sorted(owners) == sorted(f"device-{n}" for n in range(COUNT))
        events = [row["queue"] for row in lake.rows("events") if row["event"] == "enqueued"]
        assert Counter(events) == dict.fromkeys(topics, COUNT)
    lag = cluster.ask(0, control_pipeline.ARCHIVE_LAG, ArchiveLag)
    assert {one.queue: one.archived for one in lag.queues if one.queue in topics} == {
        queue: [COUNT] for queue in topics
    }
    assert sum(one.behind for one in lag.queues) == 0


def test_a_lake_with_parts_of_queues_is_compacted_and_erased_from(
    cluster: Cluster, folder: Path, spark: SparkSession
) -> None:
    """A mailbox is in one part only, and its rows go from whichever it is."""
    writes = {f"$ECQ/w/folded-{n}/state": ["old", "new"] for n in range(COUNT)}
    publish(cluster.nodes[0], writes)
    lake = lake_at(cluster, 1, folder, spark)
    names = [f"folded-{n}" for n in range(COUNT)]

    def owners(table: str, payload: bytes) -> list[str]:
        rows = [row for row in lake.rows(table) if row["queue"] == "$ECQ"]
        found = [row["owner"] for row in rows if row["payload"] == payload]
        return sorted(owner for owner in found if owner in names)

    def is_archived() -> bool:
        lake.archive()
        return owners("messages", b"new") == sorted(names)

    cluster.eventually(is_archived, "not all mailboxes are in the lake")
    before = lake.rows("messages")
    lake.compact()
    assert lake.rows("messages") == before
    assert owners("current", b"new") == sorted(names)
    assert owners("current", b"old") == []
    lake.retain(erase_keys=names[: COUNT // 2])
    for table in ("messages", "current"):
        assert owners(table, b"new") == sorted(names[COUNT // 2 :])
    assert (
        len({row["queue_id"] for row in lake.rows("current") if row["queue"] == "$ECQ"}) == SHARDS
    )


def test_rows_are_replayed_to_a_queue_of_any_shard_once(
    cluster: Cluster, folder: Path, spark: SparkSession
) -> None:
    source = f"$queue/{queue_in(0, 'source')}"
    publish(cluster.nodes[0], {source: [f"{n}" for n in range(COUNT)]})
    wait_for_rows(cluster, 1, source, COUNT)
    lake = lake_at(cluster, 1, folder, spark)
    lake.archive()
    targets = [f"$queue/{queue_in(shard, 'again')}" for shard in (1, 2)]
    for target, node in [(targets[0], 1), (targets[1], 1), (targets[1], 2)]:
        place = lake_at(cluster, node, folder, spark).place
        context = JobContext("replay", place, f"replay to {target}", spark)
        replay.run(context, replay.Options(source, target))
        context.connection.close()
    for target in targets:
        wait_for_rows(cluster, 1, target, COUNT)
        with Connection(endpoint_from(options_of(cluster.nodes[1]))) as connection:
            assert sum(one.upto for one in connection.shards(queue=target)) == COUNT


def test_dead_letters_go_back_to_a_queue_of_another_node(
    cluster: Cluster, folder: Path, spark: SparkSession
) -> None:
    shard = next(one.shard for one in cluster.info(0).shards if one.owner != "q0")
    name = queue_in(shard, "mended")
    worker = QueueClient(cluster.nodes[0].client(), "worker")
    worker.wire.connect(worker.client_id)
    publish(cluster.nodes[0], {f"$queue/{name}": ["broken"]})
    worker.subscribe(name)
    assert worker.reject(worker.receive()) == SUCCESS
    wait_for_rows(cluster, 0, f"$queue/dlq/{name}", 1)
    context = lake_at(cluster, 0, folder, spark).context("redrive")
    options = redrive.Options(f"$queue/dlq/{name}", set_payload="'mended'")
    assert redrive.run(context, options).detail["rows"] == 1
    context.connection.close()
    assert [one.payload for one in worker.receive_and_ack(1)] == ["mended"]
    worker.disconnect()


def test_vehicles_of_all_shards_are_reached_in_bulk(
    cluster: Cluster, folder: Path, spark: SparkSession, tmp_path: Path
) -> None:
    vins = [f"vin-{number}" for number in range(300)]
    (tmp_path / "fleet.csv").write_text("id\n" + "\n".join(vins) + "\n")
    (tmp_path / "map.bin").write_bytes(b"map")
    vehicle = QueueClient(cluster.nodes[2].client(), vins[7])
    vehicle.wire.connect(vins[7])
    vehicle.wire.subscribe(f"agent/{vins[7]}/proxy/request/#", qos=1)
    for node in (0, 1):
        place = lake_at(cluster, node, folder, spark).place
        context = JobContext("fanout", place, "fanout-map", spark)
        options = fanout.Options("map_1", str(tmp_path / "fleet.csv"), data=tmp_path / "map.bin")
        detail = fanout.run(context, options).detail
        context.connection.close()
        assert (detail["vehicles"], detail["triggered"]) == (300, 300)
    assert vehicle.wire.expect_publish(ack=True).payload == b"map"
    vehicle.disconnect()


def test_batches_outlive_the_owner_of_their_shard(cluster: Cluster) -> None:
    """Each is there once, in spite of the node which was killed while they came."""
    owners = {one.shard: one.owner for one in cluster.info(0).shards}
    shard = next(shard for shard, owner in owners.items() if owner != "q0")
    killed = int(owners[shard].removeprefix("q"))
    target = f"$queue/{queue_in(shard, 'outlives')}"
    with Connection(endpoint_from(options_of(cluster.nodes[0]))) as connection:
        for batch in range(8):
            rows = pa.record_batch({"payload": [b"%d" % batch] * 1_000})
            stage = Stage("outlives", batch, target, "task")
            staged = connection.stage(stage, iter([rows]))
            assert staged is not None
            if batch == 3:
                cluster.kill_node(killed)
            asked = CommitAsked("outlives", batch, target, [staged.file])
            assert connection.commit(asked).rows == 1_000
            assert connection.commit(asked).repeated
        wait_for_rows(cluster, 0, target, 8_000)
        found = connection.shards(queue=target)
        tables = [
            batch
            for one in found
            for batch in connection.read(
                Range("messages", one.queue_id, one.shard, one.after, one.upto)
            )
        ]
    counts = Counter(payload for one in tables for payload in one["payload"].to_pylist())
    assert counts == {b"%d" % batch: 1_000 for batch in range(8)}
    cluster.start_nodes([killed])
