"""Which queue a name or an address means (M1-M6)."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.conftest import BrokerFactory
from tests.harness.broker import BrokerProcess
from tests.mq.client import NOT_AUTHORIZED, SUCCESS, TOPIC_NAME_INVALID, UNSPECIFIED
from tests.mq.conftest import Connect, MakeQueue
from tests.mq.rest import QUEUES, MqRest, assert_error
from tests.queues import rest as durable


@pytest.mark.rule("M1")
@pytest.mark.parametrize("suffix", ["", "-a", ".b", "_c", "-._", "0Z"])
def test_a_name_has_letters_digits_and_three_signs(rest: MqRest, root: str, suffix: str) -> None:
    queue = rest.create(f"{root}/#", name=root + suffix)
    assert queue.name == root + suffix
    assert rest.call("GET", queue.path).json["name"] == root + suffix


@pytest.mark.rule("M1")
@pytest.mark.parametrize(
    "name", ["", "-a", ".a", "_a", "/a", "a/b", "a b", "a#", "a+", "$a", "ä", "a\n", "a\0"]
)
def test_another_name_is_refused(rest: MqRest, root: str, name: str) -> None:
    answer = rest.call("POST", QUEUES, {"name": name, "topic_filter": f"{root}/#"})
    assert answer.status == 400
    assert answer.json["message"]
    assert not [one for one in rest.names() if root in one]


@pytest.mark.rule("M1", "M2", "section 8")
def test_a_queue_without_a_name_is_named_by_its_filter(rest: MqRest, root: str) -> None:
    queue = rest.create(f"{root}/+/#")
    assert queue.name == f"/{root}/+/#"
    for path in (quote(f"{root}/+/#", safe=""), quote(f"/{root}/+/#", safe="")):
        answer = rest.call("GET", f"{QUEUES}/{path}")
        assert (answer.status, answer.json["topic_filter"]) == (200, f"{root}/+/#")
        assert rest.call("PUT", f"{QUEUES}/{path}", {"dispatch_strategy": "random"}).status == 200
    assert rest.call("DELETE", f"{QUEUES}/{quote(f'{root}/+/#', safe='')}").status == 204
    assert not rest.exists(queue)


@pytest.mark.rule("M1")
def test_an_exact_name_goes_before_a_filter(rest: MqRest, root: str) -> None:
    legacy = rest.create(root)
    assert rest.call("GET", f"{QUEUES}/{root}").json["name"] == legacy.name
    named = rest.create(f"{root}/other", name=root)
    assert rest.call("GET", f"{QUEUES}/{root}").json["topic_filter"] == f"{root}/other"
    assert rest.call("GET", f"{QUEUES}/%2F{root}").json["topic_filter"] == root
    rest.delete(named)
    assert rest.call("GET", f"{QUEUES}/{root}").json["name"] == legacy.name


@pytest.mark.rule("M1")
def test_a_filter_with_a_leading_slash_is_told_from_the_legacy_name(
    rest: MqRest, root: str
) -> None:
    slashed = rest.create(f"/{root}")
    assert slashed.name == f"//{root}"
    assert rest.call("GET", f"{QUEUES}/%2F{root}").json["topic_filter"] == f"/{root}"
    rest.create(root)
    assert rest.call("GET", f"{QUEUES}/%2F{root}").json["topic_filter"] == root
    assert rest.call("GET", f"{QUEUES}/%2F%2F{root}").json["topic_filter"] == f"/{root}"


@pytest.mark.rule("M1", "M6")
@pytest.mark.parametrize(
    "pattern", ["{0}", "{0}/+", "{0}/#", "+/{0}/x", "/{0}", "{0}//", "{0}/ä b"]
)
def test_a_legacy_queue_is_reached_by_any_filter(
    rest: MqRest, connect: Connect, root: str, pattern: str
) -> None:
    topic_filter = pattern.format(root)
    queue = rest.create(topic_filter, is_lastvalue=False)
    topic = topic_filter.replace("+", "level").replace("#", "deep/down")
    client = connect()
    assert client.publish(topic, "x") == SUCCESS
    assert client.subscribe(queue.address) == 1
    assert client.take().topic == topic


@pytest.mark.rule("M3")
def test_a_durable_queue_keeps_its_name(
    broker: BrokerProcess, rest: MqRest, connect: Connect, root: str
) -> None:
    assert durable.call(broker, "PUT", durable.queue_path(root), {})[0] == 201
    answer = rest.call("POST", QUEUES, {"name": root, "topic_filter": f"{root}/#"})
    assert_error(answer, 400, "ALREADY_EXISTS")
    client = connect()
    assert client.publish(f"$queue/{root}", "x") == SUCCESS
    assert client.subscribe(f"$queue/{root}") == 1
    assert client.take().payload == "x"


@pytest.mark.rule("M3")
def test_a_durable_queue_made_by_a_publish_keeps_its_name(
    rest: MqRest, connect: Connect, root: str
) -> None:
    assert connect().publish(f"$queue/{root}", "x") == SUCCESS
    answer = rest.call("POST", QUEUES, {"name": root, "topic_filter": f"{root}/#"})
    assert_error(answer, 400, "ALREADY_EXISTS")


@pytest.mark.rule("M3")
def test_a_message_queue_keeps_its_name(
    broker: BrokerProcess, connect: Connect, regular: MakeQueue
) -> None:
    queue = regular()
    status, answer = durable.call(broker, "PUT", durable.queue_path(queue.name), {})
    assert status == 400, answer
    assert "ALREADY_EXISTS" in str(answer)
    client = connect()
    assert client.publish(queue.topic(), "x") == SUCCESS
    assert client.subscribe(queue.address) == 1
    delivery = client.take()
    assert (delivery.topic, delivery.payload) == (queue.topic(), "x")


@pytest.mark.rule("M3")
@pytest.mark.parametrize("qos", [1, 2])
def test_nobody_publishes_to_the_name_of_a_message_queue(
    connect: Connect, regular: MakeQueue, qos: int
) -> None:
    queue, client = regular(), connect()
    assert client.publish(queue.address, "x", qos=qos) == TOPIC_NAME_INVALID
    client.subscribe(queue.address)
    client.expect_silence()


@pytest.mark.rule("M3", "M14")
def test_a_named_address_creates_no_message_queue_beside_durable_queues(
    rest: MqRest, connect: Connect, root: str
) -> None:
    connect().subscribe(f"$queue/{root}/a/#")
    assert root not in rest.names()


@pytest.mark.rule("M3", "M14")
def test_a_named_address_with_a_filter_creates_when_durable_queues_do_not(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker({"queues.auto_create": False})
    client, rest = connect(of=broker), MqRest(broker)
    assert client.subscribe("$queue/tasks") == NOT_AUTHORIZED
    assert client.subscribe("$queue/jobs/a/+/b") == 1
    answer = rest.call("GET", f"{QUEUES}/jobs").json
    assert (answer["topic_filter"], answer["is_lastvalue"]) == ("a/+/b", True)
    assert client.publish("a/1/b", "x") == SUCCESS
    assert client.take().topic == "a/1/b"
    assert client.subscribe("$q/c/#") == 1
    assert sorted(rest.names()) == ["/c/#", "jobs"]


@pytest.mark.rule("acceptance 20")
def test_all_addresses_of_a_named_queue_share_it(connect: Connect, regular: MakeQueue) -> None:
    queue = regular(dispatch_strategy="round_robin")
    short, long, producer = connect(), connect(), connect()
    assert short.subscribe(f"$queue/{queue.name}") == 1
    assert long.subscribe(f"$queue/{queue.name}/{queue.topic_filter}") == 1
    producer.publish_each(queue.topic(), *"123456")
    received = short.take_payloads(3) + long.take_payloads(3)
    assert sorted(received) == list("123456")


@pytest.mark.rule("acceptance 20", "M1")
def test_a_legacy_queue_is_reached_by_filter_and_by_name(
    rest: MqRest, connect: Connect, root: str
) -> None:
    queue = rest.create(f"{root}/#", is_lastvalue=False, dispatch_strategy="round_robin")
    by_filter, by_name, producer = connect(), connect(), connect()
    assert by_filter.subscribe(f"$q/{root}/#") == 1
    assert by_name.subscribe(f"$queue/{queue.name}") == 1
    producer.publish_each(queue.topic(), *"1234")
    received = by_filter.take_payloads(2) + by_name.take_payloads(2)
    assert sorted(received) == list("1234")


@pytest.mark.rule("M1")
def test_a_named_queue_is_not_the_legacy_queue_of_its_filter(
    rest: MqRest, connect: Connect, regular: MakeQueue
) -> None:
    named = regular()
    legacy = rest.create(named.topic_filter, is_lastvalue=False)
    client = connect()
    client.publish_each(named.topic(), "x")
    for queue in (named, legacy):
        client.subscribe(queue.address)
        assert client.take().payload == "x"
        client.expect_silence(0.2)


@pytest.mark.rule("M4")
@pytest.mark.parametrize("form", ["$q", "$queue"])
def test_a_3_1_1_subscriber_settles_by_acknowledging(
    rest: MqRest, connect: Connect, root: str, form: str
) -> None:
    body = {} if form == "$q" else {"name": root}
    queue = rest.create(f"{root}/#", is_lastvalue=False, **body)
    old, producer = connect(version=4), connect()
    assert old.subscribe(queue.address) == 1
    producer.publish_each(queue.topic(), "1", "2", "3")
    assert old.take().payload == "1"
    held = old.hold_each(2)
    assert [one.packet.qos for one in held] == [1, 1]
    old.ack(held[1])
    old.abort()
    successor = connect()
    successor.subscribe(queue.address)
    assert successor.take().payload == "2"
    successor.expect_silence()


@pytest.mark.rule("M4")
def test_3_1_1_subscribers_may_be_refused(fresh_broker: BrokerFactory, connect: Connect) -> None:
    broker = fresh_broker({"mq.allow_v3": False})
    rest = MqRest(broker)
    rest.create("a/#", name="a")
    old = connect(of=broker, version=4)
    assert old.subscribe("$q/b/#") == UNSPECIFIED
    assert old.subscribe("$queue/a") == UNSPECIFIED
    assert rest.names() == ["a"]
    assert old.subscribe("plain/#") == 1
    assert connect(of=broker).subscribe("$queue/a") == 1


@pytest.mark.rule("M5")
@pytest.mark.parametrize("requested", [1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_messages_are_delivered_with_qos_1(
    connect: Connect, regular: MakeQueue, requested: int, published: int
) -> None:
    queue, client = regular(), connect()
    assert client.subscribe(queue.address, qos=requested) in (1, requested)
    client.publish(queue.topic(), "x", qos=published)
    delivery = client.hold()
    assert delivery.packet.qos == 1
    client.ack(delivery)
    client.expect_silence(0.2)


@pytest.mark.rule("M5", "M19")
@pytest.mark.parametrize("version", [4, 5])
def test_a_qos_0_subscriber_acknowledges_nothing(
    connect: Connect, regular: MakeQueue, version: int
) -> None:
    queue, client = regular(), connect(version=version)
    assert client.subscribe(queue.address, qos=0) == 0
    connect().publish_each(queue.topic(), "1", "2")
    held = client.hold_each(2)
    assert [(one.payload, one.packet.qos) for one in held] == [("1", 0), ("2", 0)]
    client.abort()
    successor = connect()
    successor.subscribe(queue.address)
    successor.expect_silence()


@pytest.mark.rule("M6", "acceptance 19")
def test_a_delivery_has_the_identifier_of_its_subscription(
    rest: MqRest, connect: Connect, root: str
) -> None:
    queues = [rest.create(f"{root}/{last}", is_lastvalue=False) for last in ("+", "#")]
    client = connect()
    for number, queue in enumerate(queues, 7):
        assert client.subscribe(queue.address, identifier=number) == 1
    assert client.publish(f"{root}/x", "x", retain=True) == SUCCESS
    packets = [client.take().packet for _ in queues]
    assert sorted(one.subscription_identifiers for one in packets) == [[7], [8]]
    assert [(one.topic, one.retain, one.dup) for one in packets] == [
        (f"{root}/x", False, False)
    ] * 2


@pytest.mark.rule("M6")
def test_without_an_identifier_none_is_delivered(connect: Connect, regular: MakeQueue) -> None:
    queue, client = regular(), connect()
    client.subscribe(queue.address)
    client.publish_each(queue.topic(), "x")
    assert client.take().packet.properties == {}


@pytest.mark.rule("M6")
def test_the_newest_identifier_of_a_subscription_is_delivered(
    connect: Connect, regular: MakeQueue
) -> None:
    queue, client = regular(), connect()
    for identifier in (3, 4):
        client.subscribe(queue.address, identifier=identifier)
    client.publish_each(queue.topic(), "x")
    assert client.take().packet.subscription_identifiers == [4]
    client.expect_silence(0.2)
