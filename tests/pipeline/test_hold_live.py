"""A queue waits for its archive, within a limit: real messages, a real archive, real losses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuelake.apikey import read_api_key
from queuelake.flight import Shard
from tests.conftest import BrokerFactory
from tests.harness.broker import BrokerProcess
from tests.pipeline.conftest import options_of
from tests.pipeline.lakes import LakeUnderTest
from tests.pipeline.test_stream import Streaming
from tests.pipeline_broker.test_hold_kill import lag, stored
from tests.queues.client import QUOTA_EXCEEDED, QueueClient, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
[queues."kept"]
archive = true
partitions = 1
"""
HOLD_BYTES_MAX = 300_000
SIZE = 30_000  # of a message: about one to a chunk
MESSAGES_MAX = 100
WAIT_S = 60.0

MakePlant = Callable[[str], "Plant"]


class Plant:
    """A broker which keeps little for its archive, and a worker who settles all it gets."""

    def __init__(self, broker: BrokerProcess, folder: Path, spark: SparkSession) -> None:
        options = options_of(broker)
        self.broker = broker
        self.options = options
        token = read_api_key(broker.data_dir)
        self.lake = LakeUnderTest(folder / "lake", spark, options["uri"], token)
        self.streaming = Streaming(spark, options, folder)
        self.worker = QueueClient(broker.client(), "worker")
        self.worker.wire.connect("worker")
        assert self.worker.subscribe("kept", group="g") < 0x80

    def work(self, number: int) -> bool:
        """Publish one and settle it; False when it is refused."""
        code = self.worker.publish("kept", f"{number:04}".ljust(SIZE, "x"))
        if code == QUOTA_EXCEEDED:
            return False
        assert code == 0
        assert self.worker.ack(self.worker.receive()) == 0
        return True

    def has_dropped(self) -> bool:
        """As much as it has to: what is held is below the limit again."""
        (queue,) = lag(self.broker)["queues"]  # type: ignore[misc, attr-defined]
        return queue["lost"] > 0 and queue["held_bytes"] <= HOLD_BYTES_MAX

    def shard(self) -> Shard:
        with self.lake.context().connection as connection:
            (shard,) = connection.shards("messages", "$queue/kept")
        return shard


@pytest.fixture
def plant(fresh_broker: BrokerFactory, tmp_path: Path, spark: SparkSession) -> Iterator[MakePlant]:
    made: list[Plant] = []

    def make(hold: str) -> Plant:
        limits = {"lake.archive_hold_bytes_max": HOLD_BYTES_MAX, "lake.hold": hold}
        broker = fresh_broker({"flight.enabled": True} | limits, config=CONFIG)
        made.append(Plant(broker, tmp_path, spark))
        return made[-1]

    yield make
    for one in made:
        one.worker.wire.close()


def lake_numbers(lake: LakeUnderTest) -> list[int]:
    return [int(row["payload"][:4]) for row in lake.rows("messages")]


@pytest.mark.rule("acceptance 8")
def test_acceptance_8_a_full_hold_refuses_until_the_lake_has_it_and_the_space_is_free(
    plant: MakePlant,
) -> None:
    works = plant("reject")
    taken = next(number for number in range(MESSAGES_MAX) if not works.work(number))
    assert len(stored(works.broker)) == taken, "nothing of it is lost"
    assert lag(works.broker)["alarm"]
    works.lake.archive()
    assert lake_numbers(works.lake) == list(range(taken))
    wait_until(lambda: not stored(works.broker), WAIT_S)
    assert works.work(taken)
    works.lake.archive()
    assert lake_numbers(works.lake) == list(range(taken + 1))


@pytest.mark.rule("acceptance 18", "P3")
def test_acceptance_18_what_the_hold_dropped_is_an_error_or_a_gap(
    plant: MakePlant, spark: SparkSession
) -> None:
    works = plant("drop")
    first, count = 3, 30
    for number in range(first):
        assert works.work(number)
    works.streaming.run("$queue/kept")
    for number in range(first, count):
        assert works.work(number)
    wait_until(works.has_dropped, WAIT_S)
    shard = works.shard()
    lost = shard.lost[-1][1]
    assert first < lost < count == shard.upto
    words = f"messages of '$queue/kept', shard 0: rows {first + 1} to {lost} ({lost - first})"
    assert works.streaming.refused("$queue/kept").startswith(f"{words} were dropped")
    works.streaming.run("$queue/kept", failOnDataLoss="false")
    seen = sorted(row.seqno for row in works.streaming.rows().collect())
    assert seen == [*range(1, first + 1), *range(lost + 1, count + 1)]
    start = json.dumps({"$queue/kept": {"0": first}})
    reader = spark.read.format("queuelake").options(**works.options, queue="$queue/kept")
    reader = reader.option("startingOffsets", start)
    with pytest.raises(Exception, match=rf"rows {first + 1} to {lost} \({lost - first}\)"):
        reader.load().collect()
    rest = reader.option("failOnDataLoss", "false").load().orderBy("seqno").collect()
    assert [row.seqno for row in rest] == list(range(lost + 1, count + 1))
