"""The disk fails under queues: nothing is confirmed which was not stored, and nothing is lost.

As in `test_store_failures.py` every write to the store fails for a while, here with messages which
wait, are held, come back and die meanwhile.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import BrokerFactory
from tests.crash.test_store_failures import RESUME_S_MAX, writes_fail
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess
from tests.queues.client import SUCCESS, UNSPECIFIED, QueueClient, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit and /proc")

CONFIG = '[queues."tasks"]\npartitions = 2\nperformance.prefetch = 4\n'


class Clients:
    """Opens clients of one broker, and closes them all."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._opened: list[QueueClient] = []

    def open(self, client_id: str, **fields: Any) -> QueueClient:
        client = QueueClient(self._broker.client(5, timeout=20.0), client_id)
        client.wire.connect(client_id, **fields)
        self._opened.append(client)
        return client

    def close(self) -> None:
        for client in self._opened:
            client.wire.close()
        self._opened.clear()


@pytest.fixture
def broker(fresh_broker: BrokerFactory) -> BrokerProcess:
    return fresh_broker(config=CONFIG)


@pytest.fixture
def clients(broker: BrokerProcess) -> Iterator[Clients]:
    opened = Clients(broker)
    yield opened
    opened.close()


def publish_until_taken(client: QueueClient, queue: str, payload: str) -> None:
    wait_until(lambda: client.publish(queue, payload) == SUCCESS, RESUME_S_MAX)


def take_all(client: QueueClient) -> set[str]:
    """Settle everything which comes; the payloads."""
    payloads: set[str] = set()
    while (delivery := client.poll(1.5)) is not None:
        if client.ack(delivery) == SUCCESS:
            payloads.add(delivery.payload)
    return payloads


def expect_empty(broker: BrokerProcess, clients: Clients, *queues: str) -> None:
    """After SIGKILL nothing is left for the group."""
    clients.close()
    broker.kill()
    broker.start()
    consumer = clients.open("last")
    for queue in queues:
        consumer.subscribe(queue, group="g")
    consumer.expect_silence(1.0)


def test_publishes_are_refused_meanwhile_and_what_was_confirmed_is_delivered(
    broker: BrokerProcess, clients: Clients
) -> None:
    producer = clients.open("producer")
    confirmed = [str(number) for number in range(20)]
    producer.publish_each("tasks", *confirmed)
    with writes_fail(broker):
        for number in range(4):
            qos = 1 + number % 2
            assert producer.publish("tasks", f"refused {number}", qos=qos) >= UNSPECIFIED
        assert producer.publish("tasks", "later", user={"delay-ms": "100"}) >= UNSPECIFIED
        assert producer.publish("new", "refused") >= UNSPECIFIED
        assert producer.configure("tasks", partitions=5) >= UNSPECIFIED
    publish_until_taken(producer, "tasks", "after")
    consumer = clients.open("consumer")
    consumer.subscribe("tasks", group="g")
    assert take_all(consumer) == {*confirmed, "after"}
    publish_until_taken(producer, "new", "first")
    consumer.subscribe("new", group="g")
    assert take_all(consumer) == {"first"}
    expect_empty(broker, clients, "tasks", "new")


def test_settlements_are_refused_meanwhile_and_consumers_get_everything_afterwards(
    broker: BrokerProcess, clients: Clients
) -> None:
    producer, consumer = clients.open("producer"), clients.open("consumer")
    producer.publish_each("tasks", *map(str, range(12)))
    consumer.subscribe("tasks", group="g")
    held = consumer.receive_each(4)
    assert consumer.ack(held[0]) == SUCCESS
    held.append(consumer.receive())
    with writes_fail(broker):
        for delivery, verdict in zip(held[1:4], ("ack", "nack", "reject"), strict=True):
            assert consumer.settle(verdict, delivery) >= UNSPECIFIED
    publish_until_taken(producer, "tasks", "12")
    expected = {str(number) for number in range(13)} - {held[0].payload}
    assert take_all(consumer) == expected
    expect_empty(broker, clients, "tasks", "dlq/tasks")


def test_failures_with_consumers_at_work_lose_nothing(
    broker: BrokerProcess, clients: Clients
) -> None:
    producer, one, other = (clients.open(name) for name in ("producer", "one", "other"))
    for consumer in (one, other):
        consumer.subscribe("tasks", group="g")
    confirmed: set[str] = set()
    settled: set[str] = set()

    def work(round_: str, count: int) -> None:
        for number in range(count):
            payload = f"{round_}:{number}"
            if producer.publish("tasks", payload, user={"partition-key": str(number)}) == SUCCESS:
                confirmed.add(payload)
            for consumer in (one, other):
                delivery = consumer.poll(0.02)
                if delivery is not None and consumer.ack(delivery) == SUCCESS:
                    settled.add(delivery.payload)

    work("before", 30)
    for failure in ("first", "second"):
        with writes_fail(broker):
            work(f"during the {failure}", 5)
        publish_until_taken(producer, "tasks", failure)
        confirmed.add(failure)
        work(f"after the {failure}", 10)
    deadline = time.monotonic() + RESUME_S_MAX
    while len(settled) < len(confirmed) and time.monotonic() < deadline:
        for consumer in (one, other):
            settled |= take_all(consumer)
    assert settled == confirmed
    expect_empty(broker, clients, "tasks")


def test_consumers_may_come_and_go_while_the_store_fails(
    broker: BrokerProcess, clients: Clients
) -> None:
    producer, leaver = clients.open("producer"), clients.open("leaver")
    producer.publish_each("tasks", *map(str, range(8)))
    leaver.subscribe("tasks", group="g")
    leaver.receive_each(4)
    with writes_fail(broker):
        assert producer.publish("tasks", "refused") >= UNSPECIFIED
        leaver.abort()
        comer = clients.open("comer")
        group = [("user_property", ("consumer-group", "g"))]
        comer.wire.send(p.subscribe(1, [("$queue/tasks", 1)], properties=group))
        time.sleep(1.5)
    assert comer.wire.wait_for(p.SUBACK, 1).reason_codes == [1]
    assert take_all(comer) == set(map(str, range(8)))
    expect_empty(broker, clients, "tasks")


def test_what_was_acknowledged_by_puback_meanwhile_comes_again(
    broker: BrokerProcess, clients: Clients
) -> None:
    producer, consumer = clients.open("producer"), clients.open("consumer")
    producer.publish_each("tasks", *map(str, range(8)))
    consumer.subscribe("tasks", group="g", ack_mode="puback")
    held = [consumer.receive(puback=False) for _ in range(4)]
    with writes_fail(broker):
        consumer.puback(held[0])
        assert producer.publish("tasks", "refused") >= UNSPECIFIED
    publish_until_taken(producer, "tasks", "8")
    received = {one.payload for one in consumer.drain(1.5)}
    assert received >= {str(number) for number in range(9)} - {held[1].payload}
    assert held[0].payload in received
    expect_empty(broker, clients, "tasks")
