"""The disk fails under message queues: nothing confirmed is lost, nobody has to subscribe again.

Every write to the store fails for a while, as in the crash tests of durable queues.
"""

from __future__ import annotations

import sys

import pytest

from tests.conftest import BrokerFactory
from tests.crash.test_store_failures import writes_fail
from tests.harness.broker import BrokerProcess
from tests.mq.client import SUCCESS, UNSPECIFIED, MqClient
from tests.mq.conftest import KEY, Connect
from tests.mq.control import MqOperator
from tests.queues.client import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit and /proc")


@pytest.fixture
def admin_process() -> bool:
    return False


@pytest.fixture
def failing(fresh_broker: BrokerFactory) -> BrokerProcess:
    return fresh_broker()


def publish_until_taken(client: MqClient, topic: str, payload: str, key: str = "") -> None:
    user = {"mq-key": key}
    wait_until(lambda: client.publish(topic, payload, user=user) == SUCCESS)


@pytest.mark.rule("M7", "M24")
def test_a_subscriber_stays_attached_and_gets_everything(
    failing: BrokerProcess, connect: Connect
) -> None:
    queue = MqOperator(failing).create("a/#", is_lastvalue=False)
    reader, producer = connect(of=failing), connect(of=failing)
    reader.subscribe(queue.address)
    producer.publish_each("a/x", *map(str, range(8)))
    held = reader.hold_each(8)
    reader.ack(*held[:2])
    reader.seal("a/x")
    with writes_fail(failing):
        reader.ack(*held[2:4])  # may be lost, so these two may come again
        assert producer.publish("a/x", "refused") >= UNSPECIFIED
    publish_until_taken(producer, "a/x", "after")
    received: set[str] = set()
    while "after" not in received:
        received.add(reader.take().payload)
    received |= set(reader.drain())
    assert "refused" not in received
    assert not received & {"0", "1"}
    reader.disconnect()
    rest = connect(of=failing)
    rest.subscribe(queue.address)
    remaining = {*map(str, range(4, 8))} - received
    # What its holder kept through the failure went back to the queue when it left.
    assert {*rest.drain()} - {"2", "3"} == remaining


@pytest.mark.rule("M7", "M9")
def test_a_refused_value_overwrites_nothing(failing: BrokerProcess, connect: Connect) -> None:
    queue = MqOperator(failing).create("a/#", key_expression=KEY)
    producer, reader = connect(of=failing), connect(of=failing)
    producer.publish_keyed("a/x", "a=1", "b=1")
    with writes_fail(failing):
        assert producer.publish("a/x", "refused", user={"mq-key": "a"}) >= UNSPECIFIED
    publish_until_taken(producer, "a/x", "2", key="b")
    reader.subscribe(queue.address)
    assert reader.drain(at_least=2) == ["1", "2"]
    failing.kill()
    failing.restart()
    again = connect(of=failing)
    again.subscribe(queue.address)
    assert set(again.drain()) <= {"1", "2"}
