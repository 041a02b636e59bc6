"""Last-value queues: one live message for each key (M9, M10, M23)."""

from __future__ import annotations

import pytest

from tests.mq.client import SUCCESS
from tests.mq.conftest import KEY, Connect, MakeQueue
from tests.mq.rest import QUEUES, MqRest


@pytest.mark.rule("M9", "acceptance 2")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_hundred_messages_of_ten_keys_are_ten_messages(
    connect: Connect, last_value: MakeQueue, qos: int
) -> None:
    queue, producer, consumer = last_value(), connect(), connect()
    for number in range(100):
        user = {"mq-key": str(number % 10)}
        producer.publish(queue.topic(str(number)), str(number), qos=qos, user=user)
    consumer.subscribe(queue.address)
    assert consumer.take_payloads(10) == list(map(str, range(90, 100)))
    consumer.expect_silence()


@pytest.mark.rule("M10", "acceptance 3")
def test_the_default_key_is_the_publisher(rest: MqRest, connect: Connect, root: str) -> None:
    queue = rest.create(f"{root}/#")
    assert rest.call("GET", queue.path).json["key_expression"] == "message.from"
    for name in ("a", "b", "c"):
        producer = connect(f"{root}-{name}")
        producer.publish_each(queue.topic(), *(f"{name}{number}" for number in range(5)))
    consumer = connect()
    consumer.subscribe(queue.address)
    assert consumer.take_payloads(3) == ["a4", "b4", "c4"]
    consumer.expect_silence()


@pytest.mark.rule("M9")
def test_a_new_value_goes_to_the_tail(connect: Connect, last_value: MakeQueue) -> None:
    queue, client = last_value(), connect()
    client.publish_keyed(queue.topic(), "a=a1", "b=b1", "c=c1", "a=a2", "c=c2", "c=c3")
    client.subscribe(queue.address)
    assert client.take_payloads(3) == ["b1", "a2", "c3"]
    client.expect_silence()


@pytest.mark.rule("M9")
def test_an_acknowledged_key_is_empty_until_its_next_value(
    connect: Connect, last_value: MakeQueue
) -> None:
    queue, client = last_value(), connect()
    client.publish_keyed(queue.topic(), "a=1")
    client.subscribe(queue.address)
    client.ack(client.hold())
    client.disconnect()
    again = connect()
    again.subscribe(queue.address)
    again.expect_silence()
    again.publish_keyed(queue.topic(), "a=2")
    assert again.take().payload == "2"


@pytest.mark.rule("M9")
def test_keys_of_two_queues_are_apart(connect: Connect, rest: MqRest, root: str) -> None:
    client = connect()
    queues = [
        rest.create(f"{root}/#", name=f"{root}-{number}", key_expression=expression)
        for number, expression in enumerate(("message.topic", KEY))
    ]
    client.publish_keyed(f"{root}/x", "a=1", "b=2")
    client.publish_keyed(f"{root}/y", "a=3")
    client.publish_keyed(f"{root}/x", "c=4")
    for queue, expected in zip(queues, (["3", "4"], ["2", "3", "4"]), strict=True):
        client.subscribe(queue.address)
        assert client.take_payloads(len(expected)) == expected
        client.expect_silence(0.2)


@pytest.mark.rule("M10", "section 3")
@pytest.mark.parametrize(
    ("expression", "live"),
    [
        ("message.topic", ["1", "3", "5", "6"]),
        ("message.payload", ["1", "2", "3", "4", "5", "6"]),
        ("message.qos", ["6"]),
        ("'constant'", ["6"]),
        ("42", ["6"]),
        (KEY, ["2", "4", "5", "6"]),
        ("message.headers.properties.Content-Type", ["5", "6"]),
        ("concat([message.from, '/', nth(3, tokens(message.topic, '/'))])", ["5", "6"]),
        ("iif(str_eq(message.payload, '1'), 'one', 'other')", ["1", "6"]),
        ("substr(message.headers.properties.User-Property.mq-key, 1)", ["6"]),
        ("strlen(message.topic)", ["5", "6"]),
        ("upper(message.headers.properties.User-Property.mq-key)", ["4", "6"]),
    ],
)
def test_the_key_is_what_the_expression_says(
    connect: Connect, last_value: MakeQueue, expression: str, live: list[str]
) -> None:
    """Messages 1 to 6 differ in topic, key and content type as the table of publishes says."""
    queue, producer, consumer = last_value(key_expression=expression), connect(), connect()
    for payload, level, key, content_type in (
        ("1", "x/k1", "a", "text"),
        ("2", "x/k2", "A", "text"),
        ("3", "x/k2", "b", "text"),
        ("4", "y/k1", "a", "text"),
        ("5", "y/k1", "B", "text"),
        ("6", "long/k2", "b", "json"),
    ):
        producer.publish(
            queue.topic(level), payload, user={"mq-key": key}, content_type=content_type
        )
    consumer.subscribe(queue.address)
    assert consumer.drain() == live


