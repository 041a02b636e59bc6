"""From SUBSCRIBE to a queue and away from it again (M11-M16)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import BrokerFactory
from tests.harness.broker import BrokerError, BrokerProcess
from tests.mq.client import SUCCESS
from tests.mq.conftest import RETRY, Connect, MakeQueue
from tests.mq.rest import QUEUES, MqRest, Queue

PERSISTENT = {"session_expiry_interval": 3600}
AUTO_REGULAR = """
[mq.auto_create]
lastvalue.enable = false
[mq.auto_create.regular]
enable = true
dispatch_strategy = "round_robin"
data_retention_period = "2d"
"""


@pytest.mark.rule("M11", "M14", "section 7")
def test_a_subscription_creates_a_last_value_queue(
    rest: MqRest, connect: Connect, root: str
) -> None:
    client = connect()
    assert client.subscribe(f"$q/{root}/#") == 1
    found = rest.call("GET", Queue(f"/{root}/#", f"{root}/#").path).json
    assert found["is_lastvalue"] is True
    assert found["key_expression"] == "message.from"
    assert found["topic_filter"] == f"{root}/#"
    client.publish_each(f"{root}/x", "x")
    assert client.take().payload == "x"


@pytest.mark.rule("M14")
def test_a_created_queue_stays_when_its_subscriber_goes(
    rest: MqRest, connect: Connect, root: str
) -> None:
    client = connect()
    client.subscribe(f"$q/{root}/#")
    client.disconnect()
    connect("one").publish_each(f"{root}/x", "1", "2")
    again = connect()
    again.subscribe(f"$q/{root}/#")
    assert again.take().payload == "2"


@pytest.mark.rule("M14")
def test_an_existing_queue_is_not_created_again(rest: MqRest, connect: Connect, root: str) -> None:
    queue = rest.create(f"{root}/#", is_lastvalue=False)
    client = connect()
    client.publish_each(queue.topic(), "1", "2")
    client.subscribe(queue.address)
    assert client.take_payloads(2) == ["1", "2"]
    assert rest.call("GET", queue.path).json["is_lastvalue"] is False


@pytest.mark.rule("M14")
def test_created_queues_have_the_configured_settings(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(config=AUTO_REGULAR)
    client, rest = connect(of=broker), MqRest(broker)
    client.subscribe("$q/a/#")
    found = rest.call("GET", f"{QUEUES}/a%2F%23").json
    assert found["is_lastvalue"] is False
    assert found["dispatch_strategy"] == "round_robin"
    assert found["data_retention_period"] == 2 * 24 * 3600 * 1000
    client.publish_each("a/x", "1", "2", "3")
    assert client.take_payloads(3) == ["1", "2", "3"]


@pytest.mark.rule("M14")
def test_created_queues_count_for_the_limit(fresh_broker: BrokerFactory, connect: Connect) -> None:
    broker = fresh_broker(RETRY | {"mq.max_queue_count": 2})
    client, rest = connect(of=broker), MqRest(broker)
    for level in "abc":
        assert client.subscribe(f"$q/{level}/#") == 1
    assert rest.names() == ["/a/#", "/b/#"]
    client.unsubscribe("$q/a/#")
    rest.delete(Queue("/a/#", "a/#"))
    # The waiting subscription may have been faster; either way it finds the queue.
    rest.call("POST", QUEUES, {"topic_filter": "c/#"})
    assert rest.names() == ["/b/#", "/c/#"]
    client.publish_each("c/x", "x")
    assert client.take().topic == "c/x"


@pytest.mark.rule("M14", "acceptance 17")
def test_a_broker_which_would_create_both_kinds_does_not_start(
    fresh_broker: BrokerFactory,
) -> None:
    with pytest.raises(BrokerError, match="either as regular or lastvalue"):
        fresh_broker({"mq.auto_create.regular.enable": True})


@pytest.mark.rule("M12", "acceptance 11")
def test_a_queue_made_after_its_subscription_is_found(
    manual_broker: BrokerProcess, connect: Connect, root: str
) -> None:
    client, rest = connect(of=manual_broker), MqRest(manual_broker)
    assert client.subscribe(f"$q/{root}/#", identifier=9) == 1
    client.publish(f"{root}/x", "lost")
    assert rest.names().count(f"/{root}/#") == 0
    rest.create(f"{root}/#", is_lastvalue=False)
    assert client.publish(f"{root}/x", "kept") == SUCCESS
    delivery = client.take()
    assert delivery.payload == "kept"
    assert delivery.packet.subscription_identifiers == [9]


@pytest.mark.rule("M12")
def test_who_waits_for_a_queue_may_leave(
    manual_broker: BrokerProcess, connect: Connect, root: str
) -> None:
    client, other = connect(of=manual_broker), connect(of=manual_broker)
    address = f"$q/{root}/#"
    for waiting in (client, other):
        waiting.subscribe(address)
    assert client.unsubscribe(address) == SUCCESS
    MqRest(manual_broker).create(f"{root}/#", is_lastvalue=False)
    client.publish_each(f"{root}/x", *map(str, range(5)))
    assert other.take_payloads(5) == list(map(str, range(5)))
    client.expect_silence(0.2)


@pytest.mark.rule("M12")
def test_a_queue_with_another_filter_is_waited_for(
    manual_broker: BrokerProcess, connect: Connect, root: str
) -> None:
    rest, client = MqRest(manual_broker), connect(of=manual_broker)
    queue = rest.create(f"{root}/a/#", name=root, is_lastvalue=False)
    assert client.subscribe(f"$queue/{root}/{root}/b/#") == 1
    client.publish_each(f"{root}/a/x", "of the other filter")
    client.expect_silence()
    rest.delete(queue)
    rest.create(f"{root}/b/#", name=root, is_lastvalue=False)
    client.publish_each(f"{root}/b/x", "of its own")
    assert client.take().payload == "of its own"


@pytest.mark.rule("M13")
def test_a_quiet_subscriber_stays_attached(connect: Connect, regular: MakeQueue) -> None:
    queue, client = regular(ping_interval="50ms", consumer_max_inactive="50ms"), connect()
    client.subscribe(queue.address)
    client.publish_each(queue.topic(), "1")
    held = client.hold()
    client.expect_silence(0.5)
    client.publish_each(queue.topic(), "2")
    assert client.take().payload == "2"
    client.ack(held)
    client.expect_silence(0.2)


@pytest.mark.rule("M13", "M21")
def test_the_messages_of_a_client_which_fell_silent_go_to_others(
    connect: Connect, regular: MakeQueue
) -> None:
    queue = regular(redispatch_interval="1h")
    silent, other = connect(keepalive=1), connect()
    silent.subscribe(queue.address)
    connect().publish_each(queue.topic(), "1", "2")
    silent.hold_each(2)
    other.subscribe(queue.address)
    assert sorted(other.take_payloads(2)) == ["1", "2"]


@pytest.mark.rule("M15", "acceptance 18")
@pytest.mark.parametrize("leave", ["disconnect", "abort"])
@pytest.mark.parametrize("version", [4, 5])
def test_an_offline_session_gets_nothing_until_it_is_back(
    connect: Connect, regular: MakeQueue, leave: str, version: int
) -> None:
    queue, producer = regular(), connect()
    fields: dict[str, Any] = {"version": version, "clean": False}
    if version == 5:
        fields["properties"] = PERSISTENT
    sleeper = connect(f"sleeper-{queue.name}", **fields)
    sleeper.subscribe(queue.address)
    getattr(sleeper, leave)()
    other = connect()
    other.subscribe(queue.address)
    producer.publish_each(queue.topic(), *map(str, range(30)))
    assert other.take_payloads(30) == list(map(str, range(30)))
    other.disconnect()
    producer.publish_each(queue.topic(), "back")
    again = connect(sleeper.client_id, **fields)
    assert again.wire.connack is not None
    assert again.wire.connack.session_present
    assert again.take().payload == "back"
    again.expect_silence()


@pytest.mark.rule("M15", "acceptance 6")
def test_what_an_offline_session_held_returns_to_the_queue(
    connect: Connect, regular: MakeQueue
) -> None:
    queue, name = regular(), "holder"
    holder = connect(f"{name}-{queue.name}", clean=False, properties=PERSISTENT)
    holder.subscribe(queue.address)
    connect().publish_each(queue.topic(), "1", "2")
    holder.hold_each(2)
    holder.disconnect()
    other = connect()
    other.subscribe(queue.address)
    assert sorted(other.take_payloads(2)) == ["1", "2"]
    other.wire.ping()
    again = connect(holder.client_id, clean=False, properties=PERSISTENT)
    again.expect_silence()


@pytest.mark.rule("M15")
def test_a_resumed_session_gets_what_it_held_once(connect: Connect, regular: MakeQueue) -> None:
    queue = regular()
    holder = connect(f"h-{queue.name}", clean=False, properties=PERSISTENT)
    holder.subscribe(queue.address, identifier=3)
    connect().publish_each(queue.topic(), "1", "2")
    holder.hold_each(2)
    holder.abort()
    again = connect(holder.client_id, clean=False, properties=PERSISTENT)
    deliveries = [again.take() for _ in range(2)]
    assert sorted(one.payload for one in deliveries) == ["1", "2"]
    assert [one.packet.subscription_identifiers for one in deliveries] == [[3], [3]]
    again.expect_silence()


@pytest.mark.rule("M15")
def test_an_ended_session_holds_nothing_and_reads_no_more(
    connect: Connect, regular: MakeQueue
) -> None:
    queue = regular()
    first = connect(f"s-{queue.name}", clean=False, properties=PERSISTENT)
    first.subscribe(queue.address)
    first.disconnect()
    second = connect(first.client_id, clean=True)
    connect().publish_each(queue.topic(), "x")
    second.expect_silence()
    second.subscribe(queue.address)
    assert second.take().payload == "x"


@pytest.mark.rule("M15", "M21")
@pytest.mark.parametrize("clean", [True, False])
def test_a_second_client_of_the_same_id_takes_over(
    connect: Connect, regular: MakeQueue, clean: bool
) -> None:
    queue = regular()
    name = f"twin-{queue.name}"
    first = connect(name, clean=False, properties=PERSISTENT)
    first.subscribe(queue.address)
    connect().publish_each(queue.topic(), "1", "2")
    first.hold_each(2)
    second = connect(name, clean=clean, properties=PERSISTENT)
    if clean:
        second.subscribe(queue.address)
    first.wire.expect_disconnect(0x8E)
    assert sorted(second.take_payloads(2)) == ["1", "2"]
    second.expect_silence()


@pytest.mark.rule("M16")
def test_unsubscribing_returns_what_was_held(connect: Connect, regular: MakeQueue) -> None:
    queue = regular()
    leaver, other, producer = connect(), connect(), connect()
    leaver.subscribe(queue.address)
    producer.publish_each(queue.topic(), "1", "2", "3")
    held = leaver.hold_each(3)
    leaver.ack(held[0])
    assert leaver.unsubscribe(queue.address) == SUCCESS
    other.subscribe(queue.address)
    assert sorted(other.take_payloads(2)) == ["2", "3"]
    producer.publish_each(queue.topic(), "4")
    assert other.take().payload == "4"
    leaver.expect_silence()


@pytest.mark.rule("M16")
def test_an_acknowledgement_after_unsubscribing_does_no_harm(
    connect: Connect, regular: MakeQueue
) -> None:
    queue = regular()
    leaver, other = connect(), connect()
    leaver.subscribe(queue.address)
    leaver.publish_each(queue.topic(), "x")
    held = leaver.hold()
    leaver.unsubscribe(queue.address)
    leaver.ack(held)
    leaver.subscribe("plain/#")
    other.subscribe(queue.address)
    received = other.drain()
    assert received in ([], ["x"])
    leaver.wire.ping()


@pytest.mark.rule("M16")
def test_unsubscribing_what_was_never_subscribed(connect: Connect, regular: MakeQueue) -> None:
    assert connect().unsubscribe(regular().address) == 0x11


@pytest.mark.rule("M16")
def test_a_queue_left_alone_goes_on_where_it_stopped(connect: Connect, regular: MakeQueue) -> None:
    queue, producer = regular(consumer_max_inactive="50ms"), connect()
    producer.publish_each(queue.topic(), *map(str, range(12)))
    for start in range(0, 12, 3):
        client = connect()
        client.subscribe(queue.address)
        held = client.hold_each(4 if start < 9 else 3)
        assert [one.payload for one in held[:3]] == [str(start + n) for n in range(3)]
        client.ack(*held[:3])
        client.disconnect()
        producer.expect_silence(0.2)
    last = connect()
    last.subscribe(queue.address)
    last.expect_silence()


@pytest.mark.rule("M11")
def test_subscribing_again_does_not_make_two_subscribers(
    connect: Connect, regular: MakeQueue
) -> None:
    queue, client = regular(dispatch_strategy="round_robin"), connect()
    for _ in range(3):
        assert client.subscribe(queue.address) == 1
    client.publish_each(queue.topic(), "1", "2", "3")
    assert client.take_payloads(3) == ["1", "2", "3"]
    client.expect_silence(0.2)
    client.publish_each(queue.topic(), "4")
    held = client.hold()
    assert client.unsubscribe(queue.address) == SUCCESS
    other = connect()
    other.subscribe(queue.address)
    assert other.take().payload == held.payload
