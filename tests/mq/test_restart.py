"""What message queues keep over a stop and over SIGKILL (M24, acceptance 14)."""

from __future__ import annotations

import pytest

from tests.conftest import BrokerFactory
from tests.harness.broker import BrokerProcess
from tests.mq.conftest import KEY, MANUAL, RETRY, Connect
from tests.mq.control import MqOperator

ENDINGS = pytest.mark.parametrize("ending", ["kill", "stop"])


@pytest.fixture
def admin_process() -> bool:
    return False


def end_and_restart(broker: BrokerProcess, ending: str) -> None:
    getattr(broker, ending)()
    broker.restart()


@ENDINGS
@pytest.mark.rule("section 3", "acceptance 14")
def test_what_was_confirmed_is_there_after_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker()
    queues = MqOperator(broker)
    queues.create("a/#", name="all", is_lastvalue=False)
    queues.create("a/#", name="limited", is_lastvalue=False, limits={"max_shard_message_count": 50})
    queues.create("a/#", name="last", key_expression=KEY)
    producer = connect(of=broker)
    for number in range(30):
        qos = 1 + number % 2
        producer.publish(f"a/{number}", str(number), qos=qos, user={"mq-key": str(number % 3)})
    end_and_restart(broker, ending)
    client = connect(of=broker)
    for name, expected in (("all", range(30)), ("limited", range(30)), ("last", range(27, 30))):
        client.subscribe(f"$queue/{name}")
        assert client.drain() == list(map(str, expected))
        client.unsubscribe(f"$queue/{name}")


@ENDINGS
@pytest.mark.rule("M24", "acceptance 14")
@pytest.mark.parametrize("kind", ["regular", "limited", "last-value"])
def test_unacknowledged_messages_come_again_and_acknowledged_ones_do_not(
    fresh_broker: BrokerFactory, connect: Connect, ending: str, kind: str
) -> None:
    broker = fresh_broker()
    settings: dict[str, object] = {"is_lastvalue": False}
    if kind == "limited":
        settings["limits"] = {"max_shard_message_count": 50}
    if kind == "last-value":
        settings = {"key_expression": "message.payload"}
    MqOperator(broker).create("a/#", **settings)
    client = connect(of=broker)
    client.subscribe("$q/a/#")
    client.publish_each("a/x", *map(str, range(10)))
    held = client.hold_each(10)
    for number in (0, 1, 4, 9):
        client.ack(held[number])
    client.seal("a/x")
    end_and_restart(broker, ending)
    again = connect(of=broker)
    again.subscribe("$q/a/#")
    assert sorted(again.drain()) == ["2", "3", "5", "6", "7", "8", "seal"]
    again.seal("a/x")
    end_and_restart(broker, ending)
    last = connect(of=broker)
    last.subscribe("$q/a/#")
    assert last.drain() in (["seal"], [])


@ENDINGS
@pytest.mark.rule("M23", "acceptance 14")
def test_a_restart_drops_what_was_overwritten_in_flight(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker()
    MqOperator(broker).create("a/#", key_expression=KEY)
    client, producer = connect(of=broker), connect(of=broker)
    client.subscribe("$q/a/#")
    producer.publish_keyed("a/x", "a=1", "b=1")
    assert len(client.hold_each(2)) == 2
    producer.publish_keyed("a/x", "a=2")
    assert client.hold().payload == "2"
    end_and_restart(broker, ending)
    again = connect(of=broker)
    again.subscribe("$q/a/#")
    assert sorted(again.drain()) == ["1", "2"]


@ENDINGS
@pytest.mark.rule("M9", "M24")
def test_a_key_is_known_after_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker()
    MqOperator(broker).create("a/#", key_expression=KEY)
    connect(of=broker).publish_keyed("a/x", "a=1", "b=1", "c=1")
    end_and_restart(broker, ending)
    client = connect(of=broker)
    client.publish_keyed("a/x", "b=2", "a=2", "d=1")
    client.subscribe("$q/a/#")
    assert client.take_payloads(4) == ["1", "2", "2", "1"]
    client.expect_silence()


@ENDINGS
@pytest.mark.rule("M15", "M24")
def test_a_persistent_session_reads_on_after_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker()
    MqOperator(broker).create("a/#", name="q", is_lastvalue=False)
    fields = {"clean": False, "properties": {"session_expiry_interval": 3600}}
    reader = connect("reader", of=broker, **fields)
    reader.subscribe("$queue/q", identifier=6)
    reader.publish_each("a/x", "1", "2")
    reader.ack(reader.hold())
    reader.seal("a/x")
    end_and_restart(broker, ending)
    again = connect("reader", of=broker, **fields)
    received = [again.take() for _ in range(2)]
    assert [one.payload for one in received] == ["2", "seal"]
    assert [one.packet.subscription_identifiers for one in received] == [[6], [6]]
    again.expect_silence()


@ENDINGS
@pytest.mark.rule("M12", "M31")
def test_a_waiting_subscription_finds_its_queue_after_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker(RETRY | MANUAL)
    fields = {"clean": False, "properties": {"session_expiry_interval": 3600}}
    connect("reader", of=broker, **fields).subscribe("$q/a/#")
    end_and_restart(broker, ending)
    again = connect("reader", of=broker, **fields)
    MqOperator(broker).create("a/#", is_lastvalue=False)
    again.publish_each("a/x", "x")
    assert again.take().payload == "x"


@ENDINGS
@pytest.mark.rule("M31")
def test_a_deleted_queue_stays_deleted(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker()
    queues = MqOperator(broker)
    queue = queues.create("a/#", name="a", is_lastvalue=False)
    connect(of=broker).publish_each("a/x", *map(str, range(10)))
    queues.delete(queue)
    end_and_restart(broker, ending)
    assert queues.names() == []
    queues.create("a/#", name="a", is_lastvalue=False)
    client = connect(of=broker)
    client.subscribe("$queue/a")
    client.expect_silence()


@ENDINGS
@pytest.mark.rule("M20")
def test_a_rejected_message_comes_after_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker()
    MqOperator(broker).create("a/#", name="a", is_lastvalue=False, redispatch_interval="200ms")
    client = connect(of=broker)
    client.subscribe("$queue/a")
    client.publish_each("a/x", "x")
    client.reject(client.hold())
    end_and_restart(broker, ending)
    again = connect(of=broker)
    again.subscribe("$queue/a")
    assert again.take().payload == "x"


@ENDINGS
@pytest.mark.rule("M19", "M24")
def test_what_a_qos_0_subscriber_got_is_gone_after_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker()
    MqOperator(broker).create("a/#", name="a", is_lastvalue=False)
    client = connect(of=broker)
    client.subscribe("$queue/a", qos=0)
    client.publish_each("a/x", *"123")
    client.hold_each(3)
    client.disconnect()
    connect(of=broker).seal("a/x")
    end_and_restart(broker, ending)
    again = connect(of=broker)
    again.subscribe("$queue/a")
    assert again.drain(at_least=1) == ["seal"]
