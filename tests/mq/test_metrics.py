"""What a scrape tells of message queues (section 9)."""

from __future__ import annotations

import pytest

from tests.conftest import BrokerFactory
from tests.mq.conftest import KEY, Connect, MakeQueue
from tests.mq.rest import MqRest
from tests.queues.client import wait_until

BUCKETS = ["2", "5", "10", "20", "50", "100", "250", "500", "750", "1000", "2000", "5000"]
CLASSES = ("regular_unlimited", "regular_limited", "lastvalue_unlimited", "lastvalue_limited")


def by_class(rest: MqRest, name: str) -> list[float]:
    samples = rest.samples()
    return [samples[f"queuelake_mq_{name}", one] for one in CLASSES]


@pytest.mark.rule("section 9")
def test_messages_are_counted_by_class(fresh_broker: BrokerFactory, connect: Connect) -> None:
    broker = fresh_broker()
    rest, client = MqRest(broker), connect(of=broker)
    limits = {"max_shard_message_count": 100}
    rest.create("a/#", is_lastvalue=False)
    rest.create("a/b/#", is_lastvalue=False, limits=limits)
    keyed = rest.create("a/+", key_expression=KEY)
    rest.create("a/x", key_expression=KEY, limits=limits)
    client.publish_keyed("a/x", "a=1", "a=2")
    client.publish_keyed("a/b/c", "a=3")
    client.publish("a/y", "no key")
    client.publish("other", "x")
    assert by_class(rest, "inserted_messages_total") == [4, 1, 2, 2]
    assert by_class(rest, "received_messages_total") == [4, 1, 3, 2]
    assert by_class(rest, "insert_latency_ms_count") == [4, 1, 2, 2]
    assert by_class(rest, "insert_errors_total") == [0, 0, 0, 0]
    assert rest.metric("key_errors_total", keyed) == 1
    assert rest.samples()["queuelake_mq_queues",] == 4


@pytest.mark.rule("section 9")
def test_the_time_of_an_insert_has_the_buckets_of_the_contract(rest: MqRest) -> None:
    edges = {
        label.removesuffix(".0")
        for name, *labels in rest.samples()
        if name == "queuelake_mq_insert_latency_ms_bucket"
        for label in labels
        if label not in CLASSES
    }
    assert edges == {*BUCKETS, "+Inf"}


@pytest.mark.rule("section 9")
def test_a_queue_tells_its_depth_and_its_readers(
    rest: MqRest, connect: Connect, regular: MakeQueue
) -> None:
    queue, client = regular(), connect()

    def figures() -> list[float]:
        return [
            rest.metric(name, queue) for name in ("messages", "ready", "in_flight", "subscribers")
        ]

    client.publish_each(queue.topic(), *map(str, range(15)))
    assert figures() == [15, 15, 0, 0]
    client.subscribe(queue.address)
    held = client.hold_each(10)
    wait_until(lambda: figures() == [15, 5, 10, 1])
    assert rest.metric("oldest_age_seconds", queue) >= 0
    client.ack(*held)
    client.drain()
    wait_until(lambda: figures() == [0, 0, 0, 1])
    assert rest.metric("acked_total", queue) == 15
    client.disconnect()
    wait_until(lambda: figures() == [0, 0, 0, 0])


@pytest.mark.rule("section 9", "M20", "M21")
def test_redispatched_and_rejected_messages_are_counted(
    rest: MqRest, connect: Connect, regular: MakeQueue
) -> None:
    queue, client = regular(redispatch_interval="20ms"), connect()
    client.subscribe(queue.address)
    client.publish_each(queue.topic(), "x")
    for _ in range(2):
        client.reject(client.hold())
    client.take()
    client.wire.ping()
    names = ("rejected_total", "redispatched_total", "delivered_total", "inserted_total")
    wait_until(lambda: [rest.metric(name, queue) for name in names] == [2, 2, 3, 1])
