"""Queues and MQTT sessions: resumed sessions, takeovers, and connections which just end."""

from __future__ import annotations

import pytest

from tests.conftest import BrokerFactory
from tests.harness import packets as p
from tests.queues.client import SUCCESS
from tests.queues.conftest import Connect, MakeQueue

LASTING = {"session_expiry_interval": 300}


@pytest.mark.rule("D12", "D18")
def test_a_resumed_session_consumes_on_without_subscribing_again(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    client = connect("w-lasting", properties=LASTING)
    client.subscribe(queue)
    client.publish_each(queue, "1")
    assert client.receive().payload == "1"
    client.abort()
    connect().publish_each(queue, "2")
    back = connect("w-lasting", clean=False, properties=LASTING)
    assert back.wire.connack is not None
    assert back.wire.connack.session_present
    received = back.receive_and_ack(2)
    assert sorted((one.payload, one.count) for one in received) == [("1", 2), ("2", 1)]
    back.expect_silence()


@pytest.mark.rule("D12")
def test_while_a_lasting_consumer_is_away_another_one_takes_its_messages(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    away = connect("w-a", properties=LASTING)
    away.subscribe(queue)
    away.publish_each(queue, "1")
    away.receive()
    away.abort()
    there = connect("w-b")
    there.subscribe(queue)
    delivery = there.receive()
    assert (delivery.payload, delivery.count) == ("1", 2)
    assert there.ack(delivery) == SUCCESS
    back = connect("w-a", clean=False, properties=LASTING)
    back.expect_silence()
    back.publish_each(queue, "2")
    assert back.receive().payload == "2"


@pytest.mark.rule("D12", "D16")
def test_a_resumed_3_1_1_session_gets_what_it_did_not_acknowledge(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    client = connect("w-old", version=4, clean=False)
    client.subscribe(queue)
    connect().publish_each(queue, "1", "2")
    assert client.receive().payload == "1"
    client.receive(puback=False)
    client.wire.ping()
    client.abort()
    back = connect("w-old", version=4, clean=False)
    assert back.receive().payload == "2"
    back.expect_silence()


@pytest.mark.rule("D12", "D18")
def test_a_client_which_takes_over_its_own_id_gets_the_held_messages_again(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    first = connect("w-a")
    first.subscribe(queue)
    first.publish_each(queue, "1")
    assert first.receive().count == 1
    second = connect("w-a")
    first.wire.expect(p.DISCONNECT, reason_code=0x8E)
    second.subscribe(queue)
    delivery = second.receive()
    assert (delivery.payload, delivery.count) == ("1", 2)
    assert second.ack(delivery) == SUCCESS


@pytest.mark.rule("D12")
def test_a_clean_start_leaves_the_group_and_a_subscribe_joins_it_again(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    client = connect("w-a", properties=LASTING)
    client.subscribe(queue)
    client.disconnect()
    fresh = connect("w-a", clean=True)
    fresh.publish_each(queue, "1")
    fresh.expect_silence()
    fresh.subscribe(queue)
    assert fresh.receive().payload == "1"


@pytest.mark.rule("D18")
def test_nothing_held_is_lost_when_everybody_dies_at_once(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=3)
    workers = [connect(f"w-{number}") for number in range(3)]
    for worker in workers:
        worker.subscribe(queue)
    connect().publish_each(queue, *map(str, range(9)))
    for worker in workers:
        worker.poll(0.3)
    for worker in workers:
        worker.abort()
    heir = connect("w-heir")
    heir.subscribe(queue)
    received = heir.receive_and_ack(9)
    assert sorted(one.payload for one in received) == [str(number) for number in range(9)]
    heir.expect_silence()


@pytest.mark.rule("D18", "section 5")
def test_a_settlement_in_the_last_packet_before_the_end_counts(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    client = connect("w-a")
    client.subscribe(queue)
    client.publish_each(queue, "1", "2")
    first, _ = client.receive_each(2)
    settlement = p.publish(
        f"$queue/{queue}/$ack",
        qos=1,
        packet_id=4711,
        properties=[("user_property", ("message-id", first.message_id))],
    )
    client.wire.send(settlement + p.disconnect())
    client.wire.read_to_close()
    heir = connect("w-b")
    heir.subscribe(queue)
    assert heir.receive().payload == "2"
    heir.expect_silence()


@pytest.mark.rule("section 1")
def test_a_will_may_go_to_a_queue(connect: Connect, queue: str) -> None:
    consumer = connect()
    consumer.subscribe(queue)
    will = p.Will(f"$queue/{queue}", b"died", qos=1)
    connect(will=will).abort()
    delivery = consumer.receive()
    assert delivery.payload == "died"
    assert consumer.ack(delivery) == SUCCESS


@pytest.mark.rule("D18")
def test_a_resumed_session_gets_each_unacknowledged_delivery_once(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    client = connect("w-lasting", properties=LASTING)
    client.subscribe(queue)
    client.publish_each(queue, "1", "2")
    for _ in range(2):
        client.receive(puback=False)
    client.abort()
    back = connect("w-lasting", clean=False, properties=LASTING)
    received = back.receive_and_ack(2)
    assert [(one.payload, one.count) for one in received] == [("1", 2), ("2", 2)]
    back.expect_silence()


@pytest.mark.rule("acceptance 18", "D12")
@pytest.mark.parametrize("version", [4, 5])
def test_a_session_consumes_on_after_the_broker_was_killed(
    fresh_broker: BrokerFactory, connect: Connect, version: int
) -> None:
    broker = fresh_broker(config='[queues."tasks"]\npartitions = 1\n')
    fields = {"clean": False} | ({"properties": LASTING} if version == 5 else {})
    client = connect("w-lasting", of=broker, version=version, **fields)
    client.subscribe("tasks")
    connect(of=broker).publish_each("tasks", "1")
    client.receive(puback=False)
    broker.kill()
    broker.restart()
    connect(of=broker).publish_each("tasks", "2")
    back = connect("w-lasting", of=broker, version=version, **fields)
    assert back.wire.connack is not None
    assert back.wire.connack.session_present
    assert back.receive_payloads(2) == ["1", "2"]
    back.expect_silence()


@pytest.mark.rule("D6", "acceptance 18")
def test_an_exactly_once_publish_sent_again_after_a_kill_is_stored_once(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker()
    publisher = connect("p-1", of=broker, clean=False, properties=LASTING)
    publisher.wire.send(p.publish("$queue/tasks", b"once", qos=2, packet_id=5))
    assert publisher.wire.wait_for(p.PUBREC, 5).reason_code == SUCCESS
    broker.kill()
    broker.restart()
    again = connect("p-1", of=broker, clean=False, properties=LASTING)
    again.wire.send(p.publish("$queue/tasks", b"once", qos=2, packet_id=5, dup=True))
    again.wire.wait_for(p.PUBREC, 5)
    again.wire.acknowledge(p.PUBREL, 5)
    again.wire.wait_for(p.PUBCOMP, 5)
    consumer = connect(of=broker)
    consumer.subscribe("tasks")
    assert consumer.receive().payload == "once"
    consumer.expect_silence()
