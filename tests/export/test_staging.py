"""Staged batches: all of a batch at once, once, by the rules of a publish (P6, P7, P8)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyarrow import flight as arrow_flight

from tests.export.conftest import Connect
from tests.export.staging import Stager, messages, numbered
from tests.harness.broker import BrokerProcess
from tests.queues import rest

MakeQueue = Callable[..., str]
MAP = pa.map_(pa.string(), pa.string())


@pytest.fixture
def stager(exporting: BrokerProcess) -> Iterator[Stager]:
    with Stager(exporting) as one:
        yield one


@pytest.fixture
def make_queue(exporting: BrokerProcess, name: str) -> MakeQueue:
    def make(**settings: object) -> str:
        status, answer = rest.call(exporting, "PUT", rest.queue_path(name), settings)
        assert status in (200, 201), answer
        return name

    return make


@pytest.fixture
def job() -> str:
    return f"job-{uuid.uuid4().hex}"


def payloads_of(stager: Stager, queue: str) -> list[str]:
    return [row["payload"].decode() for row in stager.rows(f"$queue/{queue}")]


@pytest.mark.rule("P7")
def test_a_batch_is_not_seen_before_its_commit(
    stager: Stager, connect: Connect, name: str, job: str
) -> None:
    consumer = connect()
    consumer.subscribe(name)
    staged = stager.put(job, 0, f"$queue/{name}", messages("a", "b"))
    assert staged.rows == 2
    consumer.expect_silence()
    assert payloads_of(stager, name) == []
    answer = stager.commit(job, 0, f"$queue/{name}", [staged])
    assert (answer.rows, answer.repeated) == (2, False)
    assert sorted(consumer.receive_payloads(2)) == ["a", "b"]


@pytest.mark.rule("P7")
def test_a_batch_is_committed_once_however_often_it_is_asked_for(
    stager: Stager, name: str, job: str
) -> None:
    target = f"$queue/{name}"
    staged = stager.put(job, 7, target, messages("a"))
    assert not stager.commit(job, 7, target, [staged]).repeated
    assert stager.commit(job, 7, target, [staged]).repeated
    again = stager.put(job, 7, target, messages("a"), task="second attempt")
    assert stager.commit(job, 7, target, [again]).repeated
    assert payloads_of(stager, name) == ["a"]
    assert stager.write(job, 8, target, messages("b")).rows == 1
    assert sorted(payloads_of(stager, name)) == ["a", "b"]


@pytest.mark.rule("P7")
def test_a_batch_which_was_committed_to_another_queue_is_refused(
    stager: Stager, name: str, job: str
) -> None:
    stager.write(job, 0, f"$queue/{name}", messages("a"))
    with pytest.raises(arrow_flight.FlightServerError, match="a job id of its own"):
        stager.write(job, 0, f"$queue/{name}-other", messages("a"))
    assert payloads_of(stager, f"{name}-other") == []
    assert payloads_of(stager, name) == ["a"]


@pytest.mark.rule("P7")
def test_two_commits_of_one_batch_at_the_same_time_are_one(
    exporting: BrokerProcess, stager: Stager, name: str, job: str
) -> None:
    target = f"$queue/{name}"
    staged = stager.put(job, 0, target, numbered(20_000))

    def commit(_: int) -> bool:
        with Stager(exporting) as own:
            return own.commit(job, 0, target, [staged]).repeated

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(commit, range(4)))
    assert sorted(answers) == [False, True, True, True]
    assert sorted(payloads_of(stager, name)) == [f"{n:08d}" for n in range(20_000)]


def test_only_the_files_named_in_the_commit_count(stager: Stager, name: str, job: str) -> None:
    target = f"$queue/{name}"
    stager.put(job, 0, target, messages("of a task which failed"), task="1.0")
    good = [
        stager.put(job, 0, target, messages("b"), task="1.1"),
        stager.put(job, 0, target, messages("a"), task="0.0"),
    ]
    assert stager.commit(job, 0, target, good).rows == 2
    assert sorted(payloads_of(stager, name)) == ["a", "b"]


def test_an_empty_batch_is_a_batch(stager: Stager, name: str, job: str) -> None:
    assert stager.commit(job, 0, f"$queue/{name}", []).rows == 0
    assert stager.commit(job, 0, f"$queue/{name}", []).repeated


def test_an_aborted_batch_leaves_nothing(
    exporting: BrokerProcess, stager: Stager, name: str, job: str
) -> None:
    staged = stager.put(job, 0, f"$queue/{name}", messages("a"))
    assert list((exporting.data_dir / "staging").glob(f"*/0/{staged.file}"))
    stager.abort(job, 0)
    assert not list((exporting.data_dir / "staging").glob(f"*/0/{staged.file}"))
    with pytest.raises(arrow_flight.FlightServerError, match="was not staged"):
        stager.commit(job, 0, f"$queue/{name}", [staged])


@pytest.mark.rule("P6")
def test_every_column_of_a_row_reaches_the_queue(
    stager: Stager, connect: Connect, name: str, job: str
) -> None:
    table = messages(
        "full",
        "bare",
        key=["machine-1", None],
        message_id=["order-17", None],
        content_type=["application/json", None],
        properties=[[("unit", "C"), ("site", "Köln")], None],
    )
    stager.write(job, 0, f"$queue/{name}", table)
    full, bare = sorted(stager.rows(f"$queue/{name}"), key=lambda row: row["payload"] == b"bare")
    assert full["key"] == "machine-1"
    assert full["message_id"] == "order-17"
    assert full["content_type"] == "application/json"
    assert full["properties"] == {"partition-key": "machine-1", "unit": "C", "site": "Köln"}
    assert full["publisher"] == f"pipeline:{job}"
    assert full["qos"] == 1
    assert (full["expires"] - full["ts"]).days == 7, "the time to live of the queue"
    assert (bare["key"], bare["content_type"], bare["properties"]) == (None, None, {})
    consumer = connect()
    consumer.subscribe(name)
    found = {one.payload: one for one in consumer.receive_each(2)}
    assert found["full"].message_id == "order-17"
    assert found["full"].properties["site"] == "Köln"
    assert found["full"].packet.properties["content_type"] == "application/json"
    place = f"{found['bare'].partition}:{found['bare'].offset}"
    assert found["bare"].message_id == f"$queue/{name}:{place}"
    assert consumer.ack(found["full"]) == consumer.ack(found["bare"]) == 0


def test_rows_of_a_key_are_in_the_partition_of_its_publishes(
    stager: Stager, connect: Connect, make_queue: MakeQueue, job: str
) -> None:
    queue = make_queue(partitions=8)
    keys = [f"k{n}" for n in range(50)]
    stager.write(job, 0, f"$queue/{queue}", messages(*keys, key=keys))
    publisher = connect()
    for key in keys:
        publisher.publish(queue, key, user={"partition-key": key})
    places: dict[str, set[int]] = {}
    for row in stager.rows(f"$queue/{queue}"):
        places.setdefault(row["key"], set()).add(row["partition"])
    assert len(places) == 50
    assert all(len(found) == 1 for found in places.values())
    assert len(set.union(*places.values())) == 8


def test_rows_without_a_key_are_spread_over_the_partitions(
    stager: Stager, make_queue: MakeQueue, job: str
) -> None:
    queue = make_queue(partitions=4)
    stager.write(job, 0, f"$queue/{queue}", numbered(400))
    found = [row["partition"] for row in stager.rows(f"$queue/{queue}")]
    assert [found.count(number) for number in range(4)] == [100] * 4


def test_order_is_that_of_the_files_and_of_the_rows_in_them(
    stager: Stager, make_queue: MakeQueue, job: str
) -> None:
    queue = make_queue(partitions=1)
    target = f"$queue/{queue}"
    late = stager.put(job, 0, target, numbered(30_000, 30_000), task="a")
    early = stager.put(job, 0, target, numbered(30_000), task="b")
    stager.commit(job, 0, target, [early, late])
    rows = stager.rows(target)
    assert [row["seqno"] for row in rows] == list(range(1, 60_001))
    assert [row["payload"] for row in rows] == [b"%08d" % n for n in range(60_000)]


@pytest.mark.rule("P6", "P8")
@pytest.mark.parametrize(
    ("settings", "table", "words"),
    [
        (
            {"limits": {"max_queue_depth": 5}},
            numbered(6),
            "holds 0 of 5 messages; this batch has 6",
        ),
        ({"limits": {"max_message_size": 100}}, messages("x" * 101), "message of 101 bytes"),
        ({}, messages("a", key="k" * 65_536), "key of 65536 bytes; limit: 65535"),
        ({}, messages("a", key="k\0"), r"key holds U\+0000"),
        ({}, messages("a", delay_ms=-1), "delay_ms = -1: allowed: 0.."),
        ({}, messages("a", properties=[[("priority", "high")]]), "priority = 'high': allowed"),
        ({}, messages("a", topic="a/+"), "holds a wildcard"),
        ({}, messages("a", colour="red"), "column 'colour' means nothing"),
        ({}, pa.table({"key": ["a"]}), "column 'payload' is missing"),
    ],
)
def test_a_refused_batch_leaves_nothing(
    stager: Stager,
    connect: Connect,
    make_queue: MakeQueue,
    job: str,
    settings: dict[str, object],
    table: pa.Table,
    words: str,
) -> None:
    queue = make_queue(**settings)
    with pytest.raises(arrow_flight.FlightServerError, match=words):
        stager.write(job, 0, f"$queue/{queue}", table)
    assert payloads_of(stager, queue) == []
    assert connect().publish(queue, "room") == 0
    assert stager.write(job, 0, f"$queue/{queue}", messages("good")).rows == 1, "it may come again"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("$ECQ/w/a/b", "cannot be written"),
        ("$SYS/a", "cannot be written"),
        ("$queue/responses/1", "replies live in memory"),
        ("$queue/a//b", "empty level"),
        ("$queue/a/$ack", "there is no queue"),
        ("$q/nowhere/#", "there is no message queue"),
        ("", "is empty"),
    ],
)
def test_names_which_are_no_target(stager: Stager, job: str, target: str, words: str) -> None:
    with pytest.raises(arrow_flight.FlightServerError, match=words):
        stager.put(job, 0, target, messages("a"))


def test_callers_choose_no_paths(stager: Stager, name: str, job: str) -> None:
    staged = stager.put(job, 0, f"$queue/{name}", messages("a"), task="../../../../tmp/x")
    assert "/" not in staged.file
    for wrong in ("../0/x.arrow", "/etc/passwd", staged.file.replace("arrow", "json"), ""):
        asked = staged.__class__(wrong, 1, 1)
        with pytest.raises(arrow_flight.FlightServerError, match="was not staged"):
            stager.commit(job, 0, f"$queue/{name}", [asked])
    with pytest.raises(arrow_flight.FlightServerError, match="characters; allowed"):
        stager.put("j" * 201, 0, f"$queue/{name}", messages("a"))
    with pytest.raises(arrow_flight.FlightServerError, match="batch -1: allowed"):
        stager.put(job, -1, f"$queue/{name}", messages("a"))


def test_priorities_go_first(
    stager: Stager, connect: Connect, make_queue: MakeQueue, job: str
) -> None:
    queue = make_queue(ordering="none", partitions=2)
    properties = [[("priority", str(n))] if n else None for n in (0, 1, 9, 0, 31)]
    table = messages("a", "low", "high", "b", "highest", properties=properties)
    consumer = connect()
    stager.write(job, 0, f"$queue/{queue}", table)
    consumer.subscribe(queue)
    found = [one.payload for one in consumer.receive_and_ack(5)]
    assert found[:2] == ["highest", "high"]
    assert found[4] == "low"


@pytest.mark.rule("P6")
def test_delayed_rows_come_later_and_count_at_once(
    stager: Stager, connect: Connect, make_queue: MakeQueue, job: str
) -> None:
    queue = make_queue(limits={"max_queue_depth": 3})
    consumer = connect()
    consumer.subscribe(queue)
    table = messages("now", "later", "much later", delay_ms=[0, 1_500, 3_600_000])
    stager.write(job, 0, f"$queue/{queue}", table)
    assert consumer.receive().payload == "now"
    with pytest.raises(arrow_flight.FlightServerError, match="of 3 messages"):
        stager.write(job, 1, f"$queue/{queue}", messages("too many"))
    assert consumer.receive_pinging().payload == "later"
    consumer.expect_silence()


def test_the_oldest_make_room_where_they_do(
    stager: Stager, connect: Connect, make_queue: MakeQueue, job: str
) -> None:
    queue = make_queue(
        partitions=1, overflow="drop_head", limits={"max_queue_depth": 100}, ordering="strict"
    )
    connect().publish(queue, "old")
    stager.write(job, 0, f"$queue/{queue}", numbered(5_000))
    consumer = connect()
    consumer.subscribe(queue, prefetch="100")
    found = [one.payload for one in consumer.receive_and_ack(100)]
    assert found == [f"{n:08d}" for n in range(4_900, 5_000)]
    consumer.expect_silence()


@pytest.mark.rule("P7")
def test_messages_published_meanwhile_have_their_own_places(
    exporting: BrokerProcess, stager: Stager, connect: Connect, make_queue: MakeQueue, job: str
) -> None:
    """Every message once, in the order of its partition, whoever wrote it."""
    queue = make_queue(partitions=2, limits={"max_queue_depth": 1_000_000})
    target = f"$queue/{queue}"
    staged = stager.put(job, 0, target, numbered(30_000))
    publisher = connect()

    def commit() -> int:
        with Stager(exporting) as own:
            return own.commit(job, 0, target, [staged]).rows

    published = 0
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(commit)
        while not answer.done() or published < 20:
            assert publisher.publish(queue, f"p{published:07d}") == 0
            published += 1
        assert answer.result() == 30_000
    assert publisher.publish(queue, f"p{published:07d}") == 0
    rows = stager.rows(target)
    assert len(rows) == len({row["payload"] for row in rows}) == 30_000 + published + 1
    for partition in (0, 1):
        own_rows = [row for row in rows if row["partition"] == partition]
        assert [row["seqno"] for row in own_rows] == list(range(1, len(own_rows) + 1))
        assert [row["ts"] for row in own_rows] == sorted(row["ts"] for row in own_rows)
        for writer in (f"pipeline:{job}", publisher.client_id):
            written = [row["payload"] for row in own_rows if row["publisher"] == writer]
            assert written == sorted(written)
