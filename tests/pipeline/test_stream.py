"""`spark.readStream.format("queuelake")` on a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from queuelake.flight import Shard
from queuelake.pipeline.failures import one_line
from tests.api.queue_rest import Rest
from tests.harness.broker import BrokerProcess
from tests.pipeline.flight_server import TOKEN, FakeFlight
from tests.queues.client import QueueClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WAIT_S = 300


class Streaming:
    """Streams into a folder of Parquet files, each with a checkpoint which can be used again."""

    def __init__(self, spark: SparkSession, options: dict[str, str], folder: Path) -> None:
        self._spark = spark
        self._options = options
        self._folder = folder

    def run(self, queue: str, **options: object) -> StreamingQuery:
        """All there is now, in batches; returns when it is done."""
        query = self.start(queue, **options)
        assert query.awaitTermination(WAIT_S)
        return query

    def start(self, queue: str, available_now: bool = True, **options: object) -> StreamingQuery:
        given = self._options | {name: str(value) for name, value in options.items()}
        frame = self._spark.readStream.format("queuelake").options(queue=queue, **given).load()
        writer = frame.writeStream.format("parquet").option("path", str(self._folder / "rows"))
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        if available_now:
            writer = writer.trigger(availableNow=True)
        return writer.start()

    def rows(self) -> DataFrame:
        return self._spark.read.parquet(str(self._folder / "rows"))

    def payloads(self) -> list[str]:
        return sorted(bytes(row.payload).decode() for row in self.rows().collect())

    def refused(self, queue: str, **options: object) -> str:
        with pytest.raises(Exception) as caught:
            self.run(queue, **options)
        return one_line(caught.value)


@pytest.fixture
def streaming(
    spark: SparkSession, connect_options: dict[str, str], tmp_path: Path
) -> Iterator[Streaming]:
    yield Streaming(spark, connect_options, tmp_path)
    for query in spark.streams.active:
        query.stop()


def publish(producer: QueueClient, queue: str, *numbers: int) -> None:
    for number in numbers:
        assert producer.publish(queue, f"m{number:04}") == 0


def names(*numbers: int) -> list[str]:
    return [f"m{number:04}" for number in numbers]


def batch_rows(query: StreamingQuery) -> list[int]:
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


@pytest.mark.rule("acceptance 2", "acceptance 3")
def test_acceptance_2_and_3_batches_have_the_size_asked_for_and_available_now_ends(
    streaming: Streaming, producer: QueueClient, queue_name: str
) -> None:
    producer.configure(queue_name, partitions=2)
    publish(producer, queue_name, *range(25))
    query = streaming.run(f"$queue/{queue_name}", maxRowsPerTrigger=10)
    assert batch_rows(query) == [10, 10, 5]
    assert streaming.payloads() == names(*range(25))


@pytest.mark.rule("P4")
def test_p4_a_query_goes_on_where_its_checkpoint_is(
    streaming: Streaming, producer: QueueClient, queue_name: str
) -> None:
    publish(producer, queue_name, *range(10))
    streaming.run(f"$queue/{queue_name}")
    publish(producer, queue_name, *range(10, 15))
    query = streaming.run(f"$queue/{queue_name}")
    assert batch_rows(query) == [5]
    assert streaming.payloads() == names(*range(15))
    assert not batch_rows(streaming.run(f"$queue/{queue_name}"))


@pytest.mark.rule("P4")
def test_p4_new_queues_join_a_pattern_and_deleted_ones_leave(
    streaming: Streaming, producer: QueueClient, queue_name: str, lake_broker: BrokerProcess
) -> None:
    publish(producer, f"{queue_name}/a", 1)
    pattern = f"$queue/{queue_name}/*"
    streaming.run(pattern, startingOffsets="latest")
    publish(producer, f"{queue_name}/b", 2, 3)
    assert Rest(lake_broker).queue(f"{queue_name}/a", method="DELETE").status in (200, 204)
    query = streaming.run(pattern, startingOffsets="latest")
    assert streaming.payloads() == names(2, 3)
    assert sum(batch_rows(query)) == 2


@pytest.mark.rule("P4")
def test_p4_a_queue_made_while_a_stream_of_all_queues_runs_joins_it(
    streaming: Streaming, producer: QueueClient, queue_name: str
) -> None:
    publish(producer, f"{queue_name}/old", 1)
    query = streaming.start("*", available_now=False, startingOffsets="latest")
    query.processAllAvailable()
    publish(producer, f"{queue_name}/new", 2, 3)
    publish(producer, f"{queue_name}/old", 4)
    query.processAllAvailable()
    query.stop()
    assert streaming.payloads() == names(2, 3, 4)


def test_a_stream_without_an_end_gets_what_comes(
    streaming: Streaming, producer: QueueClient, queue_name: str
) -> None:
    publish(producer, queue_name, 1)
    query = streaming.start(f"$queue/{queue_name}", available_now=False)
    query.processAllAvailable()
    publish(producer, queue_name, 2)
    query.processAllAvailable()
    query.stop()
    assert streaming.payloads() == names(1, 2)


def test_a_stream_has_no_ending_offsets(streaming: Streaming, queue_name: str) -> None:
    words = streaming.refused(f"$queue/{queue_name}", endingOffsets="latest")
    assert words == "option 'endingOffsets': a stream has no end; use it with read"


# What follows needs a service which loses rows, restarts with an older store, and the like.


@pytest.fixture
def server() -> Iterator[FakeFlight]:
    server = FakeFlight()
    yield server
    server.shutdown()


@pytest.fixture
def faked(spark: SparkSession, server: FakeFlight, tmp_path: Path) -> Streaming:
    options = {"uri": server.uri, "token": TOKEN, "retry_s": "20", "columns": "payload,seqno"}
    return Streaming(spark, options, tmp_path)


def give(server: FakeFlight, after: int, upto: int, **fields: Any) -> None:
    server.shards = [Shard("$queue/a", "s-1", "durable", 0, after, upto, **fields)]
    server.rows["s-1", 0] = list(range(after + 1, upto + 1))


@pytest.mark.rule("acceptance 18")
def test_acceptance_18_what_was_lost_is_an_error_which_names_it_or_a_gap(
    faked: Streaming, server: FakeFlight
) -> None:
    give(server, 0, 5)
    faked.run("$queue/a")
    give(server, 12, 20, archive=True, lost=[(8, 12)])
    assert faked.refused("$queue/a") == (
        "messages of '$queue/a', shard 0: rows 9 to 12 (4) were dropped before they were archived; "
        "failOnDataLoss=false reads on without them"
    )
    faked.run("$queue/a", failOnDataLoss="false")
    found = sorted(row.seqno for row in faked.rows().collect())
    assert found == [*range(1, 6), *range(13, 21)]


@pytest.mark.rule("acceptance 18")
def test_acceptance_18_a_batch_read_names_what_was_lost(
    spark: SparkSession, server: FakeFlight
) -> None:
    give(server, 12, 20, archive=True, lost=[(8, 12)])
    options = {"uri": server.uri, "token": TOKEN, "queue": "$queue/a", "columns": "payload,seqno"}
    start = json.dumps({"$queue/a": {"0": 10}})
    reader = spark.read.format("queuelake").options(**options, startingOffsets=start)
    with pytest.raises(Exception, match=r"rows 11 to 12 \(2\) were dropped"):
        reader.load().collect()
    assert reader.option("failOnDataLoss", "false").load().count() == 8
    # Who begins with what there is has lost nothing.
    assert spark.read.format("queuelake").options(**options).load().count() == 8


@pytest.mark.rule("acceptance 18")
def test_acceptance_18_a_checkpoint_of_another_store_is_refused_or_a_gap(
    faked: Streaming, server: FakeFlight
) -> None:
    give(server, 0, 5)
    faked.run("$queue/a")
    server.shards = [Shard("$queue/a", "other-1", "durable", 0, 0, 3)]
    server.rows["other-1", 0] = [1, 2, 3]
    assert faked.refused("$queue/a") == (
        "messages of '$queue/a': the checkpoint is of store s, this broker has store other; use "
        "another checkpointLocation, or failOnDataLoss=false to read all this store has"
    )
    faked.run("$queue/a", failOnDataLoss="false")
    found = sorted(row.seqno for row in faked.rows().collect())
    assert found == [1, 1, 2, 2, 3, 3, 4, 5]
    faked.run("$queue/a")  # the checkpoint is of this store now


def test_rows_which_were_settled_are_absent_not_lost(faked: Streaming, server: FakeFlight) -> None:
    give(server, 0, 5)
    faked.run("$queue/a")
    give(server, 12, 20, archive=True)
    faked.run("$queue/a")
    assert faked.rows().count() == 13


def test_a_store_older_than_the_checkpoint_is_noticed(faked: Streaming, server: FakeFlight) -> None:
    give(server, 0, 9)
    faked.run("$queue/a")
    give(server, 0, 4)
    assert faked.refused("$queue/a").startswith(
        "messages of '$queue/a', shard 0: 9 rows were read and there are 4"
    )


def test_a_restart_in_the_middle_of_a_task_is_not_noticed(
    faked: Streaming, server: FakeFlight
) -> None:
    give(server, 0, 100)
    server.interrupts = [3, 0, 2]
    server.down = 1
    faked.run("$queue/a")
    found = sorted(row.seqno for row in faked.rows().collect())
    assert found == list(range(1, 101))
