"""What a lake keeps, and what it must forget (acceptance 14)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuelake.errors import LeaseTakenError, RefusedError
from queuelake.flight import PayloadSchema
from queuelake.pipeline.jobs import retain
from tests.pipeline.broker_in_memory import TOKEN, BrokerInMemory
from tests.pipeline.lakes import LakeUnderTest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "customer-4711"
TABLES = ("messages", "current", "quarantine", "events")


@pytest.fixture
def broker() -> Iterator[BrokerInMemory]:
    broker = BrokerInMemory()
    yield broker
    broker.shutdown()


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession, broker: BrokerInMemory) -> LakeUnderTest:
    return LakeUnderTest(tmp_path / "lake", spark, broker.uri, TOKEN)


def ago_us(seconds: float) -> int:
    return int((time.time() - seconds) * 1_000_000)


def test_rows_older_than_an_age_are_deleted_by_queue(
    lake: LakeUnderTest, broker: BrokerInMemory
) -> None:
    for age_s in (86_400 * 30, 7_300, 10):
        for queue in ("$queue/a", "$queue/b"):
            broker.put(queue, b"x", key="k", ts=ago_us(age_s))
    broker.put("$queue/a", table="stats", ts=ago_us(86_400))
    lake.archive()
    lake.compact()
    gone = lake.retain(older_than_s=3600, queue="$queue/a").detail
    assert gone == {"messages": 2, "events": 0, "stats": 1, "quarantine": 0}
    assert lake.places() == [("$queue/a", 3), *(("$queue/b", seqno) for seqno in (1, 2, 3))]
    assert len(lake.rows("current")) == 2, "a last value has no age"
    lake.archive()
    assert len(lake.places()) == 4, "what was deleted does not come back"


def holding(lake: LakeUnderTest, needle: str) -> list[str]:
    """Files of the lake, data and logs of tables, in which the words can be found."""
    return [
        str(path.relative_to(lake.path))
        for path in lake.path.rglob("*")
        if path.is_file() and needle.encode() in path.read_bytes()
    ]


def fill(broker: BrokerInMemory) -> None:
    schema = PayloadSchema("json", "a int")
    broker.put("$queue/a", b'{"a": 1}', key=SECRET, schema=schema)
    broker.put("$queue/a", b"bad", key=SECRET)
    broker.put("$queue/a", b'{"a": 3}', key="other")
    broker.put("$ECQ", b"x", owner=SECRET, key="k")
    for seqno in (1, 2, 3):
        broker.put("$queue/a", table="events", event="nacked", message_seqno=seqno, partition=0)
    broker.put("$ECQ", table="events", event="expired", consumer=SECRET, partition=0)


@pytest.mark.rule("acceptance 14")
def test_acceptance_14_an_erased_key_is_nowhere_not_in_any_version(
    lake: LakeUnderTest, broker: BrokerInMemory
) -> None:
    fill(broker)
    lake.archive()
    lake.compact()
    broker.put("$queue/a", b'{"a": 4}', key=SECRET)
    lake.archive()
    lake.compact()  # replaced files hold it as well
    assert holding(lake, SECRET)
    gone = lake.retain(erase_keys=[SECRET]).detail
    assert gone == {"events": 3, "quarantine": 1, "current": 2, "messages": 3}
    assert lake.places() == [("$queue/a", 3)]
    assert lake.places("quarantine") == []
    assert [row["message_seqno"] for row in lake.rows("events")] == [3]
    assert [row["key"] for row in lake.rows("current")] == ["other"]
    assert holding(lake, SECRET) == []
    newest = lake.lake.table(retain.KEYED[-1]).version
    for version in range(newest + 1):
        try:
            keys = {row["key"] for row in lake.rows("messages", version)}
        except OSError:
            continue  # its files are gone
        assert SECRET not in keys
    lake.archive()
    lake.compact()
    assert lake.places() == [("$queue/a", 3)]


@pytest.mark.rule("acceptance 14")
def test_acceptance_14_an_erasure_which_dies_is_finished_by_the_next(
    lake: LakeUnderTest, broker: BrokerInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    fill(broker)
    lake.archive()
    for place in ("retain:after_events", "retain:before_vacuum"):

        def die(name: str, place: str = place) -> None:
            if name == place:
                raise Died

        with monkeypatch.context() as patched:
            patched.setattr(retain, "failpoint", die)
            with pytest.raises(Died):
                lake.retain(erase_keys=[SECRET])
    assert holding(lake, SECRET)
    lake.retain(erase_keys=[SECRET])
    assert holding(lake, SECRET) == []
    assert lake.places() == [("$queue/a", 3)]


def test_retain_says_what_it_needs(lake: LakeUnderTest, broker: BrokerInMemory) -> None:
    with pytest.raises(RefusedError, match="--older-than AGE, or --erase-key KEY"):
        lake.retain()
    broker.holders[lake.lake.uri] = ("archive-1@host", 1)
    with pytest.raises(LeaseTakenError, match="archive-1@host"):
        lake.retain(older_than_s=1, wait_s=0)
