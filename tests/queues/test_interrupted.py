"""Cut off in the middle: deletes, purges, delays, QoS 2 flows, wills and takeovers.

A queue is deleted or purged completely or not at all, a message is stored once however often it is
sent, and what was confirmed is there after SIGKILL.
"""

from __future__ import annotations

import time

import pytest

from tests.conftest import BrokerFactory
from tests.harness import packets as p
from tests.queues import rest
from tests.queues.client import NO_MATCH, NOT_AUTHORIZED, SUCCESS
from tests.queues.conftest import Connect, MakeQueue

LASTING = {"session_expiry_interval": 3600}
REST = {"http.enabled": True}
ONE_PARTITION = '[queues."tasks"]\npartitions = 1\n'


@pytest.mark.rule("section 10", "acceptance 18")
def test_a_deleted_queue_stays_deleted_when_the_broker_is_killed(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(REST)
    client = connect(of=broker)
    padding = "x" * 2000
    for number in range(200):
        client.publish("gone", f"{number} {padding}")
    client.publish("gone", "later", user={"delay-ms": "3000"})
    client.subscribe("gone", group="g")
    client.receive_each(3)
    assert rest.call(broker, "DELETE", rest.queue_path("gone"))[0] == 204
    broker.kill()
    broker.restart()
    assert rest.call(broker, "GET", rest.queue_path("gone"))[0] == 404
    again = connect(of=broker)
    assert again.publish("gone", "new") == SUCCESS
    again.subscribe("gone", group="g")
    delivery = again.receive()
    assert (delivery.payload, delivery.offset, delivery.count) == ("new", 1, 1)
    again.expect_silence(4.0)  # not even the delayed one


@pytest.mark.rule("section 10", "acceptance 18")
def test_a_purge_is_whole_when_the_broker_is_killed(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(REST, config=ONE_PARTITION)
    client = connect(of=broker)
    client.subscribe("tasks", group="g", prefetch="2")
    client.publish_each("tasks", *map(str, range(50)))
    client.publish("tasks", "later", user={"delay-ms": "2000"})
    held = client.receive_payloads(2)
    status, answer = rest.call(broker, "POST", rest.queue_path("tasks", "purge"))
    assert (status, answer["purged"]) == (200, 49)
    broker.kill()
    broker.restart()
    again = connect(of=broker)
    again.subscribe("tasks", group="g")
    assert [one.payload for one in again.receive_and_ack(2)] == held
    again.expect_silence(3.0)
    again.publish_each("tasks", "new")
    assert again.receive().offset == 51


@pytest.mark.rule("section 3", "acceptance 14", "acceptance 18")
def test_delayed_messages_come_once_however_often_the_broker_is_killed(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(config=ONE_PARTITION)
    client = connect(of=broker)
    due_ms = int(time.time() * 1000) + 4000
    for number in range(20):
        user = {"deliver-at": str(due_ms + 100 * number)}
        assert client.publish("tasks", str(number), user=user) == SUCCESS
    received: list[str] = []
    end_s = time.monotonic() + 60
    while len(received) < 20 and time.monotonic() < end_s:  # before and while they become due
        broker.kill()
        broker.restart()
        consumer = connect(of=broker)
        consumer.subscribe("tasks", group="g")
        while (delivery := consumer.poll(0.7)) is not None:
            if consumer.ack(delivery) == SUCCESS:
                received.append(delivery.payload)
    broker.kill()  # and after that
    broker.restart()
    consumer = connect(of=broker)
    consumer.subscribe("tasks", group="g")
    consumer.expect_silence(1.0)
    assert received == list(map(str, range(20)))


@pytest.mark.rule("D6")
@pytest.mark.parametrize("restart", [False, True], ids=["reconnect", "restart"])
def test_a_qos_2_publish_repeated_after_a_reconnect_is_stored_once(
    fresh_broker: BrokerFactory, connect: Connect, restart: bool
) -> None:
    broker = fresh_broker()
    client = connect("producer", of=broker, clean=False, properties=LASTING)
    client.wire.send(p.publish("$queue/tasks", b"once", qos=2, packet_id=9))
    assert client.wire.wait_for(p.PUBREC, 9).reason_code == SUCCESS
    client.abort()
    if restart:
        broker.kill()
        broker.restart()
    back = connect("producer", of=broker, clean=False, properties=LASTING)
    back.wire.send(p.publish("$queue/tasks", b"once", qos=2, packet_id=9, dup=True))
    assert back.wire.wait_for(p.PUBREC, 9).reason_code in (SUCCESS, NO_MATCH)
    back.wire.acknowledge(p.PUBREL, 9)
    assert back.wire.wait_for(p.PUBCOMP, 9).reason_code == SUCCESS
    # The id is free again: what comes under it now is another message.
    assert back.publish("tasks", "other", qos=2) == SUCCESS
    consumer = connect(of=broker)
    consumer.subscribe("tasks", group="g")
    assert sorted(consumer.receive_payloads(2)) == ["once", "other"]
    consumer.expect_silence()


@pytest.mark.rule("section 1", "acceptance 18")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_will_of_a_client_which_dies_with_the_broker_is_queued_once(
    fresh_broker: BrokerFactory, connect: Connect, qos: int
) -> None:
    broker = fresh_broker()
    will = p.Will("$queue/tasks", b"died", qos=qos)
    connect("dying", of=broker, properties=LASTING, will=will)
    broker.kill()
    broker.restart()
    for _ in range(2):
        consumer = connect(of=broker)
        consumer.subscribe("tasks", group="g")
        deliveries = consumer.drain()
        broker.kill()
        broker.restart()
    assert [one.payload for one in deliveries] == ["died"]


@pytest.mark.rule("section 1")
def test_a_will_to_a_settle_address_or_a_bad_name_harms_nobody(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    consumer = connect("worker")
    consumer.subscribe(queue, group="g")
    consumer.publish_each(queue, "x")
    held = consumer.receive()
    for topic in (f"$queue/{queue}/$ack", f"$queue/{queue}/$ack/1", "$queue/", "$queue/a//b"):
        properties = [("user_property", ("message-id", held.message_id))]
        will = p.Will(topic, b"", qos=1, properties=properties)
        connect(will=will).abort()
    consumer.expect_silence()
    assert consumer.ack(held) == SUCCESS


@pytest.mark.rule("D3")
def test_a_queue_bound_to_everything_takes_neither_sys_nor_queues(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker({"sys.interval_s": 1}, config='[queues."all"]\ntopics = ["#"]\n')
    client, watcher = connect(of=broker), connect(of=broker)
    client.subscribe("all", group="g")
    watcher.wire.subscribe("$SYS/#", qos=1)
    assert watcher.receive(timeout=10).packet.topic.startswith("$SYS/")
    client.publish_each("other", "1")
    client.expect_silence(1.5)
    client.publish_topic("plain", "2")
    assert client.receive().payload == "2"


@pytest.mark.rule("D12", "section 5")
def test_who_was_taken_over_settles_nothing_and_its_successor_everything(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=2)
    first = connect("w-a", clean=False, properties=LASTING)
    first.subscribe(queue, group="g")
    first.publish_each(queue, *map(str, range(6)))
    held = first.receive_each(6)
    second = connect("w-a", clean=False, properties=LASTING)
    received = second.receive_each(6)
    assert sorted((one.payload, one.count) for one in received) == sorted(
        (one.payload, 2) for one in held
    )
    stranger = connect("stranger")
    assert stranger.ack(held[0], group_id="g") == NOT_AUTHORIZED
    for delivery in held:  # the ids are the same, and it is the same client
        assert second.ack(delivery) == SUCCESS
    second.expect_silence()


@pytest.mark.rule("section 10", "D12")
def test_a_queue_deleted_under_its_consumers_can_be_made_again(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(REST)
    client = connect("w-a", of=broker, clean=False, properties=LASTING)
    client.subscribe("tasks", group="g")
    client.publish_each("tasks", "old")
    held = client.receive()
    assert rest.call(broker, "DELETE", rest.queue_path("tasks"))[0] == 204
    assert client.ack(held) in (NO_MATCH, NOT_AUTHORIZED)
    client.publish_each("tasks", "new")
    client.subscribe("tasks", group="g")
    delivery = client.receive()
    assert (delivery.payload, delivery.count) == ("new", 1)
    assert client.ack(delivery) == SUCCESS
    status, stats = rest.call(broker, "GET", rest.queue_path("tasks", "stats"))
    assert (status, stats["depth"]) == (200, 0)
