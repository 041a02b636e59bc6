"""The archive over the Flight contract in memory: what it commits, wherever a round ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuelake.errors import AnswerError
from queuelake.flight import PayloadSchema, Shard
from queuelake.pipeline.failpoint import VARIABLE
from queuelake.pipeline.jobs import archive
from queuelake.pipeline.lake import definitions
from tests.harness.broker import package_root
from tests.pipeline.broker_in_memory import TOKEN, BrokerInMemory
from tests.pipeline.lakes import LakeUnderTest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JSON = PayloadSchema("json", "a int, b string")
DAY_US = 86_400_000_000


@pytest.fixture
def broker() -> Iterator[BrokerInMemory]:
    broker = BrokerInMemory()
    yield broker
    broker.shutdown()


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession, broker: BrokerInMemory) -> LakeUnderTest:
    return LakeUnderTest(tmp_path / "lake", spark, broker.uri, TOKEN)


def fill(broker: BrokerInMemory, queue: str, rows: int, first: int = 1) -> None:
    for number in range(first, first + rows):
        broker.put(queue, b"%d" % number, key=f"k{number % 5}")


@pytest.mark.rule("P9")
def test_p9_every_row_is_there_once_with_all_its_columns(
    lake: LakeUnderTest, broker: BrokerInMemory
) -> None:
    for shard in range(3):
        broker.put(
            "$queue/a",
            b"\x00\xff",
            shard=shard,
            key="k",
            owner="o",
            topic="t/x",
            message_id="m",
            content_type="c",
            properties=[("p", "1")],
            publisher="me",
            qos=1,
            expires=1_790_000_100_000_000,
        )
    broker.put("$queue/a", table="events", event="nacked", message_seqno=1, partition=0)
    broker.put("$queue/a", table="stats", enqueued=3, depth=3, latency_p50_ms=1.5)
    summary = lake.archive()
    assert summary.detail == {"messages": 3, "events": 1, "stats": 1}
    first, second, third = lake.rows("messages")
    assert [row["partition"] for row in (first, second, third)] == [0, 1, 2]
    assert first["ts"].isoformat() == "2026-09-21T14:13:20+00:00"
    assert first["date"].isoformat() == "2026-09-21"
    told = {name: first[name] for name in ("payload", "key", "owner", "properties", "qos")}
    assert told == {
        "payload": b"\x00\xff",
        "key": "k",
        "owner": "o",
        "properties": {"p": "1"},
        "qos": 1,
    }
    assert lake.rows("events")[0]["event"] == "nacked"
    assert lake.rows("stats")[0]["latency_p50_ms"] == 1.5


@pytest.mark.rule("P9")
def test_p9_a_second_run_continues_and_nothing_is_doubled(
    lake: LakeUnderTest, broker: BrokerInMemory
) -> None:
    fill(broker, "$queue/a", 50)
    lake.archive(rows_max=20)
    fill(broker, "$queue/a", 10)
    assert lake.archive().detail == {"messages": 10}
    assert lake.places() == [("$queue/a", seqno) for seqno in range(1, 61)]
    assert broker.marks["messages", "ab12-$queue/a", 0] == 60


@pytest.mark.rule("P9")
def test_p9_many_queues_are_one_commit(lake: LakeUnderTest, broker: BrokerInMemory) -> None:
    lake.archive()
    before = lake.lake.table(definitions.MESSAGES).version
    for number in range(300):
        broker.put(f"$queue/q{number}")
    lake.archive()
    assert len(lake.places()) == 300
    # One for the lease which is new, one for the rows.
    assert lake.lake.table(definitions.MESSAGES).version == before + 2


@pytest.mark.rule("P9")
def test_p9_rows_are_in_the_partition_of_their_queue_and_day(
    lake: LakeUnderTest, broker: BrokerInMemory
) -> None:
    for day in (3, 1, 2, 1):
        broker.put("$queue/a", ts=day * DAY_US + 5)
    lake.archive()
    files = lake.lake.table(definitions.MESSAGES).files()
    assert {file.partition["date"]: file.rows for file in files} == {
        "1970-01-02": 2,
        "1970-01-03": 1,
        "1970-01-04": 1,
    }
    assert len(lake.places()) == 4


def test_a_queue_made_anew_is_another_queue(lake: LakeUnderTest, broker: BrokerInMemory) -> None:
    broker.put("$queue/a", b"old", queue_id="ab-1")
    lake.archive()
    broker.put("$queue/a", b"new", queue_id="ab-2")
    lake.archive()
    assert [row["payload"] for row in lake.rows("messages")] == [b"old", b"new"]


def test_rows_which_are_gone_move_the_mark_and_lost_ones_are_counted(
    lake: LakeUnderTest, broker: BrokerInMemory
) -> None:
    broker.rows["messages", "ab-1", 0] = []
    shard = Shard("$queue/a", "ab-1", "durable", 0, 40, 40, lost=[(10, 30)])
    broker.shards["messages", "ab-1", 0] = shard
    assert lake.archive().detail == {"lost before they were archived": 20}
    assert broker.marks == {("messages", "ab-1", 0): 40}


@pytest.mark.rule("P9")
def test_p9_another_lake_is_refused_unless_it_is_adopted(
    lake: LakeUnderTest, broker: BrokerInMemory
) -> None:
    broker.put("$queue/a")
    broker.lakes["messages"] = "another table"
    with pytest.raises(AnswerError, match="the lake was another table"):
        lake.archive()
    broker.marks.clear()
    lake.archive(adopt=True)
    assert broker.marks == {("messages", "ab12-$queue/a", 0): 1}
    assert len(lake.places()) == 1


@pytest.mark.rule("P9a")
def test_p9a_a_holder_who_lost_the_lease_commits_nothing_and_begins_anew(
    lake: LakeUnderTest,
    broker: BrokerInMemory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(broker, "$queue/a", 5)
    lake.archive()
    fill(broker, "$queue/a", 5)

    def somebody_else(name: str) -> None:
        if name == "archive:messages:before_commit":
            monkeypatch.setattr(archive, "failpoint", lambda name: None)
            broker.take_lease(lake.lake.uri)
            lake.archive()

    monkeypatch.setattr(archive, "failpoint", somebody_else)
    assert lake.archive().detail == {}
    assert "came after ours" in caplog.text
    assert lake.places() == [("$queue/a", seqno) for seqno in range(1, 11)]


DRIVER = """
import sys
from queuelake.pipeline.jobs import archive, reprocess
from queuelake.pipeline.jobs.job import JobContext, Place
job, uri, token, lake, rows_max = sys.argv[1:]
context = JobContext(job, Place(url=uri, token=token, lake=lake, master="local[1]"))
if job == "archive":
    archive.run(context, archive.Options(once=True, rows_max=int(rows_max)))
else:
    reprocess.run(context, reprocess.Options())
"""


def dies_at(place: str, lake: LakeUnderTest, job: str = "archive", rows_max: int = 30) -> None:
    """A driver of its own, which is killed there."""
    command = [
        sys.executable,
        "-c",
        DRIVER,
        job,
        lake.place.url,
        lake.place.token,
        str(lake.path),
        str(rows_max),
    ]
    errors = lake.path.with_name("stderr.txt")  # no pipe: what the driver has started may hold it
    with errors.open("w") as stderr:
        ended = subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": package_root(), VARIABLE: place},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            check=False,
        )
    assert ended.returncode == -signal.SIGKILL, errors.read_text()[-2000:]
