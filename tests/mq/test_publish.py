"""What enters a queue, and when its publisher is answered (section 1, section 3, M7, M8)."""

from __future__ import annotations

import sys

import pytest

from tests.conftest import BrokerFactory
from tests.crash.test_store_failures import writes_fail
from tests.harness.packets import Will
from tests.mq.client import NO_MATCH, SUCCESS, UNSPECIFIED
from tests.mq.conftest import Connect, MakeQueue
from tests.mq.rest import QUEUES, MqRest
from tests.queues.client import wait_until


@pytest.mark.rule("section 1", "acceptance 1")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [4, 5])
def test_a_queue_is_filled_while_nobody_is_there_and_drained_later(
    connect: Connect, regular: MakeQueue, qos: int, version: int
) -> None:
    queue, producer = regular(), connect(version=version)
    for number in range(25):
        producer.publish(queue.topic(str(number)), str(number), qos=qos)
    producer.disconnect()
    consumer = connect()
    assert consumer.subscribe(queue.address) == 1
    received = [consumer.take() for _ in range(25)]
    assert [one.payload for one in received] == list(map(str, range(25)))
    assert [one.topic for one in received] == [queue.topic(str(number)) for number in range(25)]
    consumer.expect_silence()
    consumer.disconnect()
    again = connect()
    again.subscribe(queue.address)
    again.expect_silence()


@pytest.mark.rule("section 1")
def test_a_queue_takes_its_copy_besides_ordinary_subscribers(
    connect: Connect, regular: MakeQueue
) -> None:
    queue, plain, consumer = regular(), connect(), connect()
    plain.wire.subscribe(queue.topic_filter, qos=1)
    consumer.subscribe(queue.address)
    connect().publish_each(queue.topic(), "x")
    assert plain.take().payload == "x"
    assert consumer.take().payload == "x"
    plain.expect_silence(0.2)


@pytest.mark.rule("section 1")
def test_one_client_may_read_topic_and_queue(connect: Connect, regular: MakeQueue) -> None:
    queue, client = regular(), connect()
    client.subscribe(queue.topic_filter, identifier=1)
    client.subscribe(queue.address, identifier=2)
    client.publish_each(queue.topic(), "x")
    packets = [client.take().packet for _ in range(2)]
    assert sorted(one.subscription_identifiers for one in packets) == [[1], [2]]


@pytest.mark.rule("section 1")
def test_a_message_enters_every_queue_which_matches_and_no_other(
    rest: MqRest, connect: Connect, root: str
) -> None:
    matching = [f"{root}/#", f"{root}/+/c", f"{root}/b/c", "+/b/c/#", f"{root}/b/+"]
    others = [f"{root}/b", f"{root}/+", f"{root}/b/c/+", f"{root}/B/c", f"x{root}/#"]
    queues = {one: rest.create(one, is_lastvalue=False) for one in matching + others}
    assert connect().publish(f"{root}/b/c", "x") == SUCCESS
    for topic_filter, queue in queues.items():
        client = connect()
        client.subscribe(queue.address)
        if topic_filter in matching:
            assert client.take().topic == f"{root}/b/c"
        client.expect_silence(0.2)
    rest.delete(queues["+/b/c/#"])


@pytest.mark.rule("section 1")
def test_what_was_published_before_the_queue_existed_is_not_in_it(
    rest: MqRest, connect: Connect, root: str
) -> None:
    client = connect()
    assert client.publish(f"{root}/x", "before", retain=True) in (SUCCESS, NO_MATCH)
    queue = rest.create(f"{root}/#", is_lastvalue=False)
    client.publish_each(f"{root}/x", "after")
    client.subscribe(queue.address)
    assert client.take().payload == "after"
    client.expect_silence()


@pytest.mark.rule("section 1")
def test_system_topics_enter_no_queue(fresh_broker: BrokerFactory, connect: Connect) -> None:
    broker = fresh_broker({"sys.interval_s": 0.2})
    rest, client, watcher = MqRest(broker), connect(of=broker), connect(of=broker)
    rest.create("#", is_lastvalue=False)
    client.subscribe("$q/#")
    body = {"topic_filter": "$SYS/#", "is_lastvalue": False}
    if rest.call("POST", QUEUES, body).status == 200:
        client.subscribe("$q/$SYS/#")
    watcher.wire.subscribe("$SYS/#")
    for _ in range(3):
        watcher.take()
    client.expect_silence()
    client.publish_each("any", "x")
    assert client.take().payload == "x"


