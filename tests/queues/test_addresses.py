"""Which queue an address means (D1-D4): sublevels, resolution, bindings, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.v5.test_access import add_user
from tests.conftest import BrokerFactory
from tests.harness import packets as p
from tests.queues.client import NOT_AUTHORIZED, SUCCESS, UNSPECIFIED, Delivery
from tests.queues.conftest import Connect, MakeQueue


def source(delivery: Delivery) -> str | None:
    return delivery.properties.get("x-source-topic")


@pytest.mark.rule("section 1", "D2a")
def test_names_of_any_number_of_levels_are_queues_of_their_own(
    connect: Connect, queue: str
) -> None:
    client = connect()
    names = [queue, f"{queue}/sub", f"{queue}/sub/sub/sub"]
    for name in names:
        client.publish_each(name, name)
    for name in names:
        client.subscribe(name)
        delivery = client.receive()
        assert (delivery.payload, delivery.packet.topic) == (name, f"$queue/{name}")
        client.expect_silence(0.1)


@pytest.mark.rule("D2a", "section 1")
def test_without_auto_create_an_unknown_queue_is_refused_0x87(
    fresh_broker: BrokerFactory, connect: Connect, make_queue: MakeQueue
) -> None:
    broker = fresh_broker({"queues.auto_create": False})
    client = connect(of=broker)
    assert client.publish("unknown", "x") == NOT_AUTHORIZED
    assert client.publish("unknown", "x", qos=2) == NOT_AUTHORIZED
    assert client.subscribe("unknown") == NOT_AUTHORIZED
    make_queue("known", of=broker)
    assert client.subscribe("known") == 1
    client.publish_each("known", "y")
    assert client.receive().payload == "y"


@pytest.mark.rule("D2a")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_queue_without_a_name_is_refused(connect: Connect, qos: int) -> None:
    client = connect()
    assert client.publish_topic("$queue/", "x", qos=qos) >= UNSPECIFIED
    assert client.subscribe("") >= UNSPECIFIED


@pytest.mark.rule("D2a")
@pytest.mark.parametrize("pattern", ["#", "+", "t/#", "t/+/x"])
def test_a_wildcard_names_no_queue(connect: Connect, pattern: str) -> None:
    assert connect().subscribe(pattern) >= UNSPECIFIED


@pytest.mark.rule("D3")
def test_ordinary_topics_are_untouched(connect: Connect, queue: str) -> None:
    plain, everything = connect(), connect()
    plain.wire.subscribe(f"queue/{queue}", f"{queue}/$ack", qos=1)
    everything.wire.subscribe("#", qos=1)
    for topic in (f"queue/{queue}", f"{queue}/$ack"):
        assert connect().publish_topic(topic, "x") == SUCCESS
        delivery = plain.receive()
        assert (delivery.packet.topic, delivery.properties) == (topic, {})
    connect().publish_each(queue, "queued")
    topics = [packet.topic for packet in everything.wire.drain() if queue in packet.topic]
    assert topics == [f"queue/{queue}", f"{queue}/$ack"]


@pytest.mark.rule("D3")
def test_a_queue_captures_the_topics_it_is_bound_to(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    make_queue(queue, topics=[f"{queue}/+/temperature", f"{queue}/alarm/#"])
    consumer, plain, publisher = connect(), connect(), connect()
    consumer.subscribe(queue)
    plain.wire.subscribe(f"{queue}/#", qos=1)
    sent = [f"{queue}/1/temperature", f"{queue}/1/humidity", f"{queue}/alarm/fire/2"]
    for topic in sent:
        assert publisher.publish_topic(topic, topic, user={"colour": "red"}) < UNSPECIFIED
    captured = consumer.receive_and_ack(2)
    consumer.expect_silence()
    assert {source(one) for one in captured} == {sent[0], sent[2]}
    for delivery in captured:
        assert delivery.payload == source(delivery)
        assert delivery.packet.topic == f"$queue/{queue}"
        assert delivery.properties["colour"] == "red"
    assert [plain.receive().packet.topic for _ in sent] == sent


@pytest.mark.rule("D3", "section 4")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [4, 5])
def test_a_bound_topic_is_captured_whoever_publishes(
    connect: Connect, make_queue: MakeQueue, queue: str, qos: int, version: int
) -> None:
    make_queue(queue, topics=[f"{queue}/data"])
    publisher, consumer = connect(version=version), connect()
    consumer.subscribe(queue)
    publisher.publish_topic(f"{queue}/data", "x", qos=qos)
    delivery = consumer.receive()
    assert (delivery.payload, source(delivery)) == ("x", f"{queue}/data")
    assert delivery.packet.qos >= 1
    assert consumer.ack(delivery) == SUCCESS


@pytest.mark.rule("D3")
def test_a_captured_message_nobody_else_wants_is_not_called_unwanted(
    connect: Connect, make_queue: MakeQueue, queue: str
) -> None:
    make_queue(queue, topics=[f"{queue}/data"])
    assert connect().publish_topic(f"{queue}/data", "x") == SUCCESS


@pytest.mark.rule("D3")
def test_one_publish_may_be_captured_by_several_queues(
    connect: Connect, make_queue: MakeQueue, queue: str
) -> None:
    names = [f"{queue}/one", f"{queue}/two"]
    for name in names:
        make_queue(name, topics=[f"{queue}/data"])
    connect().publish_topic(f"{queue}/data", "x")
    for name in names:
        consumer = connect()
        consumer.subscribe(name)
        assert consumer.receive().payload == "x"


@pytest.mark.rule("D2")
def test_a_queue_with_sublevels_takes_publishes_below_its_name(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1, sublevels=True)
    client = connect()
    client.subscribe(queue, group="g")
    for rest in ("", "/a", "/a/b/c"):
        client.publish_each(f"{queue}{rest}", f"at{rest}")
    received = client.receive_each(3)
    assert [one.payload for one in received] == ["at", "at/a", "at/a/b/c"]
    assert {one.properties["queue"].removeprefix("$queue/") for one in received} == {queue}
    assert {one.group for one in received} == {"g"}
    for delivery in received:
        assert client.settle("ack", delivery, queue=queue) == SUCCESS


@pytest.mark.rule("D2")
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("+/hot", ["eu/hot", "us/hot"]),
        ("eu/#", ["eu/hot", "eu/cold", "eu/cold/very"]),
        ("eu/cold", ["eu/cold"]),
        ("#", ["eu/hot", "eu/cold", "us/hot", "eu/cold/very"]),
    ],
)
def test_a_pattern_consumes_only_what_matches_in_a_group_of_its_own(
    connect: Connect, make_queue: MakeQueue, pattern: str, expected: list[str]
) -> None:
    queue = make_queue(partitions=1, sublevels=True)
    client, everything = connect(), connect()
    assert client.subscribe(f"{queue}/{pattern}", group="g") == 1
    everything.subscribe(queue, group="g")
    for rest in ("eu/hot", "eu/cold", "us/hot", "eu/cold/very"):
        everything.publish_each(f"{queue}/{rest}", rest)
    received = client.receive_each(len(expected))
    client.expect_silence()
    assert [one.payload for one in received] == expected
    assert {one.group for one in received} == {f"g@{pattern}"}
    for delivery in received:
        assert client.settle("ack", delivery, queue=queue) == SUCCESS
    assert {one.group for one in everything.receive_each(4)} == {"g"}


@pytest.mark.rule("D2", "section 1")
def test_what_no_pattern_wants_holds_no_message_back(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1, sublevels=True, limits={"max_queue_depth": 3})
    client = connect()
    client.subscribe(f"{queue}/wanted", group="g")
    for number in range(6):
        client.publish_each(f"{queue}/unwanted", str(number))
    client.publish_each(f"{queue}/wanted", "x")
    assert client.receive().payload == "x"


@pytest.mark.rule("D2a")
def test_the_longest_queue_with_sublevels_wins_and_an_exact_name_before_all(
    connect: Connect, make_queue: MakeQueue, queue: str
) -> None:
    make_queue(queue, sublevels=True)
    make_queue(f"{queue}/deep", sublevels=True)
    make_queue(f"{queue}/deep/exact")
    client = connect()
    addresses = {
        f"{queue}/flat": queue,
        f"{queue}/deep/x": f"{queue}/deep",
        f"{queue}/deep/exact": f"{queue}/deep/exact",
        f"{queue}/deep/exact/y": f"{queue}/deep",
    }
    for address in addresses:
        client.publish_each(address, address)
    for name in (queue, f"{queue}/deep", f"{queue}/deep/exact"):
        expected = sorted(address for address, owner in addresses.items() if owner == name)
        reader = connect()
        reader.subscribe(name)
        assert sorted(reader.receive_payloads(len(expected))) == expected
        reader.expect_silence(0.2)


@pytest.mark.rule("D2a", "D4")
def test_without_sublevels_a_name_below_a_queue_is_a_durable_queue_of_its_own(
    connect: Connect, make_queue: MakeQueue, queue: str
) -> None:
    make_queue(queue, sublevels=False)
    client = connect()
    client.publish_each(f"{queue}/below", "x")
    client.subscribe(queue)
    client.expect_silence()
    client.subscribe(f"{queue}/below")
    assert client.receive().payload == "x"


@pytest.mark.rule("section 2")
def test_the_admin_topic_is_for_platform_accounts_only(
    fresh_broker: BrokerFactory, connect: Connect, tmp_path: Path
) -> None:
    add_user(tmp_path, "ann", "secret")
    users = add_user(tmp_path, "ops", "secret")
    settings = {"auth.password_file": str(users), "auth.platform_users": ["ops"]}
    rule = '[[acl]]\npermission = "allow"\naction = "all"\ntopics = ["$queue/+", "$queue/+/$ack"]\n'
    broker = fresh_broker(settings, config=rule)
    ann = connect(of=broker, username="ann", password="secret")
    assert ann.publish("tasks", "x") == SUCCESS
    assert ann.configure("tasks", partitions=20) == NOT_AUTHORIZED
    ops = connect(of=broker, username="ops", password="secret")
    assert ops.configure("tasks", partitions=20) == SUCCESS


@pytest.mark.rule("section 2")
@pytest.mark.parametrize("suffix", ["$ack", "$nack", "$reject", "$config"])
def test_nobody_subscribes_to_a_settlement_or_admin_topic(
    connect: Connect, queue: str, suffix: str
) -> None:
    client = connect()
    client.publish_each(queue, "x")
    assert client.subscribe(f"{queue}/{suffix}") >= UNSPECIFIED


@pytest.mark.rule("section 1")
def test_a_retained_publish_to_a_queue_is_queued_and_not_retained(
    connect: Connect, queue: str
) -> None:
    client = connect()
    answer = client.wire.publish(f"$queue/{queue}", b"x", qos=1, retain=True)
    assert answer.type == p.PUBACK
    assert answer.reason_code == SUCCESS
    client.subscribe(queue, group="g")
    delivery = client.receive()
    assert not delivery.packet.retain
    assert client.ack(delivery) == SUCCESS
    other = connect()
    other.subscribe(queue, group="g")
    other.expect_silence()
