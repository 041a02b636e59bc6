"""Limits by count and bytes, retention and garbage collection (M26-M29)."""

from __future__ import annotations

import pytest

from tests.conftest import BrokerFactory
from tests.harness.broker import BrokerProcess
from tests.mq.client import SUCCESS
from tests.mq.conftest import KEY, Connect
from tests.mq.rest import MqRest

GC = {"mq.gc_interval": "300ms"}
KINDS = pytest.mark.parametrize("kind", ["regular", "last-value"])


@pytest.fixture
def swept_broker(fresh_broker: BrokerFactory) -> BrokerProcess:
    """Collects its garbage all the time."""
    return fresh_broker(GC)


def kind_of(kind: str) -> dict[str, object]:
    if kind == "regular":
        return {"is_lastvalue": False}
    return {"key_expression": "message.payload"}


@KINDS
@pytest.mark.rule("M26", "M27", "acceptance 12")
def test_the_oldest_above_the_count_are_gone_after_a_collection(
    swept_broker: BrokerProcess, connect: Connect, kind: str
) -> None:
    rest, client = MqRest(swept_broker), connect(of=swept_broker)
    limits = {"max_shard_message_count": 50}
    queue = rest.create("a/#", limits=limits, **kind_of(kind))
    numbers = list(map(str, range(200)))
    client.publish_each("a/x", *numbers)
    rest.wait_for_depth(queue, 55)
    client.subscribe(queue.address)
    received = client.drain(at_least=50)
    assert 50 <= len(received) <= 55
    assert received == numbers[-len(received) :]


@KINDS
@pytest.mark.rule("M26", "M27", "acceptance 12")
def test_the_oldest_above_the_bytes_are_gone_after_a_collection(
    swept_broker: BrokerProcess, connect: Connect, kind: str
) -> None:
    rest, client = MqRest(swept_broker), connect(of=swept_broker)
    limits = {"max_shard_message_bytes": "100KB"}
    queue = rest.create("a/#", limits=limits, **kind_of(kind))
    payloads = [f"{number:05}".ljust(5000, ".") for number in range(100)]
    client.publish_each("a/x", *payloads)
    rest.wait_for_depth(queue, 22)
    client.subscribe(queue.address)
    received = client.drain(at_least=18)
    # Room for 20.48 payloads and ten percent; what else is counted of a message is small.
    assert 18 <= len(received) <= 22
    assert received == payloads[-len(received) :]


@pytest.mark.rule("M27")
def test_messages_within_the_limits_stay(swept_broker: BrokerProcess, connect: Connect) -> None:
    rest, client = MqRest(swept_broker), connect(of=swept_broker)
    limits = {"max_shard_message_count": 30, "max_shard_message_bytes": "1MB"}
    kept = rest.create("a/#", is_lastvalue=False, limits=limits)
    full = rest.create("b/#", is_lastvalue=False, limits=limits)
    for topic, count in (("a/x", 30), ("b/x", 100)):
        client.publish_each(topic, *map(str, range(count)))
    rest.wait_for_depth(full, 33)
    client.subscribe(kept.address)
    assert client.take_payloads(30) == list(map(str, range(30)))


@pytest.mark.rule("M27")
def test_a_limit_refuses_no_publisher(swept_broker: BrokerProcess, connect: Connect) -> None:
    rest, client = MqRest(swept_broker), connect(of=swept_broker)
    rest.create("a/#", is_lastvalue=False, limits={"max_shard_message_count": 1})
    for qos in (1, 2):
        assert [client.publish("a/x", str(n), qos=qos) for n in range(20)] == [SUCCESS] * 20
    client.subscribe("$q/a/#")
    assert client.drain()[-1] == "19"


