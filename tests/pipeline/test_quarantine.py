"""Payloads which fit their schema, and those which do not (P11, acceptance 10)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuelake.flight import PayloadSchema
from queuelake.pipeline.jobs import archive
from queuelake.pipeline.lake import definitions
from tests.pipeline.broker_in_memory import TOKEN, BrokerInMemory
from tests.pipeline.lakes import LakeUnderTest
from tests.pipeline.test_archive import dies_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUE = "$queue/json"
JSON = PayloadSchema("json", "a int, at struct<x:double>, many array<string>")


@pytest.fixture
def broker() -> Iterator[BrokerInMemory]:
    broker = BrokerInMemory()
    yield broker
    broker.shutdown()


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession, broker: BrokerInMemory) -> LakeUnderTest:
    return LakeUnderTest(tmp_path / "lake", spark, broker.uri, TOKEN)


def reasons(lake: LakeUnderTest) -> dict[bytes, str]:
    return {row["payload"]: row["reason"] for row in lake.rows("quarantine")}


@pytest.mark.rule("P11")
def test_p11_json_becomes_a_struct_or_a_reason(lake: LakeUnderTest, broker: BrokerInMemory) -> None:
    broker.put(QUEUE, b'{"a": 1, "at": {"x": 2.5}, "many": ["z"], "more": 1}', schema=JSON)
    for payload in (
        b"{}",
        b'{"a": "x"}',
        b'{"a": 1.5}',
        b"no",
        b"",
        b"[]",
        b"\xff",
        b"null",
        b'{"a": 1} more',
        b'{"a": 1}{"a": 2}',
    ):
        broker.put(QUEUE, payload)
    broker.put(QUEUE, b"", properties=[("tombstone", "true")])
    lake.archive()
    assert [row["value"] for row in lake.rows("messages")] == [
        {"a": 1, "at": {"x": 2.5}, "many": ["z"]},
        {"a": None, "at": None, "many": None},
        None,
    ]
    assert reasons(lake) == {
        b'{"a": "x"}': "does not fit the schema: a is not int",
        b'{"a": 1.5}': "does not fit the schema: a is not int",
        b"no": "the payload is not JSON",
        b"": "the payload is empty",
        b"[]": "does not fit the schema",
        b"\xff": "the payload is not UTF-8",
        b"null": "does not fit the schema",
        b'{"a": 1} more': "the payload is not JSON",
        b'{"a": 1}{"a": 2}': "the payload is not JSON",
    }


@pytest.mark.rule("P11")
def test_p11_csv_text_and_binary(lake: LakeUnderTest, broker: BrokerInMemory) -> None:
    broker.put(
        "$queue/csv", b'1,"x,y",2.5', schema=PayloadSchema("csv", "n int, s string, d double")
    )
    broker.put("$queue/csv", b"1,x")
    broker.put("$queue/text", "hällo".encode(), schema=PayloadSchema("text"))
    broker.put("$queue/text", b"\xff")
    broker.put("$queue/binary", b"\xff", schema=PayloadSchema("binary"))
    lake.archive()
    values = {row["queue"]: row["value"] for row in lake.rows("messages")}
    assert values["$queue/csv"] == {"n": 1, "s": "x,y", "d": 2.5, "text": None}
    assert values["$queue/text"] == {"n": None, "s": None, "d": None, "text": "hällo"}
    assert values["$queue/binary"] is None
    assert reasons(lake) == {
        b"1,x": "the payload is not CSV of 3 columns",
        b"\xff": "the payload is not UTF-8",
    }


@pytest.mark.rule("P11")
def test_p11_queues_with_other_schemas_and_schemas_which_grow_share_the_column(
    lake: LakeUnderTest, broker: BrokerInMemory
) -> None:
    broker.put("$queue/a", b'{"level": 1}', schema=PayloadSchema("json", "level int"))
    broker.put("$queue/b", b'{"level": "high"}', schema=PayloadSchema("json", "level string"))
    lake.archive()
    broker.set_schema("$queue/a", PayloadSchema("json", "level int, unit string"))
    broker.put("$queue/a", b'{"level": 2, "unit": "m"}')
    lake.archive()
    found = [(row["queue"], row["value"]) for row in lake.rows("messages")]
    assert found == [
        ("$queue/a", {"level": 1, "level_string": None, "unit": None}),
        ("$queue/a", {"level": 2, "level_string": None, "unit": "m"}),
        ("$queue/b", {"level": None, "level_string": "high", "unit": None}),
    ]


@pytest.mark.rule("P11")
def test_p11_a_schema_nobody_can_use_stops_nothing(
    lake: LakeUnderTest, broker: BrokerInMemory
) -> None:
    wrong = {
        b"1": (PayloadSchema("json", "a wrong type"), "the schema 'a wrong type' cannot be used"),
        b"2": (PayloadSchema("json", "a timestamp_ntz"), "a lake cannot hold timestamp_ntz"),
        b"3": (PayloadSchema("json", "a int, A int"), "a is there twice"),
        b"4": (PayloadSchema("csv", "a array<int>"), "column a of a CSV cannot be"),
    }
    for payload, (schema, _) in wrong.items():
        broker.put(f"$queue/{payload.decode()}", payload, schema=schema)
    broker.put("$queue/good", b"x")
    lake.archive()
    assert lake.places() == [("$queue/good", 1)]
    found = reasons(lake)
    for payload, (_, words) in wrong.items():
        assert words in found[payload]


@pytest.mark.rule("acceptance 10")
def test_acceptance_10_what_did_not_fit_moves_when_the_schema_is_mended(
    lake: LakeUnderTest, broker: BrokerInMemory
) -> None:
    broker.put(QUEUE, b'{"a": 1}', schema=PayloadSchema("json", "a int"))
    broker.put(QUEUE, b'{"a": "two"}')
    broker.put(QUEUE, b"never")
    lake.archive()
    assert lake.places("quarantine") == [(QUEUE, 2), (QUEUE, 3)]
    assert lake.reprocess().detail == {"moved to messages": 0, "still in quarantine": 2}
    broker.set_schema(QUEUE, PayloadSchema("json", "a string"))
    assert lake.reprocess().detail == {"moved to messages": 1, "still in quarantine": 1}
    assert [row["value"] for row in lake.rows("messages")] == [
        {"a": 1, "a_string": None},
        {"a": None, "a_string": "two"},
    ]
    assert lake.places("quarantine") == [(QUEUE, 3)]
    lake.archive()
    lake.reprocess()
    assert lake.places() == [(QUEUE, 1), (QUEUE, 2)]


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a driver of its own for each step
@pytest.mark.rule("acceptance 10")
def test_acceptance_10_a_reprocess_killed_at_any_step_moves_each_row_once(
    lake: LakeUnderTest, broker: BrokerInMemory
) -> None:
    broker.put(QUEUE, b"1", schema=PayloadSchema("json", "a int"))
    broker.put(QUEUE, b"2")
    lake.archive()
    broker.set_schema(QUEUE, PayloadSchema("text"))
    dies_at("reprocess:before_commit", lake, "reprocess")
    broker.take_lease(lake.lake.uri)
    assert lake.places() == []
    dies_at("reprocess:between", lake, "reprocess")
    broker.take_lease(lake.lake.uri)
    assert lake.places() == lake.places("quarantine") == [(QUEUE, 1), (QUEUE, 2)]
    assert lake.reprocess().detail == {"moved to messages": 0, "still in quarantine": 0}
    assert lake.places() == [(QUEUE, 1), (QUEUE, 2)]
    assert lake.places("quarantine") == []


def test_a_round_which_died_half_way_is_settled_whatever_the_schema_says_by_now(
    lake: LakeUnderTest, broker: BrokerInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    def die(name: str) -> None:
        if name == "archive:messages:between":
            raise Died

    broker.put(QUEUE, b'{"a": 1}', schema=PayloadSchema("json", "a int"))
    broker.put(QUEUE, b'{"a": "two"}')
    monkeypatch.setattr(archive, "failpoint", die)
    with pytest.raises(Died):
        lake.archive()
    monkeypatch.undo()
    assert lake.places() == []
    # Now the first row would not fit, and the second would.
    broker.set_schema(QUEUE, PayloadSchema("json", "a timestamp"))
    broker.put(QUEUE, b"{}")
    # Neither may be taken away from the archive before it is done with them.
    assert lake.reprocess().detail == {"moved to messages": 0, "still in quarantine": 1}
    lake.archive()
    assert lake.places() == [(QUEUE, 1), (QUEUE, 3)]
    assert lake.places("quarantine") == [(QUEUE, 2)]
    broker.set_schema(QUEUE, None)
    lake.reprocess()
    assert lake.places() == [(QUEUE, 1), (QUEUE, 2), (QUEUE, 3)]
    assert lake.lake.table(definitions.QUARANTINE).files() == []