@pytest.mark.rule("M10")
def test_the_empty_string_is_a_key(connect: Connect, last_value: MakeQueue) -> None:
    queue, client = last_value(), connect()
    client.publish_keyed(queue.topic(), "=1", "a=2", "=3")
    client.subscribe(queue.address)
    assert client.take_payloads(2) == ["2", "3"]
    client.expect_silence(0.2)


@pytest.mark.rule("M10")
def test_a_message_without_a_key_enters_the_other_queues_only(
    rest: MqRest, connect: Connect, root: str
) -> None:
    keyed = rest.create(f"{root}/#", name=f"{root}-keyed", key_expression=KEY)
    other = rest.create(f"{root}/#", name=f"{root}-all", is_lastvalue=False)
    client = connect()
    assert client.publish(f"{root}/x", "no key") == SUCCESS
    client.publish_keyed(f"{root}/x", "a=key")
    client.subscribe(keyed.address)
    assert client.drain(at_least=1) == ["key"]
    client.subscribe(other.address)
    assert client.drain(at_least=2) == ["no key", "key"]


@pytest.mark.rule("M10")
@pytest.mark.parametrize("qos", [1, 2])
def test_an_evaluation_error_alone_is_no_error_of_the_publisher(
    connect: Connect, last_value: MakeQueue, qos: int
) -> None:
    queue, client = last_value(), connect()
    assert client.publish(queue.topic(), "no key", qos=qos) < 0x80
    client.publish_keyed(queue.topic(), "a=1")
    client.subscribe(queue.address)
    assert client.drain(at_least=1) == ["1"]


@pytest.mark.rule("M10")
@pytest.mark.parametrize(
    "expression",
    ["", "(", "concat([message.from, 'x'", "nosuchfunction(message.from)", "'open", "a b", "1 +"],
)
def test_an_expression_which_cannot_be_read_is_refused(
    rest: MqRest, root: str, expression: str
) -> None:
    body = {"name": root, "topic_filter": f"{root}/#", "key_expression": expression}
    answer = rest.call("POST", QUEUES, body)
    assert (answer.status, answer.json["code"]) == (400, "BAD_REQUEST"), answer.body
    assert root not in rest.names()


@pytest.mark.rule("M23")
def test_a_value_in_flight_stays_and_the_new_one_is_delivered_besides(
    connect: Connect, last_value: MakeQueue
) -> None:
    queue, consumer, producer = last_value(), connect(), connect()
    consumer.subscribe(queue.address)
    producer.publish_keyed(queue.topic(), "a=1")
    first = consumer.hold()
    producer.publish_keyed(queue.topic(), "a=2")
    second = consumer.hold()
    assert (first.payload, second.payload) == ("1", "2")
    consumer.ack(first)
    consumer.expect_silence(0.2)
    consumer.abort()
    successor = connect()
    successor.subscribe(queue.address)
    assert successor.drain(at_least=1) == ["2"]


@pytest.mark.rule("M23")
def test_an_acknowledgement_of_the_old_value_leaves_the_new_one(
    connect: Connect, last_value: MakeQueue
) -> None:
    queue, consumer, producer = last_value(local_max_inflight=1), connect(), connect()
    consumer.subscribe(queue.address)
    producer.publish_keyed(queue.topic(), "a=1")
    first = consumer.hold()
    producer.publish_keyed(queue.topic(), "a=2")
    consumer.expect_silence(0.2)
    consumer.ack(first)
    assert consumer.take().payload == "2"


@pytest.mark.rule("M23")
def test_who_comes_later_sees_only_live_values(connect: Connect, last_value: MakeQueue) -> None:
    queue, busy, producer = last_value(), connect(), connect()
    busy.subscribe(queue.address)
    for number in range(5):
        producer.publish_keyed(queue.topic(), f"a={number}", f"b={number}")
    busy.hold_each(2)
    busy.abort()
    late = connect()
    late.subscribe(queue.address)
    assert late.drain(at_least=2) == ["4", "4"]


@pytest.mark.rule("M23")
def test_an_overwritten_value_does_not_come_back_after_its_successor_was_settled(
    connect: Connect, last_value: MakeQueue
) -> None:
    queue = last_value(dispatch_strategy="least_inflight")
    slow, quick, producer = connect(), connect(), connect()
    slow.subscribe(queue.address)
    producer.publish_keyed(queue.topic(), "a=1")
    assert slow.hold().payload == "1"
    quick.subscribe(queue.address)
    producer.publish_keyed(queue.topic(), "a=2")
    assert quick.take().payload == "2"
    quick.wire.ping()
    slow.abort()
    quick.expect_silence()


@pytest.mark.rule("M23", "M20")
def test_a_rejected_value_which_was_overwritten_does_not_come_again(
    connect: Connect, last_value: MakeQueue
) -> None:
    queue, consumer, producer = last_value(), connect(), connect()
    consumer.subscribe(queue.address)
    producer.publish_keyed(queue.topic(), "a=1")
    first = consumer.hold()
    producer.publish_keyed(queue.topic(), "a=2")
    assert consumer.take().payload == "2"
    consumer.reject(first)
    consumer.expect_silence()
