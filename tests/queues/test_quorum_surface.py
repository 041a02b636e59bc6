"""Quorum queues as clients of MQTT see them: each row of the table of section 16."""

from __future__ import annotations

import pytest

from tests.harness import packets as p
from tests.harness.broker import Broker
from tests.queues import rest
from tests.queues.client import (
    NO_MATCH,
    NOT_AUTHORIZED,
    QUOTA_EXCEEDED,
    SPECIFIC,
    SUCCESS,
    UNSPECIFIED,
    Delivery,
)
from tests.queues.conftest import Connect, MakeQueue
from tests.queues.node import QueueNode

QUORUM = {"type": "quorum"}


def counts(delivery: Delivery) -> tuple[str, str]:
    """How often it was handed out, and how often that failed."""
    found = delivery.properties
    return found["x-acquired-count"], found.get("x-delivery-count", "")


# PUBLISH


@pytest.mark.rule("section 16", "Q8")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publish_of_each_qos_is_one_message(
    connect: Connect, make_queue: MakeQueue, qos: int
) -> None:
    queue = make_queue(**QUORUM)
    producer, consumer = connect(), connect()
    assert producer.publish(queue, "x", qos=qos) == SUCCESS
    assert consumer.subscribe(queue) == 1
    delivery = consumer.receive()
    assert (delivery.payload, delivery.packet.qos, delivery.offset) == ("x", 1, 1)
    assert consumer.ack(delivery) == SUCCESS
    consumer.expect_silence()


@pytest.mark.rule("Q8", "section 16")
def test_nothing_is_confirmed_or_delivered_before_it_is_durable() -> None:
    node = QueueNode()
    node.make("q", **QUORUM)
    consumer = node.consumer("q", None)
    producer = node.client("producer")
    producer.transport.send(p.publish("$queue/q", b"x", qos=1, packet_id=1))
    node.loop.run_until_idle()
    assert node.committer.is_busy()
    assert not producer.transport.received
    assert not consumer.transport.received
    node.work()
    assert producer.take().type == p.PUBACK
    assert consumer.take().payload == b"x"


@pytest.mark.rule("section 16")
def test_a_publish_whose_commit_fails_is_refused_and_never_delivered() -> None:
    node = QueueNode()
    node.make("q", **QUORUM)
    consumer = node.consumer("q", None)
    node.publish("q", "first")
    node.store.fail_commits = 1
    node.publish("q", "lost", expected=UNSPECIFIED)
    node.after(2)
    node.publish("q", "kept")
    # What was in its hands when the queue was read again comes again, as after a crash.
    assert consumer.payloads() == [b"first", b"first", b"kept"]


@pytest.mark.rule("section 16")
def test_a_qos_2_publish_sent_again_before_its_pubrel_is_stored_once(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(**QUORUM)
    client = connect()
    packet = p.publish(f"$queue/{queue}", b"x", qos=2, packet_id=7)
    for again in (packet, p.publish(f"$queue/{queue}", b"x", qos=2, packet_id=7, dup=True)):
        client.wire.send(again)
        assert client.wire.wait_for(p.PUBREC, 7).reason_code == SUCCESS
    client.wire.acknowledge(p.PUBREL, 7)
    assert client.wire.wait_for(p.PUBCOMP, 7).reason_code == SUCCESS
    client.subscribe(queue)
    assert client.receive_payloads(1) == ["x"]
    client.expect_silence()


@pytest.mark.rule("Q24", "section 16")
def test_publishes_over_the_limit_are_refused_until_four_fifths_are_left(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(**QUORUM, max_length=5, overflow="reject_publish")
    client = connect()
    client.publish_each(queue, *"123456")  # the one over the limit is the last one taken
    assert client.publish(queue, "7") == QUOTA_EXCEEDED
    client.publish(queue, "8", qos=0)  # nobody to be told
    consumer = connect()
    consumer.subscribe(queue, prefetch="1")
    assert consumer.receive_and_ack(1)[0].payload == "1"
    assert client.publish(queue, "9") == SUCCESS  # four are ready, one is held
    assert [one.payload for one in consumer.receive_and_ack(6)] == list("234569")


@pytest.mark.rule("section 16")
def test_a_queue_takes_publishes_of_topics_it_is_bound_to(
    connect: Connect, make_queue: MakeQueue, queue: str
) -> None:
    make_queue(queue, **QUORUM, topics=[f"{queue}/+"])
    client = connect()
    client.subscribe(queue)
    assert client.publish_topic(f"{queue}/a", "x") == SUCCESS
    delivery = client.receive()
    assert (delivery.payload, delivery.properties["x-source-topic"]) == ("x", f"{queue}/a")


# SUBSCRIBE


@pytest.mark.rule("Q12", "section 16")
def test_a_consumer_gets_as_many_as_its_prefetch_and_one_more_for_each_settled(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(**QUORUM)
    client = connect()
    client.publish_each(queue, *"12345")
    client.subscribe(queue, prefetch="2")
    first, _ = client.receive_each(2)
    client.expect_silence()
    assert client.ack(first) == SUCCESS
    assert client.receive().payload == "3"
    client.expect_silence()


@pytest.mark.rule("Q12", "section 16")
def test_the_receive_maximum_bounds_the_prefetch(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(**QUORUM)
    client = connect(properties={"receive_maximum": 3})
    client.publish_each(queue, *"12345")
    client.subscribe(queue, prefetch="100")
    assert client.receive_payloads(3) == list("123")  # each with its PUBACK, which settles nothing
    client.expect_silence()


@pytest.mark.rule("section 16")
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"prefetch": "many"}, SPECIFIC),
        ({"priority": "-1"}, SPECIFIC),
        ({"consumer_timeout": "1h"}, SPECIFIC),
        ({"ack_mode": "never"}, SPECIFIC),
    ],
)
def test_a_subscription_whose_terms_make_no_sense_is_refused(
    connect: Connect, make_queue: MakeQueue, options: dict[str, str], code: int
) -> None:
    assert connect().subscribe(make_queue(**QUORUM), **options) == code


