"""Dead letters: what they carry (D23), how they move (D24, D25) and come back (D27)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.conftest import BrokerFactory
from tests.harness.broker import Broker
from tests.queues import rest
from tests.queues.client import SUCCESS, Delivery, key_of, wait_until
from tests.queues.conftest import Connect, MakeQueue


def letter_of(connect: Connect, queue: str, **reject: str) -> Delivery:
    """Publish, receive and reject one message; its dead letter."""
    client, watcher = connect(), connect()
    client.subscribe(queue, group="workers")
    client.publish(queue, "broken", user={"colour": "red"}, content_type="text/x-test")
    assert client.reject(client.receive(), **reject) == SUCCESS
    watcher.subscribe(f"dlq/{queue}")
    return watcher.receive()


@pytest.mark.rule("D23")
def test_a_dead_letter_has_everything_of_the_original_and_its_story(
    connect: Connect, make_queue: MakeQueue
) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    queue = make_queue(partitions=1)
    letter = letter_of(connect, queue)
    story = letter.properties
    assert letter.payload == "broken"
    assert letter.packet.topic == f"$queue/dlq/{queue}"
    assert letter.packet.properties["content_type"] == "text/x-test"
    assert story["colour"] == "red"
    assert story["dlq-original-queue"] in (queue, f"$queue/{queue}")
    assert story["dlq-original-topic"] == f"$queue/{queue}"
    assert story["dlq-group"] == "workers"
    assert story["dlq-reason"] == "rejected"
    assert story["dlq-delivery-count"] == "1"
    assert story["dlq-original-id"] == f"{story['dlq-original-queue']}:0:1"
    first, moved = (
        datetime.fromisoformat(story[key]) for key in ("dlq-first-attempt", "dlq-moved-at")
    )
    assert before <= first <= moved <= datetime.now(UTC) + timedelta(seconds=1)


@pytest.mark.rule("D23", "section 5")
def test_a_dead_letter_tells_the_reason_its_consumer_gave(connect: Connect, queue: str) -> None:
    letter = letter_of(connect, queue, reason="no such customer")
    assert letter.properties["dlq-reason"] == "rejected"
    assert letter.properties["dlq-reason-text"] == "no such customer"


@pytest.mark.rule("D23", "section 4")
def test_a_dead_letter_is_a_delivery_of_its_own_queue(connect: Connect, queue: str) -> None:
    letter = letter_of(connect, queue)
    keys = [key for key, _ in letter.packet.user_properties]
    assert keys.count("message-id") == keys.count("queue") == keys.count("delivery-count") == 1
    assert letter.properties["queue"] in (f"dlq/{queue}", f"$queue/dlq/{queue}")
    assert letter.count == 1


@pytest.mark.rule("D23")
def test_a_producer_cannot_forge_the_story_of_a_dead_letter(connect: Connect, queue: str) -> None:
    client, watcher = connect(), connect()
    client.subscribe(queue, group="workers")
    client.publish(queue, "x", user={"dlq-group": "forged", "dlq-reason": "forged"})
    assert client.reject(client.receive()) == SUCCESS
    watcher.subscribe(f"dlq/{queue}")
    letter = watcher.receive()
    keys = [key for key, _ in letter.packet.user_properties]
    assert keys.count("dlq-group") == keys.count("dlq-reason") == 1
    assert letter.properties["dlq-group"] == "workers"
    assert letter.properties["dlq-reason"] == "rejected"


@pytest.mark.rule("D23")
def test_a_message_dies_for_the_group_which_rejects_it_only(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    strict, lenient, watcher = connect(), connect(), connect()
    strict.subscribe(queue, group="strict")
    lenient.subscribe(queue, group="lenient")
    watcher.subscribe(f"dlq/{queue}")
    strict.publish_each(queue, "x")
    assert strict.reject(strict.receive()) == SUCCESS
    assert watcher.receive().properties["dlq-group"] == "strict"
    theirs = lenient.receive()
    assert (theirs.payload, theirs.count) == ("x", 1)
    assert lenient.reject(theirs) == SUCCESS
    assert watcher.receive().properties["dlq-group"] == "lenient"


@pytest.mark.rule("D23")
def test_a_dead_letter_is_retried_without_limit(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(partitions=1, retry_policy={"max_retries": 1})
    client, watcher = connect(), connect()
    client.subscribe(queue)
    client.publish_each(queue, "x")
    assert client.reject(client.receive()) == SUCCESS
    watcher.subscribe(f"dlq/{queue}")
    for count in range(1, 15):
        letter = watcher.receive()
        assert (letter.payload, letter.count) == ("x", count)
        assert watcher.nack(letter) == SUCCESS


@pytest.mark.rule("D23")
def test_a_rejected_dead_letter_is_deleted(connect: Connect, queue: str) -> None:
    letter = letter_of(connect, queue)
    watcher = connect()
    watcher.subscribe(f"dlq/{queue}", group="second")
    again = watcher.receive()
    assert again.properties["dlq-original-id"] == letter.properties["dlq-original-id"]
    assert watcher.reject(again) == SUCCESS
    watcher.expect_silence(0.2)
    deeper = connect()
    deeper.subscribe(f"dlq/dlq/{queue}")
    deeper.expect_silence()


@pytest.mark.rule("D23")
def test_dead_letters_have_no_depth_limit(fresh_broker: BrokerFactory, connect: Connect) -> None:
    broker = fresh_broker(config="[queues.defaults.limits]\nmax_queue_depth = 2\n")
    client = connect(of=broker)
    client.subscribe("tasks", group="g")
    for number in range(5):
        client.publish_each("tasks", str(number))
        assert client.reject(client.receive()) == SUCCESS
    watcher = connect(of=broker)
    watcher.subscribe("dlq/tasks")
    assert sorted(watcher.receive_payloads(5)) == ["0", "1", "2", "3", "4"]


@pytest.mark.rule("D23", "section 8")
def test_another_dead_letter_topic_may_be_named(connect: Connect, make_queue: MakeQueue) -> None:
    graveyard = make_queue(partitions=1)
    queue = make_queue(dlq_config={"topic": f"$queue/{graveyard}"})
    client, watcher = connect(), connect()
    client.subscribe(queue)
    client.publish_each(queue, "x")
    assert client.reject(client.receive()) == SUCCESS
    watcher.subscribe(graveyard)
    letter = watcher.receive()
    assert letter.payload == "x"
    assert letter.properties["dlq-original-topic"] == f"$queue/{queue}"


@pytest.mark.rule("D25")
def test_without_dead_letter_queue_a_rejected_message_is_deleted(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1, dlq_config={"enabled": False}, limits={"max_queue_depth": 1})
    client, watcher = connect(), connect()
    watcher.subscribe(f"dlq/{queue}")
    client.subscribe(queue)
    client.publish_each(queue, "1")
    assert client.reject(client.receive()) == SUCCESS
    client.publish_each(queue, "2")
    assert client.receive().payload == "2"
    watcher.expect_silence()


@pytest.mark.rule("D24", "acceptance 8")
@pytest.mark.parametrize("answered", [0, 3, 10])
def test_a_crash_during_the_move_loses_no_message(
    fresh_broker: BrokerFactory, connect: Connect, answered: int
) -> None:
    broker = fresh_broker(config='[queues."tasks"]\npartitions = 1\n')
    client = connect(of=broker)
    client.subscribe("tasks", group="g")
    payloads = [str(number) for number in range(10)]
    client.publish_each("tasks", *payloads)
    held = client.receive_each(10)
    for number, delivery in enumerate(held):
        if number < answered:
            assert client.reject(delivery) == SUCCESS
        else:
            pair = ("message-id", delivery.message_id)
            properties = [("user_property", pair)]
            client.wire.send_publish("$queue/tasks/$reject", qos=1, properties=properties)
    broker.kill()
    broker.restart()
    found: list[str] = []
    for queue in ("tasks", "dlq/tasks"):
        reader = connect(of=broker)
        reader.subscribe(queue, group="g")
        while (delivery_ := reader.poll(1.5)) is not None:
            assert reader.ack(delivery_) == SUCCESS
            found.append(delivery_.payload)
            if queue == "tasks":
                assert int(delivery_.payload) >= answered, "a confirmed move is undone"
    assert sorted(set(found)) == payloads


def dead_letters(broker: Broker, queue: str) -> list[dict[str, Any]]:
    status, answer = rest.call(broker, "GET", rest.queue_path(queue, "dlq"))
    assert status == 200, answer
    return list(answer["messages"])


@pytest.mark.rule("D27", "acceptance 9")
def test_a_redriven_message_is_back_at_the_tail_of_its_partition_as_new(
    connect: Connect, make_queue: MakeQueue, broker: Broker
) -> None:
    queue = make_queue(partitions=4)
    client = connect()
    client.subscribe(queue, group="g")
    client.publish(queue, "again", user={"partition-key": key_of(2, 4), "colour": "red"})
    first = client.receive()
    assert client.nack(first) == SUCCESS
    assert client.reject(client.receive(), reason="later") == SUCCESS
    wait_until(lambda: len(dead_letters(broker, queue)) == 1)
    letter = dead_letters(broker, queue)[0]
    status, answer = rest.call(broker, "POST", rest.queue_path(queue, "dlq", letter["id"], "retry"))
    assert status == 202, answer
    redriven = client.receive()
    assert (redriven.payload, redriven.count) == ("again", 1)
    assert redriven.partition == first.partition == 2
    assert redriven.offset > first.offset
    assert redriven.properties["colour"] == "red"
    assert client.ack(redriven) == SUCCESS
    wait_until(lambda: not dead_letters(broker, queue))


@pytest.mark.rule("D27", "acceptance 9")
def test_redriving_an_unknown_dead_letter_is_answered_404(
    connect: Connect, make_queue: MakeQueue, broker: Broker
) -> None:
    queue = make_queue(partitions=1)
    path = rest.queue_path(queue, "dlq", "nobody", "retry")
    assert rest.call(broker, "POST", path)[0] == 404
