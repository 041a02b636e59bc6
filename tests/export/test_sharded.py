"""The Flight service of a node with several stores: every queue is where it belongs, once."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight as arrow_flight

from queuelake import control_mq, control_queues
from queuelake import control_pipeline as ops
from queuelake.flight import ARCHIVED, ArchivedTold, Call, Mark
from queuelake.tables import SDV_NAME
from tests.export.sharded import ShardedNode
from tests.export.staging import Stager, messages, numbered
from tests.export.test_staging_kinds import redriven

SHARDS = 3
LAKE = "delta-1"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardedNode]:
    with ShardedNode(tmp_path_factory.mktemp("sharded"), SHARDS) as one:
        yield one


@pytest.fixture
def stager(node: ShardedNode) -> Iterator[Stager]:
    with Stager(node) as one:  # type: ignore[arg-type]
        yield one
    node.before = lambda _shard, _name: None
    node.unowned.clear()


@pytest.fixture
def job() -> str:
    return f"job-{uuid.uuid4().hex}"


def store_of(queue_id: str) -> str:
    return queue_id.rpartition("-")[0]


def known(stager: Stager, job: str, **more: str) -> Any:
    return stager.act("call", Call("batch", {"job": job, "batch": 0, **more}))[0]


def test_queues_of_all_stores_are_listed_and_read(
    node: ShardedNode, stager: Stager, job: str
) -> None:
    names = [node.queue_in(shard, "listed") for shard in range(SHARDS)]
    for shard, name in enumerate(names):
        assert stager.write(f"{job}-{shard}", 0, name, messages(f"of {shard}")).rows == 1
    found = [one for one in stager.shards("listed*") if one.upto]
    assert sorted(one.queue for one in found) == sorted(f"$queue/{name}" for name in names)
    assert len({one.queue_id for one in found}) == SHARDS
    assert len({store_of(one.queue_id) for one in found}) == SHARDS
    assert [[row["payload"] for row in stager.rows(name)] for name in names] == [
        [b"of 0"],
        [b"of 1"],
        [b"of 2"],
    ]
    mailboxes = {one.queue_id for one in stager.shards("$ECQ")}
    assert len(mailboxes) == SHARDS


def test_an_id_of_no_store_is_refused(stager: Stager) -> None:
    (shard, *_) = stager.shards("$ECQ")
    strange = type(shard)("$ECQ", "0123456789abcdef-1", "ecq", 0, 0, 1)
    with pytest.raises(arrow_flight.FlightServerError, match="none of this store"):
        stager.read(strange)


def test_a_batch_for_a_queue_of_another_node_is_passed_to_it(
    node: ShardedNode, stager: Stager, job: str
) -> None:
    target = node.queue_in(2, "far")
    table = numbered(3_000, size=1_000)
    assert stager.write(job, 0, target, table).rows == 3_000
    assert node.asked.count((2, ops.STAGE_PART)) > 5, "in parts"
    rows = [row["payload"] for row in stager.rows(target)]
    assert sorted(rows) == table["payload"].to_pylist()
    assert stager.write(job, 0, target, table).repeated
    assert known(stager, job)["rows"] == known(stager, job, target=target)["rows"] == 3_000
    for folder in (node.data_dir, node.other_dir):
        assert not [one for one in (folder / "staging").rglob("*") if one.is_file()]


def test_a_batch_which_arrives_at_a_node_that_lost_it_is_passed_again(
    node: ShardedNode, stager: Stager, job: str
) -> None:
    lost: list[Path] = []

    def lose(shard: int, name: str) -> None:
        if (shard, name) == (2, ops.COMMIT_STAGE) and not lost:
            lost.extend((node.other_dir / "staging").rglob("*.passed"))
            for path in lost:
                path.unlink()

    node.before = lose
    target = node.queue_in(2, "lost")
    assert stager.write(job, 0, target, messages("a")).rows == 1
    assert len(lost) == 1
    assert len(stager.rows(target)) == 1


def test_vehicles_are_divided_as_a_trigger_of_them_is(
    node: ShardedNode, stager: Stager, job: str
) -> None:
    vins = [f"{job}-{number}" for number in range(500)]
    more = {"request": job, "data": f"d-{job}"}
    table = pa.table({"id": [*vins, *vins[:50]]})
    assert stager.write(job, 0, SDV_NAME, table, payload=b"firmware", **more).rows == 500
    again = stager.write(job, 0, SDV_NAME, table, payload=b"firmware", **more)
    assert (again.rows, again.repeated) == (500, True)
    rows = [row for row in stager.rows(SDV_NAME) if row["owner"].startswith(job)]
    assert sorted(row["owner"] for row in rows) == sorted(vins)
    assert {row["payload"] for row in rows} == {b"firmware"}, "the data are in each store"
    ids = [one.queue_id for one in stager.shards(SDV_NAME) if one.shard == 0]
    for row in rows:
        assert ids.index(row["queue_id"]) == node.placing.of(row["owner"].encode())


def test_a_part_without_vehicles_is_committed_as_well(
    node: ShardedNode, stager: Stager, job: str
) -> None:
    vin = next(vin for n in range(99) if node.placing.of((vin := f"{job}-{n}").encode()) == 1)
    more = {"request": job, "data": f"d-{job}"}
    assert stager.write(job, 0, SDV_NAME, pa.table({"id": [vin]}), **more).rows == 1
    assert known(stager, job, target=SDV_NAME)["rows"] == 1


def test_of_vehicles_with_one_which_is_none_nothing_is_committed(
    node: ShardedNode, stager: Stager, job: str
) -> None:
    vins = [f"{job}-{number}" for number in range(100)]
    more = {"request": job, "data": f"d-{job}"}
    with pytest.raises(arrow_flight.FlightServerError, match="one of ids is 'bad/name'"):
        stager.write(job, 0, SDV_NAME, pa.table({"id": [*vins, "bad/name"]}), **more)
    assert not [row for row in stager.rows(SDV_NAME) if row["owner"].startswith(job)]


def test_a_commit_which_ends_between_two_stores_is_continued(
    node: ShardedNode, stager: Stager, job: str
) -> None:
    """Of each store the part is there once; until the home has its own the batch is not known."""
    home = 0
    vins = [f"{job}-{number}" for number in range(100)]
    more = {"request": job, "data": f"d-{job}"}
    staged = stager.put(job, 0, SDV_NAME, pa.table({"id": vins}), **more)
    node.unowned.add(home)
    with pytest.raises(arrow_flight.FlightUnavailableError, match="no owner"):
        stager.commit(job, 0, SDV_NAME, [staged], **more)
    node.unowned.clear()
    assert known(stager, job) is None
    assert known(stager, job, target=SDV_NAME) is None
    assert stager.commit(job, 0, SDV_NAME, [staged], **more).rows == 100
    rows = [row for row in stager.rows(SDV_NAME) if row["owner"].startswith(job)]
    assert sorted(row["owner"] for row in rows) == sorted(vins)


@pytest.mark.parametrize("name", ["", "named"])
def test_rows_of_a_message_queue_are_where_their_topics_are(
    node: ShardedNode, stager: Stager, job: str, name: str
) -> None:
    settings = {"topic_filter": f"{job}/+", "is_lastvalue": False}
    if name:
        settings["name"] = name
    for shard in range(SHARDS):
        node.call(shard, control_mq.MQ_CREATE, settings=json.dumps(settings).encode())
    target = f"$queue/{name}" if name else f"$q/{job}/+"
    topics = [f"{job}/{number}" for number in range(200)]
    table = messages(*topics, topic=topics)
    assert stager.write(job, 0, target, table).rows == 200
    assert stager.write(job, 0, target, table).repeated
    parts = [one for one in stager.shards(target) if one.shard == 0]
    assert len({one.queue_id for one in parts}) == SHARDS
    for shard, part in enumerate(parts):
        found = stager.read(part)["topic"].to_pylist()
        assert found, "some are in each"
        assert {node.placing.of_topic(topic.encode()) for topic in found} == {shard}
    assert Counter(row["topic"] for row in stager.rows(target)) == Counter(topics)


def test_a_dead_letter_leaves_its_queue_where_it_is(
    node: ShardedNode, stager: Stager, job: str
) -> None:
    name = node.queue_in(2, "dying")
    stager.write(f"{job}-dead", 0, f"$queue/dlq/{name}", messages("a", "b"))
    rows = stager.rows(f"dlq/{name}")
    assert stager.write(job, 0, name, redriven(rows[:1])).rows == 1
    assert stager.write(f"{job}-2", 0, name, redriven(rows)).rows == 1, "the other is back already"
    assert sorted(row["payload"] for row in stager.rows(name)) == [b"mended a", b"mended b"]
    stager.write(f"{job}-dead", 1, f"$queue/dlq/{name}", messages("c"))
    letter = [row for row in stager.rows(f"dlq/{name}") if row["payload"] == b"c"]
    with pytest.raises(arrow_flight.FlightServerError, match="in another part of the cluster"):
        stager.write(f"{job}-3", 0, node.queue_in(1), redriven(letter))


def test_what_the_lake_has_is_told_to_whoever_has_the_queue(
    node: ShardedNode, stager: Stager, job: str
) -> None:
    names = [node.queue_in(shard, "kept") for shard in range(SHARDS)]
    for shard, name in enumerate(names):
        changes = b'{"archive": true, "partitions": 1}'
        node.call(shard, control_queues.QUEUE_CONFIGURE, name=name, changes=changes)
        stager.write(f"{job}-{shard}", 0, name, numbered(10))
    shards = [one for name in names for one in stager.shards(name)]
    assert [one.archive for one in shards] == [True] * SHARDS
    marks = [Mark(one.queue_id, 0, 3 + shard) for shard, one in enumerate(shards)]
    stager.act(ARCHIVED, ArchivedTold("messages", LAKE, marks))
    for shard, name in enumerate(names):
        lag = node.call(shard, ops.ARCHIVE_LAG)
        (queue,) = [one for one in lag["queues"] if one["queue"] == f"$queue/{name}"]
        assert (queue["archived"], queue["behind"]) == ([3 + shard], 7 - shard)
    assert [one.archived for name in names for one in stager.shards(name)] == [3, 4, 5]
    with pytest.raises(arrow_flight.FlightServerError, match="not another"):
        stager.act(ARCHIVED, ArchivedTold("messages", "another", []))
    stager.act(ARCHIVED, ArchivedTold("messages", "another", [], adopt=True))
    assert [one.archived for name in names for one in stager.shards(name)] == [0, 0, 0]
    stager.act(ARCHIVED, ArchivedTold("messages", LAKE, [], adopt=True))
