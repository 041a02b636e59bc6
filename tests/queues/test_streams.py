"""Streams: acks move a cursor, the log stays, and a reader says where it starts (section 8)."""

from __future__ import annotations

import time

import pytest

from tests.queues.client import SUCCESS, UNSPECIFIED, wait_until
from tests.queues.conftest import Connect, MakeQueue

STREAM = {"type": "stream", "partitions": 1}


@pytest.mark.rule("section 8")
def test_acked_messages_of_a_stream_stay_for_other_groups(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(**STREAM)
    first, second = connect(), connect()
    first.subscribe(queue, group="first", x_stream_offset="first")
    first.publish_each(queue, "1", "2", "3")
    first.receive_and_ack(3)
    second.subscribe(queue, group="second", x_stream_offset="first")
    received = second.receive_and_ack(3)
    assert [(one.payload, one.offset) for one in received] == [("1", 1), ("2", 2), ("3", 3)]


@pytest.mark.rule("section 8")
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("first", ["1", "2", "3", "4"]),
        ("last", ["3", "4"]),
        ("next", ["4"]),
        ("offset=2", ["2", "3", "4"]),
        ("offset=99", ["4"]),
    ],
)
def test_a_reader_of_a_stream_starts_where_it_says(
    connect: Connect, make_queue: MakeQueue, start: str, expected: list[str]
) -> None:
    client, queue = connect(), make_queue(**STREAM)
    client.publish_each(queue, "1", "2", "3")
    assert client.subscribe(queue, group="g", x_stream_offset=start) == 1
    client.publish_each(queue, "4")
    assert [one.payload for one in client.receive_and_ack(len(expected))] == expected
    client.expect_silence()


@pytest.mark.rule("section 8")
def test_a_reader_of_a_stream_may_start_at_a_time(connect: Connect, make_queue: MakeQueue) -> None:
    client, queue = connect(), make_queue(**STREAM)
    client.publish_each(queue, "before")
    time.sleep(0.1)  # the two messages must differ in their time
    start_ms = int(time.time() * 1000)
    time.sleep(0.1)
    client.publish_each(queue, "after")
    assert client.subscribe(queue, group="g", x_stream_offset=f"timestamp={start_ms}") == 1
    assert client.receive().payload == "after"
    client.expect_silence()


@pytest.mark.rule("section 8")
@pytest.mark.parametrize("start", ["middle", "offset=", "offset=x", "timestamp=noon"])
def test_a_start_which_means_nothing_is_refused(
    connect: Connect, make_queue: MakeQueue, start: str
) -> None:
    client, queue = connect(), make_queue(**STREAM)
    assert client.subscribe(queue, group="g", x_stream_offset=start) >= UNSPECIFIED


@pytest.mark.rule("section 8")
def test_the_cursor_of_a_group_is_kept_when_no_start_is_given(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(**STREAM)
    client = connect()
    client.subscribe(queue, group="g", x_stream_offset="first")
    client.publish_each(queue, "1", "2", "3")
    held = client.receive_each(3)
    assert client.ack(held[0]) == SUCCESS
    assert client.ack(held[1]) == SUCCESS
    client.abort()
    back = connect()
    back.subscribe(queue, group="g")
    assert back.receive().payload == "3"
    back.expect_silence()


@pytest.mark.rule("section 8")
def test_a_group_may_replay_a_stream_from_the_start(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(**STREAM)
    client = connect()
    client.subscribe(queue, group="g", x_stream_offset="first")
    client.publish_each(queue, "1", "2")
    client.receive_and_ack(2)
    client.disconnect()
    back = connect()
    back.subscribe(queue, group="g", x_stream_offset="first")
    assert [one.payload for one in back.receive_and_ack(2)] == ["1", "2"]


@pytest.mark.rule("section 8")
def test_retention_by_number_drops_the_oldest_messages_of_a_stream(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(**STREAM, retention={"max_messages": 3})
    client.publish_each(queue, *map(str, range(1, 11)))

    def only_three_are_left() -> bool:
        reader = connect()
        reader.subscribe(queue, group=reader.client_id, x_stream_offset="first")
        first = reader.receive()
        reader.disconnect()
        return first.payload == "8"

    wait_until(only_three_are_left)


@pytest.mark.rule("section 8")
def test_retention_by_age_drops_old_messages_of_a_stream(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(**STREAM, retention={"max_age": "1s"})
    client.publish_each(queue, "old")
    time.sleep(2.5)  # the age of a message is counted in time and in nothing else
    client.publish_each(queue, "new")
    client.subscribe(queue, group="g", x_stream_offset="first")
    assert client.receive().payload == "new"
    client.expect_silence()


@pytest.mark.rule("section 8", "section 5")
def test_a_nacked_message_of_a_stream_comes_again(connect: Connect, make_queue: MakeQueue) -> None:
    client, queue = connect(), make_queue(**STREAM)
    client.subscribe(queue, group="g", x_stream_offset="first")
    client.publish_each(queue, "1")
    assert client.nack(client.receive()) == SUCCESS
    again = client.receive()
    assert (again.payload, again.count) == ("1", 2)


@pytest.mark.rule("section 8")
def test_retention_by_size_drops_the_oldest_messages_of_a_stream(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(**STREAM, retention={"max_bytes": 50_000})
    client.publish_each(queue, *(f"{number}".ljust(10_000) for number in range(20)))

    def the_first_is_gone() -> bool:
        reader = connect()
        reader.subscribe(queue, group=reader.client_id, x_stream_offset="first")
        first = reader.receive()
        reader.disconnect()
        return int(first.payload) >= 14

    wait_until(the_first_is_gone)
    client.subscribe(queue, group="g", x_stream_offset="last")
    assert client.receive().payload.strip() == "19"
