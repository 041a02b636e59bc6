"""Retries: the backoff series (D20), and when they end (D21)."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.queues.client import SUCCESS
from tests.queues.conftest import Connect, MakeQueue

# The client reads its clock a moment after the broker sends.
TOLERANCE_S = 0.05


@pytest.mark.rule("D20", "acceptance 6")
def test_each_retry_waits_longer_by_the_multiplier(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(
        performance={"delivery_timeout": "200ms"},
        retry_policy={"initial_backoff": "300ms", "backoff_multiplier": 2.0, "max_backoff": "5s"},
    )
    client = connect()
    client.subscribe(queue)
    client.publish_each(queue, "x")
    received = client.receive_each(4)
    assert [one.count for one in received] == [1, 2, 3, 4]
    for number, backoff_s in enumerate((0.3, 0.6, 1.2), 1):
        waited = received[number].received_at - received[number - 1].received_at
        assert waited >= 0.2 + backoff_s - TOLERANCE_S, f"retry {number} after {waited} s"


@pytest.mark.rule("D20", "acceptance 6")
def test_no_backoff_is_longer_than_the_maximum(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(
        performance={"delivery_timeout": "200ms"},
        retry_policy={
            "initial_backoff": "100ms",
            "backoff_multiplier": 600,
            "max_backoff": "300ms",
        },
    )
    client = connect()
    client.subscribe(queue)
    client.publish_each(queue, "x")
    assert [one.count for one in client.receive_each(5)] == [1, 2, 3, 4, 5]


@pytest.mark.rule("D20")
def test_a_multiplier_of_one_keeps_the_backoff_equal(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(
        performance={"delivery_timeout": "200ms"},
        retry_policy={"initial_backoff": "200ms", "backoff_multiplier": 1},
    )
    client = connect()
    client.subscribe(queue)
    client.publish_each(queue, "x")
    received = client.receive_each(4)
    for before, after in itertools.pairwise(received):
        assert after.received_at - before.received_at >= 0.4 - TOLERANCE_S


@pytest.mark.rule("D21", "acceptance 7")
@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_after_max_retries_a_nacked_message_is_a_dead_letter(
    connect: Connect, make_queue: MakeQueue, max_retries: int
) -> None:
    queue = make_queue(partitions=1, retry_policy={"max_retries": max_retries})
    client, watcher = connect(), connect()
    watcher.subscribe(f"dlq/{queue}")
    client.subscribe(queue)
    client.publish_each(queue, "x")
    for count in range(1, max_retries + 2):
        delivery = client.receive()
        assert delivery.count == count
        watcher.expect_silence(0.1)
        assert client.nack(delivery) == SUCCESS
    letter = watcher.receive()
    assert letter.payload == "x"
    assert letter.properties["dlq-reason"] == "max_retries"
    assert letter.properties["dlq-delivery-count"] == str(max_retries + 1)
    client.expect_silence()


@pytest.mark.rule("D21", "acceptance 7", "D18")
def test_after_max_retries_a_timed_out_message_is_a_dead_letter(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(
        performance={"delivery_timeout": "200ms"},
        retry_policy={"max_retries": 1, "initial_backoff": "100ms"},
    )
    client, watcher = connect(), connect()
    watcher.subscribe(f"dlq/{queue}")
    client.subscribe(queue)
    client.publish_each(queue, "x")
    assert [one.count for one in client.receive_each(2)] == [1, 2]
    letter = watcher.receive()
    assert letter.properties["dlq-reason"] == "max_retries"
    assert letter.properties["dlq-delivery-count"] == "2"


@pytest.mark.rule("D21", "acceptance 7")
def test_a_message_older_than_the_total_timeout_is_not_tried_again(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1, retry_policy={"total_timeout": "1s"})
    client, watcher = connect(), connect()
    watcher.subscribe(f"dlq/{queue}")
    client.subscribe(queue)
    client.publish_each(queue, "x")
    delivery = client.receive()
    time.sleep(1.2)  # the age of a message is counted in time and in nothing else
    assert client.nack(delivery) == SUCCESS
    letter = watcher.receive()
    assert letter.payload == "x"
    assert letter.properties["dlq-reason"] == "timeout"
    assert letter.properties["dlq-delivery-count"] == "1"
    client.expect_silence()


@pytest.mark.rule("D21")
def test_too_many_retries_is_told_before_too_much_time(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(retry_policy={"total_timeout": "100ms", "max_retries": 0})
    client, watcher = connect(), connect()
    watcher.subscribe(f"dlq/{queue}")
    client.subscribe(queue)
    client.publish_each(queue, "x")
    delivery = client.receive()
    time.sleep(0.3)  # older than the total timeout now
    assert client.nack(delivery) == SUCCESS
    assert watcher.receive().properties["dlq-reason"] == "max_retries"


@pytest.mark.rule("D21", "section 8")
def test_the_retry_limit_is_ten_unless_told_otherwise(connect: Connect, queue: str) -> None:
    client, watcher = connect(), connect()
    watcher.subscribe(f"dlq/{queue}")
    client.subscribe(queue)
    client.publish_each(queue, "x")
    for count in range(1, 12):
        delivery = client.receive()
        assert delivery.count == count
        assert client.nack(delivery) == SUCCESS
    assert watcher.receive().properties["dlq-delivery-count"] == "11"


@pytest.mark.rule("D21", "D13")
def test_a_dead_lettered_message_lets_those_behind_it_go(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(
        partitions=1,
        ordering="strict",
        performance={"prefetch": 1},
        retry_policy={"max_retries": 1},
    )
    client = connect()
    client.subscribe(queue)
    client.publish_each(queue, "poison", "next")
    for _ in range(2):
        delivery = client.receive()
        assert delivery.payload == "poison"
        assert client.nack(delivery) == SUCCESS
    assert client.receive().payload == "next"


@pytest.mark.rule("D21")
def test_each_group_counts_its_own_retries(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(partitions=1, retry_policy={"max_retries": 2})
    one, other = connect(), connect()
    one.subscribe(queue, group="one")
    other.subscribe(queue, group="other")
    one.publish_each(queue, "x")
    for count in (1, 2, 3):
        delivery = one.receive()
        assert delivery.count == count
        assert one.nack(delivery) == SUCCESS
    theirs = other.receive()
    assert theirs.count == 1
    assert other.ack(theirs) == SUCCESS
