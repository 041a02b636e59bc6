"""`spark.read.format("queuelake")` on a real broker: what was published is a table."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from queuelake.pipeline.failures import one_line
from queuelake.tables import MESSAGES
from tests.harness.broker import BrokerProcess
from tests.mq.conftest import KEY
from tests.mq.rest import MqRest
from tests.queues.client import QueueClient
from tests.sdv.client import Platform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Reading:
    """A read of one queue, as short as a test wants it."""

    def __init__(self, spark: SparkSession, options: dict[str, str], queue: str) -> None:
        self._spark = spark
        self._options = options | {"queue": f"$queue/{queue}"}

    def __call__(self, **options: object) -> DataFrame:
        given = self._options | {name: str(value) for name, value in options.items()}
        return self._spark.read.format("queuelake").options(**given).load()

    def payloads(self, **options: object) -> list[str]:
        rows = self(**options).orderBy("partition", "seqno").collect()
        return [bytes(row.payload).decode() for row in rows]

    def refused(self, **options: object) -> str:
        with pytest.raises(Exception) as caught:
            self(**options).collect()
        return one_line(caught.value)


@pytest.fixture
def read(spark: SparkSession, connect_options: dict[str, str], queue_name: str) -> Reading:
    return Reading(spark, connect_options, queue_name)


def publish(producer: QueueClient, queue: str, count: int, first: int = 0, **user: str) -> None:
    for number in range(first, first + count):
        assert producer.publish(queue, f"m{number}", user=user) == 0


@pytest.mark.rule("acceptance 1", "P2")
def test_acceptance_1_p2_a_batch_read_equals_what_was_published_in_all_columns(
    read: Reading, producer: QueueClient, queue_name: str
) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    user = {"partition-key": "k1", "message-id": "id-1", "colour": "red"}
    fields: dict[str, Any] = {"content_type": "text/plain", "message_expiry_interval": 3600}
    assert producer.publish(queue_name, b"\x00\xff", user=user, **fields) == 0
    assert producer.publish(queue_name, b"", qos=2) == 0
    first, second = read().orderBy("message_id").collect()[::-1]
    assert first.asDict() == {
        "queue": f"$queue/{queue_name}",
        "queue_id": second.queue_id,
        "partition": first.partition,
        "seqno": first.seqno,
        "message_id": "id-1",
        "key": "k1",
        "owner": None,
        "topic": f"$queue/{queue_name}",
        "payload": b"\x00\xff",
        "content_type": "text/plain",
        "properties": first.properties,
        "publisher": producer.client_id,
        "qos": 1,
        "ts": first.ts,
        "expires": first.expires,
    }
    assert first.properties["colour"] == "red"
    assert before < first.ts.astimezone(UTC) < datetime.now(UTC) + timedelta(seconds=1)
    assert timedelta(minutes=59) < first.expires - first.ts < timedelta(minutes=61)
    assert (second.payload, second.qos, second.key) == (b"", 2, None)
    assert second.message_id == f"$queue/{queue_name}:{second.partition}:{second.seqno}"


@pytest.mark.rule("P2")
def test_p2_the_schema_is_that_of_the_contract(read: Reading, queue_name: str) -> None:
    found = {field.name: field.dataType.simpleString() for field in read().schema.fields}
    assert found == MESSAGES


@pytest.mark.rule("P2")
def test_p2_every_kind_of_queue_is_a_table(
    read: Reading, producer: QueueClient, queue_name: str, lake_broker: BrokerProcess
) -> None:
    name = queue_name.replace("/", "-")
    rest = MqRest(lake_broker)
    rest.create(f"{name}/mq/#", name=f"{name}-mq", is_lastvalue=False)
    last = {"is_lastvalue": True, "key_expression": KEY}
    rest.create(f"{name}/last/#", name=f"{name}-last", **last)
    producer.subscribe(queue_name, group="g")
    publish(producer, queue_name, 1)
    assert producer.reject(producer.receive()) == 0
    for topic, payload, user in (
        (f"{name}/mq/x", "mq", {}),
        (f"{name}/last/x", "replaced", {"mq-key": "k"}),
        (f"{name}/last/x", "last", {"mq-key": "k"}),
        (f"$ECQ/w/{name}/door", "shut", {}),
        (f"$ECQ/w/{name}/door", "open", {}),
    ):
        assert producer.publish_topic(topic, payload, user=user) == 0
    platform = Platform(producer.wire, producer.client_id)
    assert platform.data(f"d-{name}", "roads") == 0
    assert platform.trigger([name], f"r-{name}", f"d-{name}") == 0
    rows = [row for row in read(queue="*").collect() if name in str(row) or queue_name in str(row)]
    found = {(row.queue, row.owner, row.key, bytes(row.payload)) for row in rows}
    assert found - {(f"$queue/{queue_name}", None, None, b"m0")} == {
        (f"$queue/dlq/{queue_name}", None, None, b"m0"),
        (f"$queue/{name}-mq", None, None, b"mq"),
        (f"$queue/{name}-last", None, "k", b"last"),
        ("$ECQ", name, "door", b"open"),
        ("$SDV-FANOUT", name, f"r-{name}", b"roads"),
    }


@pytest.mark.rule("P1")
def test_p1_reading_changes_nothing_and_gives_the_same_rows_again(
    read: Reading, producer: QueueClient, queue_name: str
) -> None:
    publish(producer, queue_name, 20)
    assert read.payloads() == read.payloads()
    producer.subscribe(queue_name, group="g")
    received = producer.receive_and_ack(20)
    assert {one.payload for one in received} == {f"m{n}" for n in range(20)}


@pytest.mark.rule("P4")
def test_p4_ranges_are_split_into_tasks(
    read: Reading, producer: QueueClient, queue_name: str
) -> None:
    producer.configure(queue_name, partitions=2)
    publish(producer, queue_name, 40)
    whole = read()
    assert whole.rdd.getNumPartitions() == whole.select("partition").distinct().count()
    split = read(maxRowsPerTask=5)
    assert split.rdd.getNumPartitions() >= 8
    assert sorted(split.collect()) == sorted(whole.collect())


@pytest.mark.rule("P3")
def test_p3_columns_narrow_what_is_read(
    read: Reading, producer: QueueClient, queue_name: str
) -> None:
    publish(producer, queue_name, 3)
    frame = read(columns="payload, qos")
    assert frame.columns == ["payload", "qos"]
    found = sorted((bytes(row.payload), row.qos) for row in frame.collect())
    assert found == [(b"m0", 1), (b"m1", 1), (b"m2", 1)]


@pytest.mark.rule("P3")
def test_p3_offsets_by_word_by_json_and_by_time(
    read: Reading, producer: QueueClient, queue_name: str
) -> None:
    publish(producer, queue_name, 3, **{"partition-key": "k"})
    row = read().first()
    assert row is not None
    time.sleep(0.01)  # the clock of the rows has milliseconds
    then = datetime.now(UTC)
    publish(producer, queue_name, 3, first=3, **{"partition-key": "k"})
    place = row.seqno + 1
    by_name = json.dumps({f"$queue/{queue_name}": {str(row.partition): place}})
    by_id = json.dumps({row.queue_id: {str(row.partition): place}})
    assert read.payloads(startingOffsets="latest") == []
    assert read.payloads(startingOffsets=by_name) == ["m2", "m3", "m4", "m5"]
    assert read.payloads(startingOffsets=by_id) == ["m2", "m3", "m4", "m5"]
    assert read.payloads(endingOffsets=by_id) == ["m0", "m1"]
    assert read.payloads(startingOffsets=then.isoformat()) == ["m3", "m4", "m5"]
    ms = int(then.timestamp() * 1000)
    assert read.payloads(endingOffsets=ms) == ["m0", "m1", "m2"]


@pytest.mark.rule("P4")
def test_p4_filters_of_the_query_narrow_what_is_read(
    read: Reading, producer: QueueClient, queue_name: str
) -> None:
    producer.configure(queue_name, partitions=4)
    publish(producer, queue_name, 40)
    rows = read().collect()
    one = rows[0].partition
    narrow = read().where(f"partition = {one} and seqno > 2 and seqno <= 4")
    assert narrow.rdd.getNumPartitions() == 1
    assert sorted(narrow.collect()) == sorted(
        row for row in rows if row.partition == one and 2 < row.seqno <= 4
    )
    listed = read().where("partition in (0, 2) and seqno in (1, 3)")
    assert sorted(listed.collect()) == sorted(
        row for row in rows if row.partition in (0, 2) and row.seqno in (1, 3)
    )
    future = datetime.now(UTC) + timedelta(hours=3)
    assert read().where(f"ts > timestamp'{future.isoformat()}'").count() == 0
    assert read().where(f"ts <= timestamp'{future.isoformat()}'").count() == 40
    assert read().where(f"ts = timestamp'{rows[0].ts.isoformat()}Z'").count() >= 1


def test_without_pushed_filters_a_plain_session_reads_all_the_same(
    spark: SparkSession, read: Reading, producer: QueueClient, queue_name: str
) -> None:
    publish(producer, queue_name, 5)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert read().where("seqno >= 0").count() == 5
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


@pytest.mark.rule("acceptance 17")
def test_acceptance_17_a_wrong_token_is_refused(read: Reading, lake_broker: BrokerProcess) -> None:
    assert "the API key is wrong" in read.refused(token="ql-0:no")


@pytest.mark.rule("P3")
@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("colums", "payload", "option 'colums' is unknown; there are uri, token"),
        ("columns", "payload,size", "option 'columns': 'size' is not a column of messages"),
        ("table", "message", "option 'table': 'message' is not one of messages, events, stats"),
        ("startingOffsets", "soon", "option 'startingOffsets': 'soon' is not earliest, latest"),
        ("maxRowsPerTask", "0", "option 'maxRowsPerTask': '0' is not a whole number"),
        ("failOnDataLoss", "no", "option 'failOnDataLoss': 'no' is not true or false"),
        ("queue", "$queue/none-such", "there is no queue '$queue/none-such'"),
    ],
)
def test_p3_a_wrong_option_is_one_line_naming_it(
    read: Reading, option: str, value: str, words: str
) -> None:
    assert read.refused(**{option: value}).startswith(words)
