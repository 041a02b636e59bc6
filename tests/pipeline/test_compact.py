"""Last values, merged files, vacuum (P9, P9a, acceptance 9)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuelake.flight import PayloadSchema
from queuelake.pipeline.jobs import fold
from queuelake.pipeline.lake import definitions
from queuelake.pipeline.lake.newest import newest, without_tombstones
from tests.pipeline.broker_in_memory import TOKEN, BrokerInMemory
from tests.pipeline.lakes import LakeUnderTest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Model = dict[tuple[str, str | None, str], bytes]
TOMBSTONE = [("tombstone", "true")]


@pytest.fixture
def broker() -> Iterator[BrokerInMemory]:
    broker = BrokerInMemory()
    yield broker
    broker.shutdown()


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession, broker: BrokerInMemory) -> LakeUnderTest:
    return LakeUnderTest(tmp_path / "lake", spark, broker.uri, TOKEN)


def current(lake: LakeUnderTest) -> Model:
    rows = lake.rows("current")
    found = {(row["queue"], row["owner"], row["key"]): row["payload"] for row in rows}
    assert len(found) == len(rows), "one row for each key"
    return found


class Writing:
    """Random overwrites and tombstones, and a dict which does the same."""

    def __init__(self, broker: BrokerInMemory, seed: int) -> None:
        self.broker = broker
        self.dice = random.Random(seed)
        self.model: Model = {}
        self.generation = 0

    def write(self, rows: int) -> None:
        for number in range(rows):
            queue = self.dice.choice(["$queue/keyed", "$q/last", "$ECQ"])
            key = f"k{self.dice.randrange(12)}"
            owner = f"car{self.dice.randrange(3)}" if queue == "$ECQ" else None
            dead = self.dice.random() < 0.2
            payload = b"" if dead else b"%d-%d" % (self.generation, number)
            self.broker.put(
                queue,
                payload,
                queue_id=f"ab-{queue}-{self.generation}",
                shard=hash_of(f"{owner}/{key}") % 3,
                key=key,
                owner=owner,
                properties=TOMBSTONE if dead else [],
                ts=1_790_000_000_000_000 + self.generation * 1000,
            )
            if dead:
                self.model.pop((queue, owner, key), None)
            else:
                self.model[queue, owner, key] = payload
        self.broker.put("$queue/keyless", b"no key")


def hash_of(text: str) -> int:
    return sum(text.encode())


@pytest.mark.rule("acceptance 9")
def test_acceptance_9_current_is_what_a_dict_would_be(
    lake: LakeUnderTest, broker: BrokerInMemory
) -> None:
    writing = Writing(broker, 7)
    for rows in (150, 60):
        writing.write(rows)
        lake.archive(rows_max=80)
        lake.compact()
        assert current(lake) == writing.model
    writing.generation += 1  # the queues are deleted and made anew
    writing.write(60)
    lake.archive()
    assert lake.compact().detail["rows folded"] == 60 + 1
    assert current(lake) == writing.model
    assert lake.compact().detail == {"rows folded": 0, "files merged": 0, "files removed": 0}


def test_files_are_merged_vacuumed_and_the_rows_stay(
    lake: LakeUnderTest, broker: BrokerInMemory
) -> None:
    schema = PayloadSchema("json", "a int")
    for number in range(4):
        broker.put("$queue/a", b'{"a": %d}' % number, schema=schema, key="k")
        lake.archive()
        if number == 1:
            broker.set_schema("$queue/a", schema := PayloadSchema("json", "a int, b string"))
    before = lake.rows("messages")
    assert len(lake.lake.table(definitions.MESSAGES).files()) == 4
    assert lake.compact().detail == {"rows folded": 4, "files merged": 4, "files removed": 0}
    assert lake.rows("messages") == before
    assert len(lake.data_files("messages")) == 5, "earlier versions can be read for a week"
    assert lake.compact(vacuum_hours=0).detail["files removed"] == 4
    assert lake.rows("messages") == before
    broker.put("$queue/a", b'{"a": 9}', key="k")
    lake.archive()
    assert lake.places() == [("$queue/a", seqno) for seqno in range(1, 6)]


def test_what_comes_back_from_quarantine_does_not_hide_what_is_newer(
    lake: LakeUnderTest, broker: BrokerInMemory
) -> None:
    broker.put("$queue/a", b"1", key="x", schema=PayloadSchema("json", "a int"))
    broker.put("$queue/a", b'{"a": 2}', key="x")
    broker.put("$queue/a", b"3", key="gone")
    broker.put("$queue/a", b"", key="gone", properties=TOMBSTONE)
    broker.put("$queue/a", b"5", key="only")
    lake.archive()
    lake.compact()
    assert current(lake) == {("$queue/a", None, "x"): b'{"a": 2}'}
    broker.set_schema("$queue/a", None)
    assert lake.reprocess().detail["moved to messages"] == 3
    lake.compact()
    assert current(lake) == {
        ("$queue/a", None, "x"): b'{"a": 2}',
        ("$queue/a", None, "only"): b"5",
    }
    assert lake.compact().detail["rows folded"] == 0


def test_a_fold_which_dies_before_its_commit_is_done_again(
    lake: LakeUnderTest, broker: BrokerInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    def die(name: str) -> None:
        raise Died(name)

    broker.put("$queue/a", b"1", key="x")
    lake.archive()
    with monkeypatch.context() as patched:
        patched.setattr(fold, "failpoint", die)
        with pytest.raises(Died):
            lake.compact()
    assert lake.rows("current") == []
    lake.compact()
    assert current(lake) == {("$queue/a", None, "x"): b"1"}
    assert len(lake.data_files("current")) == 1, "what the first one wrote is removed"


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "owner": st.sampled_from([None, "a"]),
            "key": st.sampled_from(["x", "y", ""]),
            "queue_id": st.sampled_from(["q-1", "q-2"]),
            "partition": st.integers(0, 1),
            "ts": st.integers(0, 3),
            "dead": st.booleans(),
        }
    ),
    max_size=30,
)


@given(ROWS, st.randoms())
def test_the_newest_row_of_each_key_whatever_the_order(
    rows: list[dict[str, Any]], dice: random.Random
) -> None:
    for number, row in enumerate(rows):
        row |= {"queue": "q", "seqno": number + 1, "payload": b"" if row["dead"] else b"x"}
        row["properties"] = TOMBSTONE if row["dead"] else []
    generations = {"q-1": 0, "q-2": 1}
    expected: dict[Any, Any] = {}
    shards: dict[Any, Any] = {}
    for row in rows:  # in a shard the last one counts
        shards[row["owner"], row["key"], row["queue_id"], row["partition"]] = row
    for row in shards.values():  # then the later queue, then the later time
        key = (row["owner"], row["key"])
        order = (generations[row["queue_id"]], row["ts"], row["seqno"])
        if key not in expected or order > expected[key][0]:
            expected[key] = (order, row)
    mixed = list(rows)
    dice.shuffle(mixed)
    schema = definitions.CURRENT.schema()
    found = without_tombstones(newest(pa.Table.from_pylist(mixed, schema), generations))
    assert sorted(found["seqno"].to_pylist()) == sorted(
        row["seqno"] for _, row in expected.values() if not row["dead"]
    )
