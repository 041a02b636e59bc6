"""`df.write` and `df.writeStream` with `format("queuelake")` on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark import TaskContext

from queuelake.pipeline.connection import endpoint_from
from queuelake.pipeline.sink import QueueWriter, TaskFile, WriteOptions
from tests.pipeline.broker_in_memory import TOKEN
from tests.pipeline.queue_frames import Queue, names, numbers
from tests.pipeline.staging_in_memory import StagingBroker
from tests.queues.client import QueueClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def queue(
    spark: SparkSession, connect_options: dict[str, str], producer: QueueClient, queue_name: str
) -> Queue:
    assert producer.configure(queue_name, partitions=2) == 0
    return Queue(spark, connect_options, queue_name)


@pytest.mark.rule("P6")
def test_p6_rows_become_messages_with_every_column(queue: Queue, producer: QueueClient) -> None:
    frame = queue.spark.sql(
        """select cast('hello' as binary) payload, 'k1' key, map('colour', 'red') properties,
                  'text/plain' content_type, 'id-7' message_id"""
    )
    queue.append(frame)
    (row,) = queue.rows()
    assert (bytes(row.payload), row.key, row.message_id) == (b"hello", "k1", "id-7")
    assert row.content_type == "text/plain"
    assert row.properties["colour"] == "red"
    producer.subscribe(row.queue.removeprefix("$queue/"), group="g")
    delivery = producer.receive()
    assert (delivery.payload, delivery.message_id) == ("hello", "id-7")
    assert delivery.properties["colour"] == "red"


@pytest.mark.rule("P6")
def test_p6_delayed_rows_are_delivered_later(
    queue: Queue, producer: QueueClient, queue_name: str
) -> None:
    producer.subscribe(queue_name, group="g")
    queue.append(
        queue.spark.sql(
            """select col1 payload, col2 delay_ms
               from values ('now', 0), ('soon', 500), ('in an hour', 3600000)"""
        )
    )
    assert producer.receive().payload == "now"
    assert producer.receive_pinging().payload == "soon"
    producer.expect_silence()


@pytest.mark.rule("P7")
def test_p7_writes_without_a_job_are_batches_of_their_own(queue: Queue) -> None:
    queue.append(numbers(queue.spark, 0, 5))
    queue.append(numbers(queue.spark, 0, 5))
    assert queue.payloads() == sorted(names(0, 5) * 2)


@pytest.mark.rule("acceptance 6")
def test_acceptance_6_a_batch_which_is_written_again_adds_nothing(queue: Queue) -> None:
    job = str(uuid.uuid4())
    queue.append(numbers(queue.spark, 0, 100), jobId=job)
    queue.append(numbers(queue.spark, 0, 100), jobId=job)
    queue.append(numbers(queue.spark, 100, 110), jobId=job, batchId="1")
    assert queue.payloads() == names(0, 110)


def fails_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first attempt of a task breaks when all its rows are on their way."""
    yield from batches
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        raise RuntimeError("the first attempt")


def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise RuntimeError("every attempt")


@pytest.mark.rule("acceptance 6")
def test_acceptance_6_of_a_task_which_was_tried_twice_one_attempt_counts(queue: Queue) -> None:
    frame = numbers(queue.spark, 0, 100)
    queue.append(frame.mapInArrow(fails_at_first, frame.schema))
    assert queue.payloads() == names(0, 100)


@pytest.mark.rule("acceptance 6")
def test_acceptance_6_a_failed_write_leaves_nothing_and_its_repetition_is_whole(
    queue: Queue,
) -> None:
    job = str(uuid.uuid4())
    frame = numbers(queue.spark, 0, 100)
    broken = frame.where("payload < 'm000090'").mapInArrow(fails, frame.schema)
    assert "every attempt" in queue.refused(broken, jobId=job)
    assert queue.payloads() == []
    queue.append(frame, jobId=job)
    assert queue.payloads() == names(0, 100)


@pytest.mark.rule("acceptance 6")
def test_acceptance_6_a_replayed_batch_of_a_stream_adds_nothing(
    queue: Queue, tmp_path: Path
) -> None:
    """Spark loses what it knew of the end of a batch, as when the driver dies before writing it."""
    spark, source, checkpoint = queue.spark, tmp_path / "source", tmp_path / "checkpoint"
    numbers(spark, 0, 10).write.parquet(str(source))
    frame = spark.readStream.schema("payload string").parquet(str(source))
    queue.stream(frame, checkpoint)
    numbers(spark, 10, 30).write.mode("append").parquet(str(source))
    queue.stream(frame, checkpoint)
    assert queue.payloads() == names(0, 30)
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    numbers(spark, 30, 35).write.mode("append").parquet(str(source))
    queue.stream(frame, checkpoint)
    assert queue.payloads() == names(0, 35)


@pytest.mark.rule("acceptance 7", "P8")
def test_acceptance_7_p8_a_batch_too_large_for_the_queue_is_refused_whole(
    queue: Queue, producer: QueueClient, queue_name: str
) -> None:
    assert producer.configure(queue_name, limits={"max_queue_depth": 10}) == 0
    queue.append(numbers(queue.spark, 0, 8))
    words = queue.refused(numbers(queue.spark, 8, 16))
    assert queue_name in words
    assert "10" in words
    assert queue.payloads() == names(0, 8)


@pytest.mark.rule("P6")
def test_p6_rows_without_payload_are_refused(queue: Queue) -> None:
    frame = queue.spark.sql("select if(id = 3, null, 'x') payload from range(5)")
    assert "column 'payload' is null in 1 rows" in queue.refused(frame)
    assert queue.payloads() == []


@pytest.mark.rule("P6")
@pytest.mark.parametrize(
    ("select", "words"),
    [
        ("'k' key", "column 'payload' is missing"),
        ("'x' payload, 1 key", "column 'key' is int, '$queue/"),
        ("'x' payload, 'y' colour", "column 'colour': '$queue/"),
        ("'x' payload, map('a', 1) properties", "column 'properties' is map<string,int>"),
    ],
)
def test_p6_wrong_columns_are_named(queue: Queue, select: str, words: str) -> None:
    assert queue.refused(queue.spark.sql(f"select {select}")).startswith(words)


def test_wrong_options_are_named(queue: Queue) -> None:
    frame = numbers(queue.spark, 0, 1)
    assert queue.refused(frame, job="x").startswith("option 'job' is unknown")
    assert queue.refused(frame, batchId="x").startswith("option 'batchId': 'x' is not")
    assert queue.refused(frame, token="ql-0:no").endswith("the API key is wrong")
    with pytest.raises(Exception, match="a queue cannot be overwritten"):
        frame.write.format("queuelake").mode("overwrite").options(
            uri="grpc://127.0.0.1:1", token="k:s", queue="$queue/a"
        ).save()


@pytest.mark.rule("P7")
def test_p7_a_batch_write_under_a_known_job_id_warns(caplog: pytest.LogCaptureFixture) -> None:
    broker = StagingBroker()
    broker.staged["nightly/0/t"] = [{"payload": b"a"}]
    endpoint = endpoint_from({"uri": broker.uri, "token": TOKEN})
    columns = {"payload": "binary"}
    writer = QueueWriter(WriteOptions(endpoint, "$queue/a", "nightly", 0, "", "", columns))
    try:
        writer.commit([TaskFile("nightly", 0, "nightly/0/t")])
        assert not caplog.records
        writer.commit([TaskFile("nightly", 0, "nightly/0/t")])
    finally:
        broker.shutdown()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "jobId 'nightly', batch 0 was committed before: nothing was added" in record.message
    assert len(broker.queues["$queue/a"]) == 1