@pytest.mark.rule("section 1", "M6")
def test_a_retained_message_enters_and_is_delivered_without_the_flag(
    connect: Connect, regular: MakeQueue
) -> None:
    queue, client = regular(), connect()
    assert client.publish(queue.topic(), "kept", retain=True) == SUCCESS
    client.subscribe(queue.address)
    packet = client.take().packet
    assert (packet.payload, packet.retain) == (b"kept", False)
    client.expect_silence(0.2)
    plain = connect()
    plain.wire.subscribe(queue.topic_filter, qos=1)
    assert plain.take().packet.retain


@pytest.mark.rule("section 1")
def test_the_removal_of_a_retained_message_is_a_message_too(
    connect: Connect, regular: MakeQueue
) -> None:
    queue, client = regular(), connect()
    client.publish(queue.topic(), "", retain=True)
    client.subscribe(queue.address)
    assert client.take().payload == ""


@pytest.mark.rule("section 1", "M10")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_enters_with_the_key_of_its_client(
    connect: Connect, last_value: MakeQueue, qos: int
) -> None:
    queue = last_value(key_expression="message.from")
    will = Will(queue.topic(), b"gone", qos=qos, properties={"content_type": "text/plain"})
    dying = connect(will=will)
    dying.publish_each(queue.topic(), "alive")
    dying.abort()
    consumer = connect()
    consumer.subscribe(queue.address)
    received = [consumer.take()]
    if received[0].payload == "alive":  # the subscriber was faster than the will
        received.append(consumer.take())
    assert received[-1].payload == "gone"
    assert received[-1].packet.properties == {"content_type": "text/plain"}
    consumer.expect_silence(0.2)


@pytest.mark.rule("section 1")
def test_a_topic_alias_is_resolved(connect: Connect, regular: MakeQueue) -> None:
    queue, client = regular(), connect()
    assert client.publish(queue.topic(), "1", topic_alias=1) == SUCCESS
    assert client.publish("", "2", topic_alias=1) == SUCCESS
    client.subscribe(queue.address)
    received = [client.take() for _ in range(2)]
    assert [(one.topic, one.payload) for one in received] == [
        (queue.topic(), "1"),
        (queue.topic(), "2"),
    ]
    assert "topic_alias" not in received[1].packet.properties


@pytest.mark.rule("section 3")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_publisher_is_told_of_success_when_only_a_queue_matches(
    connect: Connect, regular: MakeQueue, last_value: MakeQueue, qos: int
) -> None:
    client = connect()
    limited = regular(limits={"max_shard_message_count": 100})
    for queue in (regular(), limited, last_value(key_expression="message.from")):
        assert client.publish(queue.topic(), "x", qos=qos) == SUCCESS
    assert client.publish(f"nobody/{limited.name}", "x", qos=qos) == NO_MATCH


@pytest.mark.rule("M8")
def test_messages_of_one_publisher_keep_their_order(connect: Connect, regular: MakeQueue) -> None:
    queue, consumer = regular(), connect()
    producers = [connect() for _ in range(4)]
    for number in range(20):
        for producer in producers:
            producer.wire.send_publish(
                queue.topic(producer.client_id), str(number), qos=1, packet_id=number + 1
            )
    consumer.subscribe(queue.address)
    received = [consumer.take() for _ in range(80)]
    for producer in producers:
        mine = [one.payload for one in received if one.topic == queue.topic(producer.client_id)]
        assert mine == list(map(str, range(20)))


@pytest.mark.rule("M7")
@pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit and /proc")
def test_a_publish_which_no_queue_could_store_is_refused(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker()
    MqRest(broker).create("a/#", is_lastvalue=False)
    MqRest(broker).create("a/b", is_lastvalue=True)
    producer, consumer = connect(of=broker), connect(of=broker)
    producer.publish_each("a/x", "confirmed")
    with writes_fail(broker):
        assert producer.publish("a/b", "refused") >= UNSPECIFIED
        assert producer.publish("a/b", "refused", qos=2) >= UNSPECIFIED
        assert producer.publish("other/topic", "x") < UNSPECIFIED
    wait_until(lambda: producer.publish("a/x", "after") == SUCCESS)
    consumer.subscribe("$q/a/#")
    assert consumer.take_payloads(2) == ["confirmed", "after"]
    consumer.subscribe("$q/a/b")
    consumer.expect_silence()


@pytest.mark.rule("M7")
@pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit and /proc")
def test_a_failed_queue_does_not_block_routing(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker()
    MqRest(broker).create("a/#", is_lastvalue=False)
    producer, plain = connect(of=broker), connect(of=broker)
    plain.wire.subscribe("a/#", qos=0)
    with writes_fail(broker):
        producer.publish("a/x", "routed", qos=0)
        assert plain.take().payload == "routed"