def test_a_subscription_of_qos_0_is_refused(connect: Connect, make_queue: MakeQueue) -> None:
    assert connect().subscribe(make_queue(**QUORUM), qos=0) == UNSPECIFIED


@pytest.mark.rule("Q10")
def test_subscribing_again_changes_the_terms_and_repeats_nothing(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(**QUORUM)
    client = connect()
    client.publish_each(queue, *"123")
    client.subscribe(queue, prefetch="1")
    first = client.receive()
    client.subscribe(queue, prefetch="2")
    assert client.receive().payload == "2"
    client.expect_silence()
    assert client.ack(first) == SUCCESS
    assert client.receive().payload == "3"


# PUBACK


@pytest.mark.rule("section 16")
def test_a_puback_settles_where_that_is_agreed(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(**QUORUM)
    client = connect()
    client.publish_each(queue, "a", "b")
    client.subscribe(queue, ack_mode="puback", prefetch="1")
    assert client.receive_payloads(2) == ["a", "b"]  # the second comes when the first is settled
    client.disconnect()
    later = connect()
    later.subscribe(queue)
    later.expect_silence()


@pytest.mark.rule("section 16")
def test_a_consumer_of_mqtt_3_settles_by_puback(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(**QUORUM)
    client = connect(version=4)
    client.publish(queue, "a")
    client.publish(queue, "b")
    client.subscribe(queue)
    assert client.receive_payloads(2) == ["a", "b"]
    client.disconnect()
    later = connect()
    later.subscribe(queue)
    later.expect_silence()


@pytest.mark.rule("section 16")
@pytest.mark.parametrize("on_reject", ["discard", "return"])
def test_a_puback_with_a_failure_discards_or_returns(
    connect: Connect, make_queue: MakeQueue, on_reject: str
) -> None:
    queue = make_queue(**QUORUM, on_reject=on_reject)
    client = connect()
    client.publish_each(queue, "x")
    client.subscribe(queue)
    delivery = client.receive(puback=False)
    client.wire.acknowledge(p.PUBACK, delivery.packet.packet_id, 0x80)
    if on_reject == "return":
        again = client.receive()
        assert (again.payload, counts(again)) == ("x", ("2", ""))
    else:
        watcher = connect()
        watcher.subscribe(f"dlq/{queue}")
        assert watcher.receive().properties["dlq-reason"] == "rejected"


# $ack, $nack, $reject


@pytest.mark.rule("section 16", "Q20")
def test_an_ack_ends_a_message_and_may_be_said_twice(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(**QUORUM)
    client = connect()
    client.publish_each(queue, "x")
    client.subscribe(queue)
    delivery = client.receive()
    assert counts(delivery) == ("1", "")
    assert [client.ack(delivery), client.ack(delivery)] == [SUCCESS, SUCCESS]
    client.expect_silence()


@pytest.mark.rule("section 16", "section 6", "Q20")
def test_a_nack_returns_a_message_uncounted(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(**QUORUM, delivery_limit=1)
    client = connect()
    client.publish_each(queue, "x")
    client.subscribe(queue)
    for number in range(1, 5):  # more often than the limit, which counts failures
        delivery = client.receive()
        assert counts(delivery) == (str(number), "")
        assert client.nack(delivery) == SUCCESS


@pytest.mark.rule("section 16", "Q29")
def test_a_reject_makes_a_dead_letter_with_its_story(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(**QUORUM)
    client = connect()
    client.publish(queue, "x", user={"colour": "red"}, content_type="text/plain")
    client.subscribe(queue)
    delivery = client.receive()
    assert client.reject(delivery, reason="bad") == SUCCESS
    watcher = connect()
    watcher.subscribe(f"dlq/{queue}")
    letter = watcher.receive()
    found = letter.properties
    assert letter.payload == "x"
    assert found["colour"] == "red"
    assert letter.packet.properties["content_type"] == "text/plain"
    assert found["dlq-original-queue"] == f"$queue/{queue}"
    assert found["dlq-original-id"] == delivery.message_id
    assert (found["dlq-reason"], found["dlq-reason-text"]) == ("rejected", "bad")
    assert found["dlq-delivery-count"] == "1"


@pytest.mark.rule("section 16")
@pytest.mark.parametrize("verdict", ["ack", "nack", "reject"])
def test_what_cannot_be_settled_is_told_why(
    connect: Connect, make_queue: MakeQueue, verdict: str
) -> None:
    queue = make_queue(**QUORUM)
    holder, other = connect(), connect()
    holder.publish_each(queue, "x")
    holder.subscribe(queue)
    delivery = holder.receive()
    assert other.settle(verdict, delivery) == NOT_AUTHORIZED
    assert holder.settle_id(queue, verdict, None) == SPECIFIC
    assert holder.settle_id(queue, verdict, f"$queue/{queue}:0:99") == NO_MATCH
    assert holder.settle_id(queue, verdict, "nonsense") == NO_MATCH
    assert holder.settle(verdict, delivery) == SUCCESS


@pytest.mark.rule("section 16")
def test_a_nack_or_reject_of_what_is_settled_already_is_told_so(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(**QUORUM)
    client = connect()
    client.publish_each(queue, "x")
    client.subscribe(queue)
    (delivery,) = client.receive_and_ack(1)
    assert [client.nack(delivery), client.reject(delivery)] == [NO_MATCH, NO_MATCH]
    assert client.ack(delivery) == SUCCESS


@pytest.mark.rule("Q22", "section 16")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delay-ms", "soon"),
        ("delivery-failed", "maybe"),
        ("x-opt-delivery-time", "tomorrow"),
        ("x-opt-delivery-time", "9" * 17),
        ("x-opt-deferral-token", "t" * 5000),
    ],
)
def test_a_nack_which_makes_no_sense_is_refused_and_the_message_still_held(
    connect: Connect, make_queue: MakeQueue, name: str, value: str
) -> None:
    queue = make_queue(**QUORUM)
    client = connect()
    client.publish_each(queue, "x")
    client.subscribe(queue)
    delivery = client.receive()
    assert client.settle("nack", delivery, **{name: value}) == SPECIFIC
    assert client.ack(delivery) == SUCCESS


def test_messages_are_settled_by_the_ids_of_their_producers(
    connect: Connect, make_queue: MakeQueue
) -> None:
    """Two producers chose the same id; each of the messages is settled once."""
    queue = make_queue(**QUORUM)
    for payload in ("a", "b"):
        connect().publish(queue, payload, user={"message-id": "same"})
    client = connect()
    client.subscribe(queue)
    deliveries = client.receive_each(2)
    assert [one.message_id for one in deliveries] == ["same", "same"]
    assert [client.ack(one) for one in deliveries] == [SUCCESS, SUCCESS]
    client.disconnect()
    later = connect()
    later.subscribe(queue)
    later.expect_silence()


# DISCONNECT, UNSUBSCRIBE


@pytest.mark.rule("Q15", "section 16")
@pytest.mark.parametrize("way", ["abort", "disconnect"])
def test_a_client_which_leaves_has_failed_with_what_it_held(
    connect: Connect, make_queue: MakeQueue, way: str
) -> None:
    queue = make_queue(**QUORUM)
    client, successor = connect(), connect()
    client.publish_each(queue, "x")
    client.subscribe(queue)
    assert counts(client.receive()) == ("1", "")
    successor.subscribe(queue)
    getattr(client, way)()
    again = successor.receive()
    assert (again.payload, counts(again)) == ("x", ("2", "1"))


@pytest.mark.rule("Q13", "section 16")
def test_who_unsubscribes_may_settle_what_it_has_and_gets_no_more(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(**QUORUM)
    client, other = connect(), connect()
    client.publish_each(queue, "a", "b")
    client.subscribe(queue, prefetch="1")
    delivery = client.receive()
    assert client.wire.unsubscribe(f"$queue/{queue}").reason_codes == [0]
    other.subscribe(queue)
    assert other.receive().payload == "b"
    assert client.ack(delivery) == SUCCESS
    client.expect_silence(0.2)
    other.expect_silence(0.2)


@pytest.mark.rule("Q17")
def test_a_queue_which_is_deleted_is_gone_for_its_consumers(
    connect: Connect, make_queue: MakeQueue, broker: Broker
) -> None:
    queue = make_queue(**QUORUM)
    client = connect()
    client.publish_each(queue, "x")
    client.subscribe(queue)
    delivery = client.receive()
    assert rest.call(broker, "DELETE", rest.queue_path(queue))[0] in (200, 204)
    assert client.ack(delivery) == NO_MATCH
    assert rest.call(broker, "GET", rest.queue_path(queue))[0] == 404
