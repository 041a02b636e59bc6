"""Staged batches for message queues and streams, and dead letters which leave their queue."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight as arrow_flight

from tests.export.conftest import Connect
from tests.export.staging import Stager, messages, numbered
from tests.harness.broker import BrokerProcess
from tests.mq.rest import MqRest
from tests.queues import rest

Ids = tuple[str, int, int]


@pytest.fixture
def stager(exporting: BrokerProcess) -> Iterator[Stager]:
    with Stager(exporting) as one:
        yield one


@pytest.fixture
def job() -> str:
    return f"job-{uuid.uuid4().hex}"


@pytest.fixture
def message_queue(exporting: BrokerProcess, name: str) -> Callable[..., str]:
    def make(topic_filter: str, **fields: Any) -> str:
        fields = {"is_lastvalue": False, **fields}
        queue = MqRest(exporting).create(topic_filter, name=name, **fields)
        return queue.address

    return make


# Message queues


def test_rows_of_a_message_queue_have_topics_which_match(
    stager: Stager, connect: Connect, message_queue: Callable[..., str], name: str, job: str
) -> None:
    target = message_queue(f"{name}/+/state")
    with pytest.raises(arrow_flight.FlightServerError, match="has no topic"):
        stager.write(job, 0, target, messages("a"))
    with pytest.raises(arrow_flight.FlightServerError, match="does not match"):
        stager.write(job, 0, target, messages("a", topic=f"{name}/1"))
    with pytest.raises(arrow_flight.FlightServerError, match="cannot be delayed"):
        stager.write(job, 0, target, messages("a", topic=f"{name}/1/state", delay_ms=5))
    table = messages("a", "b", topic=[f"{name}/1/state", f"{name}/2/state"], message_id="m")
    assert stager.write(job, 0, target, table).rows == 2
    consumer = connect()
    consumer.wire.subscribe(target, qos=1)
    got = [consumer.wire.expect_publish(ack=True) for _ in range(2)]
    assert {(one.topic, one.payload) for one in got} == {
        (f"{name}/1/state", b"a"),
        (f"{name}/2/state", b"b"),
    }
    assert ("message-id", "m") in got[0].user_properties


def test_a_message_queue_keeps_its_limits(
    stager: Stager, connect: Connect, message_queue: Callable[..., str], name: str, job: str
) -> None:
    target = message_queue(f"{name}/t", limits={"max_shard_message_count": 50})
    assert stager.write(job, 0, target, numbered(3_000)).rows == 3_000
    consumer = connect()
    consumer.wire.subscribe(target, qos=1)
    got = [consumer.wire.expect_publish(ack=True).payload for _ in range(50)]
    assert sorted(got) == [b"%08d" % n for n in range(2_950, 3_000)]
    consumer.expect_silence()


def test_of_each_key_of_a_last_value_queue_the_last_row_stays(
    stager: Stager, connect: Connect, message_queue: Callable[..., str], name: str, job: str
) -> None:
    target = message_queue(
        f"{name}/#", is_lastvalue=True, key_expression="nth(2, tokens(message.topic, '/'))"
    )
    connect().publish_topic(f"{name}/1", "published")
    topics = [f"{name}/{n % 3}" for n in range(9)]
    table = messages(*[f"row {n}" for n in range(9)], topic=topics)
    assert stager.write(job, 0, target, table).rows == 3
    assert stager.write(job, 0, target, table).repeated
    consumer = connect()
    consumer.wire.subscribe(target, qos=1)
    got = {
        packet.topic: packet.payload
        for packet in [consumer.wire.expect_publish(ack=True) for _ in range(3)]
    }
    assert got == {f"{name}/0": b"row 6", f"{name}/1": b"row 7", f"{name}/2": b"row 8"}
    consumer.expect_silence()


# Streams


def test_a_stream_is_read_by_several_groups_and_compacted_through_pointers(
    exporting: BrokerProcess, stager: Stager, connect: Connect, name: str, job: str
) -> None:
    settings = {"type": "stream", "partitions": 1, "retention": {"max_messages": 100}}
    status, answer = rest.call(exporting, "PUT", rest.queue_path(name), settings)
    assert status in (200, 201), answer
    stager.write(job, 0, f"$queue/{name}", numbered(80))
    for group in ("a", "b"):
        consumer = connect()
        consumer.subscribe(name, group=group, prefetch="100")
        assert consumer.receive_payloads(80) == [f"{n:08d}" for n in range(80)]


# Dead letters


def dead_letters(stager: Stager, connect: Connect, name: str, count: int) -> list[dict[str, Any]]:
    """Rows of the dead-letter queue, with so many in it."""
    worker = connect()
    worker.subscribe(name)
    for n in range(count):
        worker.publish(name, f"{n}")
    for _ in range(count):
        assert worker.reject(worker.receive(), reason="broken") == 0
    worker.wire.close()
    rows = stager.rows(f"$queue/dlq/{name}")
    assert len(rows) == count
    return rows


def letters_left(connect: Connect, name: str) -> list[str]:
    reader = connect()
    reader.subscribe(f"dlq/{name}", group="looks", prefetch="100")
    return sorted([one.payload for one in reader.drain()])


def redriven(rows: list[dict[str, Any]]) -> pa.Table:
    return messages(
        *[b"mended " + row["payload"] for row in rows],
        from_queue_id=[row["queue_id"] for row in rows],
        from_partition=[row["partition"] for row in rows],
        from_seqno=[row["seqno"] for row in rows],
    )


def test_a_dead_letter_is_in_one_queue_or_the_other(
    stager: Stager, connect: Connect, name: str, job: str
) -> None:
    rows = dead_letters(stager, connect, name, 5)
    assert stager.write(job, 0, f"$queue/{name}", redriven(rows[:3])).rows == 3
    assert letters_left(connect, name) == [row["payload"].decode() for row in rows[3:]]
    worker = connect()
    worker.subscribe(name)
    got = [one.payload for one in worker.receive_and_ack(3)]
    assert sorted(got) == sorted(f"mended {row['payload'].decode()}" for row in rows[:3])


def test_a_dead_letter_which_is_gone_is_not_published_again(
    stager: Stager, connect: Connect, name: str, job: str
) -> None:
    rows = dead_letters(stager, connect, name, 3)
    staged = stager.put(job, 1, f"$queue/{name}", redriven([*rows, rows[0]]))
    assert stager.write(job, 0, f"$queue/{name}", redriven(rows[:1])).rows == 1
    assert stager.commit(job, 1, f"$queue/{name}", [staged]).rows == 2
    worker = connect()
    worker.subscribe(name)
    assert len(worker.receive_and_ack(3)) == 3
    worker.expect_silence()
    assert letters_left(connect, name) == []


def test_a_refused_batch_leaves_dead_letters_where_they_are(
    exporting: BrokerProcess, stager: Stager, connect: Connect, name: str, job: str
) -> None:
    rows = dead_letters(stager, connect, name, 3)
    rest.call(exporting, "PUT", rest.queue_path(name), {"limits": {"max_queue_depth": 2}})
    with pytest.raises(arrow_flight.FlightServerError, match="of 2 messages"):
        stager.write(job, 0, f"$queue/{name}", redriven(rows))
    assert len(letters_left(connect, name)) == 3
    strange = redriven(rows).set_column(
        1, "from_queue_id", pa.array(["another-store-1"] * 3, pa.string())
    )
    with pytest.raises(arrow_flight.FlightServerError, match="none of this store"):
        stager.write(job, 1, f"$queue/{name}", strange)
