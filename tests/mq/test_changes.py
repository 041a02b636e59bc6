"""Queues which change or go while somebody reads them (M30, M31)."""

from __future__ import annotations

import pytest

from tests.harness.broker import BrokerProcess
from tests.mq.client import spread
from tests.mq.conftest import KEY, Connect, MakeQueue
from tests.mq.rest import MqRest


@pytest.mark.rule("M30", "M10")
def test_a_new_key_expression_acts_on_the_next_publish(
    rest: MqRest, connect: Connect, last_value: MakeQueue
) -> None:
    queue, client = last_value(key_expression="message.topic"), connect()
    client.publish_keyed(queue.topic("x"), "a=1", "b=2")
    client.publish_keyed(queue.topic("y"), "a=3")
    rest.update(queue, key_expression=KEY)
    client.publish_keyed(queue.topic("x"), "a=4", "b=5", "a=6")
    client.subscribe(queue.address)
    assert client.drain(at_least=4) == ["2", "3", "5", "6"]


@pytest.mark.rule("M30")
def test_a_new_strategy_acts_on_attached_subscribers(
    rest: MqRest, connect: Connect, regular: MakeQueue
) -> None:
    queue, producer = regular(dispatch_strategy="sticky_key"), connect()
    clients = [connect() for _ in range(3)]
    for client in clients:
        client.subscribe(queue.address)
    producer.publish_each(queue.topic(), *map(str, range(9)))
    assert sorted(map(len, spread(clients, 9))) == [0, 0, 9]
    rest.update(queue, dispatch_strategy="round_robin")
    producer.publish_each(queue.topic(), *map(str, range(9)))
    assert [len(mine) for mine in spread(clients, 9)] == [3, 3, 3]


@pytest.mark.rule("M30", "M18")
def test_a_new_limit_of_messages_in_flight_acts_at_once(
    rest: MqRest, connect: Connect, regular: MakeQueue
) -> None:
    queue, client = regular(local_max_inflight=2), connect()
    client.subscribe(queue.address)
    client.publish_each(queue.topic(), *map(str, range(20)))
    held = client.hold_all()
    assert len(held) == 2
    rest.update(queue, local_max_inflight=5)
    client.ack(held[0])
    assert len(client.hold_all()) == 4


@pytest.mark.rule("M30", "M20")
def test_a_new_interval_acts_on_the_next_rejection(
    rest: MqRest, connect: Connect, regular: MakeQueue
) -> None:
    queue, client = regular(redispatch_interval="1h"), connect()
    client.subscribe(queue.address)
    client.publish_each(queue.topic(), "x")
    held = client.hold()
    rest.update(queue, redispatch_interval="50ms")
    client.reject(held)
    assert client.take().payload == "x"


@pytest.mark.rule("M30", "M26")
def test_new_limits_act_on_the_next_publishes(
    rest: MqRest, connect: Connect, regular: MakeQueue
) -> None:
    queue, client = regular(limits={"max_shard_message_count": 1000}), connect()
    client.publish_each(queue.topic(), *map(str, range(30)))
    rest.update(queue, limits={"max_shard_message_count": 2000})
    client.publish_each(queue.topic(), *map(str, range(30, 60)))
    client.subscribe(queue.address)
    assert client.take_payloads(60) == list(map(str, range(60)))


@pytest.mark.rule("M30")
def test_an_update_loses_and_doubles_nothing(
    rest: MqRest, connect: Connect, regular: MakeQueue
) -> None:
    queue, producer, consumer = regular(), connect(), connect()
    consumer.subscribe(queue.address)
    received: list[str] = []
    strategies = ("round_robin", "least_inflight", "sticky_key", "random")
    for number in range(20):
        producer.publish_each(queue.topic(), str(number))
        rest.update(queue, dispatch_strategy=strategies[number % 4])
        received.append(consumer.take().payload)
    consumer.expect_silence()
    assert received == list(map(str, range(20)))


@pytest.mark.rule("M31", "acceptance 10")
@pytest.mark.parametrize("named", [True, False])
def test_a_queue_made_anew_has_no_old_messages_and_its_old_subscribers(
    manual_broker: BrokerProcess, connect: Connect, root: str, named: bool
) -> None:
    rest = MqRest(manual_broker)
    body = {"name": root} if named else {}
    queue = rest.create(f"{root}/#", is_lastvalue=False, **body)
    reader, producer = connect(of=manual_broker), connect(of=manual_broker)
    reader.subscribe(queue.address, identifier=4)
    producer.publish_each(queue.topic(), *map(str, range(15)))
    held = reader.hold_all()
    assert len(held) == 10
    rest.delete(queue)
    assert producer.publish(queue.topic(), "to no queue") == 0x10
    reader.expect_silence()
    assert rest.create(f"{root}/#", is_lastvalue=False, **body) == queue
    producer.publish_each(queue.topic(), "new")
    delivery = reader.take()
    assert delivery.payload == "new"
    assert delivery.packet.subscription_identifiers == [4]
    reader.ack(*held)  # of messages which are gone
    reader.expect_silence()


@pytest.mark.rule("M31")
def test_a_deleted_queue_takes_no_more_messages(
    rest: MqRest, connect: Connect, regular: MakeQueue
) -> None:
    queue, client = regular(), connect()
    client.publish_each(queue.topic(), "1")
    rest.delete(queue)
    assert client.publish(queue.topic(), "2") == 0x10
    assert not rest.exists(queue)
    assert queue.name not in rest.names()


@pytest.mark.rule("M31", "M3")
def test_a_queue_may_be_made_anew_with_another_filter_and_kind(
    rest: MqRest, connect: Connect, regular: MakeQueue
) -> None:
    old, client = regular(), connect()
    client.publish_each(old.topic(), "old")
    rest.delete(old)
    new = rest.create(f"{old.root}/sub/+", name=old.name, key_expression="message.topic")
    client.publish_each(old.topic("sub/x"), "1", "2")
    client.subscribe(new.address)
    assert client.drain(at_least=1) == ["2"]


@pytest.mark.rule("M31", "M15")
def test_a_session_which_was_away_finds_the_queue_made_anew(
    manual_broker: BrokerProcess, connect: Connect, root: str
) -> None:
    rest = MqRest(manual_broker)
    queue = rest.create(f"{root}/#", is_lastvalue=False)
    fields = {"of": manual_broker, "clean": False}
    fields |= {"properties": {"session_expiry_interval": 3600}}
    sleeper = connect(f"s-{root}", **fields)
    sleeper.subscribe(queue.address)
    sleeper.disconnect()
    rest.delete(queue)
    again = connect(f"s-{root}", **fields)
    rest.create(f"{root}/#", is_lastvalue=False)
    again.publish_each(queue.topic(), "new")
    assert again.take().payload == "new"