@pytest.mark.rule("M27")
def test_a_collection_takes_nothing_from_a_subscriber_twice(
    swept_broker: BrokerProcess, connect: Connect
) -> None:
    """Delivery goes on while the limit drops messages; what was settled does not come again."""
    rest = MqRest(swept_broker)
    producer, consumer = connect(of=swept_broker), connect(of=swept_broker)
    rest.create("a/#", is_lastvalue=False, limits={"max_shard_message_count": 20})
    consumer.subscribe("$q/a/#")
    received: list[str] = []
    for number in range(200):
        producer.publish_each("a/x", str(number))
        if number % 4 == 0 and (delivery := consumer.poll(0.05)) is not None:
            received.append(delivery.payload)
    received += consumer.drain()
    assert received == sorted(set(received), key=int)
    assert received[-1] == "199"


@KINDS
@pytest.mark.rule("M28", "acceptance 13")
def test_what_is_older_than_the_retention_is_not_delivered(
    fresh_broker: BrokerFactory, connect: Connect, kind: str
) -> None:
    """Also when the garbage was not collected: that is done once an hour."""
    broker = fresh_broker()
    rest, client = MqRest(broker), connect(of=broker)
    limits = {"max_shard_message_count": 1000}
    queue = rest.create("a/#", data_retention_period="1s", limits=limits, **kind_of(kind))
    client.publish_each("a/x", "1", "2", "3")
    client.expect_silence(1.5)
    client.publish_each("a/x", "fresh")
    client.subscribe(queue.address)
    assert client.drain(at_least=1) == ["fresh"]


@KINDS
@pytest.mark.rule("M28", "M29", "acceptance 13")
def test_what_is_older_than_the_retention_is_collected(
    swept_broker: BrokerProcess, connect: Connect, kind: str
) -> None:
    rest, client = MqRest(swept_broker), connect(of=swept_broker)
    limits = {"max_shard_message_count": 1000}
    queue = rest.create("a/#", data_retention_period="500ms", limits=limits, **kind_of(kind))
    kept = rest.create("a/+", is_lastvalue=False, limits=limits)
    client.publish_each("a/x", "1", "2", "3")
    rest.wait_for_depth(queue, 0)
    client.subscribe(queue.address)
    client.expect_silence()
    client.subscribe(kept.address)
    assert client.take_payloads(3) == ["1", "2", "3"]


@pytest.mark.rule("M28", "section 7", "acceptance 13")
def test_an_unlimited_regular_queue_has_the_retention_of_all_such_queues(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(GC | {"mq.regular_queue_retention_period": "1s"})
    rest, client = MqRest(broker), connect(of=broker)
    queue = rest.create("a/#", is_lastvalue=False)
    last_value = rest.create("a/+", key_expression=KEY)
    client.publish_keyed("a/x", "a=1", "b=2")
    client.expect_silence(2.5)  # the age of what is left is below twice the period
    client.publish_keyed("a/x", "a=fresh")
    client.subscribe(queue.address)
    assert client.drain(at_least=1) == ["fresh"]
    client.subscribe(last_value.address)
    assert client.drain(at_least=2) == ["2", "fresh"]


@pytest.mark.rule("M29")
def test_a_shorter_interval_acts_at_once(fresh_broker: BrokerFactory, connect: Connect) -> None:
    broker = fresh_broker()
    rest, client = MqRest(broker), connect(of=broker)
    queue = rest.create("a/#", data_retention_period="200ms", key_expression="message.payload")
    client.publish_each("a/x", "1", "2", "3")
    rest.configure(gc_interval="300ms")
    rest.wait_for_depth(queue, 0)


@pytest.mark.rule("M29", "M31")
def test_a_deleted_queue_is_collected_with_its_messages(
    swept_broker: BrokerProcess, connect: Connect
) -> None:
    rest, client = MqRest(swept_broker), connect(of=swept_broker)
    for round_ in range(3):
        queue = rest.create("a/#", name="a", is_lastvalue=False)
        client.publish_each("a/x", *(f"{round_}:{number}" for number in range(20)))
        rest.delete(queue)
    queue = rest.create("a/#", name="a", is_lastvalue=False)
    client.publish_each("a/x", "new")
    client.subscribe(queue.address)
    assert client.drain(1.0) == ["new"]
