"""Events and minutes from a real broker: read by Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from queuelake.tables import EVENTS, STATS, STEPS
from tests.harness.broker import BrokerProcess
from tests.pipeline.conftest import options_of
from tests.queues.client import QueueClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIG = """
[queues.defaults]
partitions = 1
ordering = "none"
retry_policy = {max_retries = 2, initial_backoff = "100ms"}

[queues."all"]
events = "all"
performance.delivery_timeout = "1s"

[queues."fades"]
events = "all"
limits.message_ttl = "1s"

[queues."small"]
events = "all"
overflow = "drop_head"
limits.max_queue_depth = 1

[queues."silent"]
events = "off"
"""
# What happens in `works` below, counted by hand: the queue and its steps.
EXPECTED = {
    "$queue/all": {
        "enqueued": 4,
        "delivered": 6,
        "acked": 3,
        "nacked": 1,
        "rejected": 1,
        "timed_out": 1,
        "dead_lettered": 1,
    },
    "$queue/fades": {"enqueued": 1, "expired": 1},
    "$queue/small": {"enqueued": 2, "dropped": 1},
    "$queue/plain": {"enqueued": 2, "delivered": 2, "acked": 1, "rejected": 1, "dead_lettered": 1},
    "$queue/silent": {"enqueued": 1, "delivered": 1, "rejected": 1, "dead_lettered": 1},
    "$queue/dlq/all": {"enqueued": 1},
    "$queue/dlq/plain": {"enqueued": 1},
    "$queue/dlq/silent": {"enqueued": 1},
}


class Works:
    """A broker where each step happened, and was stopped once: minutes are written then."""

    def __init__(self, broker: BrokerProcess, spark: SparkSession) -> None:
        self.broker = broker
        self._spark = spark

    def read(self, table: str, **options: str) -> DataFrame:
        given = options_of(self.broker) | {"table": table, "queue": "*"} | options
        return self._spark.read.format("queuelake").options(**given).load()


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Works]:
    settings = {"flight.enabled": True}
    broker = BrokerProcess(tmp_path_factory.mktemp("works"), settings, config=CONFIG).start()
    happen(broker)
    broker.stop()
    broker.start()
    yield Works(broker, spark)
    broker.stop()


def connected(broker: BrokerProcess, name: str) -> QueueClient:
    client = QueueClient(broker.client(), name)
    client.wire.connect(name)
    return client


def happen(broker: BrokerProcess) -> None:
    producer, worker = connected(broker, "producer"), connected(broker, "worker")
    assert producer.publish("fades", "old") == 0
    worker.subscribe("all", group="g", prefetch="1")
    producer.publish_each("all", "good")
    assert worker.ack(worker.receive()) == 0
    producer.publish_each("all", "again")
    assert worker.nack(worker.receive()) == 0
    assert worker.ack(worker.receive_pinging()) == 0
    producer.publish_each("all", "bad")
    assert worker.reject(worker.receive(), reason="no such customer") == 0
    producer.publish_each("all", "slow")
    worker.receive()
    assert worker.ack(worker.receive_pinging()) == 0
    producer.publish_each("small", "first", "other")
    for queue, payloads in (("plain", ["bad", "good"]), ("silent", ["bad"])):
        other = connected(broker, f"worker-{queue}")
        other.subscribe(queue, group="g")
        for payload in payloads:
            producer.publish_each(queue, payload)
            settle = other.ack if payload == "good" else other.reject
            assert settle(other.receive()) == 0
        other.disconnect()
    fading = connected(broker, "late")
    fading.subscribe("fades", group="g")
    fading.expect_silence(2.0)  # the message has its second, and goes
    for client in (producer, worker, fading):
        client.disconnect()


def by_queue(rows: list[Any]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for row in rows:
        found.setdefault(row.queue, Counter())[row.event] += 1
    return {queue: dict(steps) for queue, steps in found.items()}


@pytest.mark.rule("P2")
def test_p2_every_step_is_a_row_of_events_as_the_queue_asks_for(works: Works) -> None:
    frame = works.read("events")
    assert {field.name: field.dataType.simpleString() for field in frame.schema} == EVENTS
    rows = frame.collect()
    expected = {queue: EXPECTED[queue] for queue in ("$queue/all", "$queue/fades", "$queue/small")}
    # By default what failed, and nothing of a queue whose events are off.
    expected["$queue/plain"] = {"rejected": 1, "dead_lettered": 1}
    assert by_queue(rows) == expected
    assert {row.event for row in rows} == set(STEPS)


@pytest.mark.rule("P2")
def test_p2_an_event_says_which_message_who_had_it_how_often_and_why(works: Works) -> None:
    rows = works.read("events", queue="$queue/all").orderBy("seqno").collect()
    assert [row.seqno for row in rows] == list(range(1, len(rows) + 1))
    bad = [row for row in rows if row.message_seqno == 3]
    assert [(row.event, row.reason) for row in bad] == [
        ("enqueued", None),
        ("delivered", None),
        ("rejected", "no such customer"),
        ("dead_lettered", "rejected"),
    ]
    assert {(row.partition, row.queue_id) for row in rows} == {(0, rows[0].queue_id)}
    again = [(row.event, row.group, row.consumer, row.attempt) for row in rows[3:8]]
    assert again[1:] == [
        ("delivered", "g", "worker", 1),
        ("nacked", "g", "worker", 1),
        ("delivered", "g", "worker", 2),
        ("acked", "g", "worker", 2),
    ]
    now = datetime.now(UTC)
    assert all(timedelta() <= now - row.ts.astimezone(UTC) < timedelta(hours=1) for row in rows)


@pytest.mark.rule("P2")
def test_p2_minutes_count_each_step_of_each_queue_always(works: Works) -> None:
    frame = works.read("stats")
    assert {field.name: field.dataType.simpleString() for field in frame.schema} == STATS
    rows = frame.collect()
    found = {queue: dict.fromkeys(STEPS, 0) for queue in EXPECTED}
    for row in rows:
        for step in STEPS:
            found[row.queue][step] += row[step]
        assert (row.ts.second, row.ts.microsecond) == (0, 0)
    assert found == {queue: dict.fromkeys(STEPS, 0) | EXPECTED[queue] for queue in EXPECTED}
    places = [(row.queue, row.seqno) for row in rows]
    assert len(set(places)) == len(places)
    last = {row.queue: row for row in sorted(rows, key=lambda row: row.seqno)}
    assert (last["$queue/small"].depth, last["$queue/small"].bytes) == (1, len("other"))
    worked = [row for row in rows if row.queue == "$queue/all" and row.delivered]
    for row in worked:
        assert 0 <= row.latency_p50_ms <= row.latency_p99_ms <= row.latency_max_ms
    # The one which was sent back, or the one which was too slow, came when it had waited.
    assert worked


@pytest.mark.rule("P4")
def test_p4_events_are_a_stream_as_well(works: Works, spark: SparkSession, tmp_path: Path) -> None:
    options = options_of(works.broker) | {"table": "events", "queue": "*"}
    reader = spark.readStream.format("queuelake").options(**options, maxRowsPerTrigger="7")
    writer = reader.load().writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.option("path", str(tmp_path / "rows")).start()
    assert query.awaitTermination(300)
    batch = works.read("events").collect()
    assert sorted(spark.read.parquet(str(tmp_path / "rows")).collect()) == sorted(batch)
