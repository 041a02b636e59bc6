"""Writes: what is taken, what is refused and how, and that nobody else hears of it (E1-E7, E16)."""

from __future__ import annotations

import pytest

from tests.conftest import BrokerFactory
from tests.ecq.client import (
    CLOSED,
    NO_MATCH,
    NOT_AUTHORIZED,
    QUOTA_EXCEEDED,
    SUCCESS,
    TOPIC_NAME_INVALID,
    Device,
    pairs,
    seqnos,
)
from tests.ecq.conftest import BARE, VERSIONS, Connect
from tests.ecq.control import Mailboxes
from tests.harness import packets as p
from tests.harness.packets import Will

DIRECT = ["$ECQ/{owner}/k", "$ECQ/{owner}/a/b", "$ECQ/{owner}", "$ECQ/x", "$ECQ/{owner}/", "$ECQ/"]
NO_KEY = ["$ECQ/w/{owner}", "$ECQ/w/{owner}/", "$ECQ/w//k", "$ECQ/w//"]


def listener(connect: Connect, owner: str, **fields: object) -> Device:
    device = connect(owner, **fields)
    assert device.listen() == 1
    return device


@pytest.mark.rule("E1", "E6")
def test_a_write_reaches_nobody_but_its_owner(connect: Connect, owner: str) -> None:
    watcher, producer = connect(), connect()
    for topic_filter in ("#", "+/#", "+/+/+/+", "$share/g/#", "$q/#"):
        watcher.subscribe(topic_filter)
    assert producer.write(owner, "k", "x", retain=True) == SUCCESS
    watcher.expect_silence()
    late = connect()
    late.subscribe("#")
    late.expect_silence()
    device = listener(connect, owner)
    delivery = device.take()
    assert (delivery.payload, delivery.packet.retain) == ("x", False)


@pytest.mark.rule("E1")
def test_a_write_enters_no_queue_which_takes_everything(
    fresh_broker: BrokerFactory, connect: Connect, owner: str
) -> None:
    config = '[queues."all"]\ntopics = ["#"]\n'
    broker = fresh_broker(BARE, config=config)
    producer, consumer = connect(of=broker), connect(of=broker)
    assert consumer.subscribe("$queue/all") == 1
    assert producer.write(owner, "k", "hidden") == SUCCESS
    assert producer.publish("plain", "seen") == SUCCESS
    assert consumer.take().payload == "seen"
    consumer.expect_silence()


@pytest.mark.rule("E1", "E6", "T3")
def test_a_retained_write_is_kept_by_the_queue_alone(connect: Connect, owner: str) -> None:
    producer, device = connect(), listener(connect, owner)
    assert producer.write(owner, "k", "x", retain=True) == SUCCESS
    assert device.take().packet.retain is False
    device.disconnect()
    again = listener(connect, owner)
    again.expect_silence()


@pytest.mark.rule("E2", "T6")
@pytest.mark.parametrize("topic", DIRECT)
@pytest.mark.parametrize("qos", [1, 2])
def test_a_direct_publish_is_refused(connect: Connect, owner: str, topic: str, qos: int) -> None:
    device, producer = listener(connect, owner), connect()
    producer.subscribe(f"plain/{owner}")
    for client in (producer, device):
        assert client.publish(topic.format(owner=owner), "x", qos=qos) == NOT_AUTHORIZED
    device.expect_silence(0.2)
    assert producer.publish(f"plain/{owner}", "ok") == SUCCESS
    assert producer.take().payload == "ok"


@pytest.mark.rule("E2", "T6")
def test_a_direct_publish_of_qos_0_is_dropped(connect: Connect, owner: str) -> None:
    device, producer = listener(connect, owner), connect()
    producer.publish(f"$ECQ/{owner}/k", "direct", qos=0)
    producer.write_each(owner, "k=written")
    assert pairs(device.drain()) == ["k=written"]


@pytest.mark.rule("E2", "T6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_direct_publish_of_an_old_client_reaches_nobody(
    connect: Connect, owner: str, qos: int
) -> None:
    device, old = listener(connect, owner), connect(version=4)
    old.publish(f"$ECQ/{owner}/k", "direct", qos=qos, retain=True)
    connect().write_each(owner, "k=written")
    assert pairs(device.drain()) == ["k=written"]


@pytest.mark.rule("E3")
@pytest.mark.parametrize("topic", NO_KEY)
@pytest.mark.parametrize("qos", [1, 2])
def test_a_write_without_owner_or_key_is_refused(
    connect: Connect, owner: str, topic: str, qos: int
) -> None:
    producer = connect()
    assert producer.publish(topic.format(owner=owner), "x", qos=qos) == TOPIC_NAME_INVALID
    producer.write_each(owner, "k=x")
    assert seqnos(listener(connect, owner).drain()) == [1]


@pytest.mark.rule("E3")
@pytest.mark.parametrize("topic", ["$ECQ/w", "$ECQ/w/"])
def test_a_write_to_nobody_is_refused(connect: Connect, topic: str) -> None:
    assert connect().publish(topic, "x") in (NOT_AUTHORIZED, TOPIC_NAME_INVALID)


@pytest.mark.rule("E3")
@pytest.mark.parametrize("topic", ["$ECQ/w/+/k", "$ECQ/w/{owner}/#", "$ECQ/w/{owner}/a+b"])
@VERSIONS
def test_a_write_with_a_wildcard_is_refused(
    connect: Connect, mailboxes: Mailboxes, owner: str, topic: str, version: int
) -> None:
    producer = connect(version=version)
    code = producer.publish(topic.format(owner=owner), "x")
    assert code == CLOSED or (version == 5 and code == TOPIC_NAME_INVALID)
    assert mailboxes.inspect(owner)["queue"] == "empty"


@pytest.mark.rule("E3")
@pytest.mark.parametrize("topic", NO_KEY)
@pytest.mark.parametrize("qos", [0, 1])
def test_a_bad_write_harms_no_other_client(
    connect: Connect, owner: str, topic: str, qos: int
) -> None:
    connect(version=4).publish(topic.format(owner=owner), "x", qos=qos)
    connect().write_each(owner, "k=x")
    assert pairs(listener(connect, owner).drain()) == ["k=x"]


@pytest.mark.rule("E4", "E7", "E12")
@VERSIONS
def test_writes_of_every_qos_are_stored(connect: Connect, owner: str, version: int) -> None:
    producer = connect(version=version)
    for qos in (0, 1, 2):
        assert producer.write(owner, f"k{qos}", str(qos), qos=qos) == SUCCESS
    received = listener(connect, owner).drain()
    assert (pairs(received), seqnos(received)) == (["k0=0", "k1=1", "k2=2"], [1, 2, 3])
    assert {one.packet.qos for one in received} == {1}


@pytest.mark.rule("E4", "section 7")
def test_the_original_answer_can_be_had(
    fresh_broker: BrokerFactory, connect: Connect, owner: str
) -> None:
    broker = fresh_broker(BARE | {"ecq.puback_no_match": True})
    producer = connect(of=broker)
    assert producer.write(owner, "k", "1", qos=1) == NO_MATCH
    assert producer.write(owner, "k", "1", qos=1, retain=True) == NO_MATCH
    assert producer.write(owner, "k", "2", qos=2) == NO_MATCH
    assert producer.publish(f"$ECQ/{owner}/k", "x") == NOT_AUTHORIZED
    assert pairs(listener(connect, owner, of=broker).drain()) == ["k=2"]


@pytest.mark.rule("E4")
def test_a_qos_2_write_sent_twice_is_stored_once(connect: Connect, owner: str) -> None:
    producer = connect()
    for dup in (False, True):
        producer.wire.send_publish(f"$ECQ/w/{owner}/k", "x", qos=2, packet_id=7, dup=dup)
        producer.wire.expect(p.PUBREC, packet_id=7, reason_code=SUCCESS)
    producer.wire.acknowledge(p.PUBREL, 7)
    producer.wire.expect(p.PUBCOMP, packet_id=7)
    producer.write_each(owner, "k2=y")
    assert seqnos(listener(connect, owner).drain()) == [1, 2]


@pytest.mark.rule("E4", "E11")
def test_many_writes_are_answered_in_order(connect: Connect, owner: str) -> None:
    producer = connect()
    sent = [
        producer.wire.send_publish(f"$ECQ/w/{owner}/k{number}", str(number), qos=1)
        for number in range(30)
    ]
    assert [producer.wire.expect(p.PUBACK).packet_id for _ in sent] == sent
    assert [one.payload for one in listener(connect, owner).drain()] == list(map(str, range(30)))


@pytest.mark.rule("E5", "section 7")
@VERSIONS
def test_a_new_key_over_the_limit_is_refused(
    fresh_broker: BrokerFactory, connect: Connect, owner: str, version: int
) -> None:
    broker = fresh_broker(BARE | {"ecq.max_keys_per_queue": 3})
    producer = connect(of=broker, version=version)
    producer.write_each(owner, "a=1", "b=2", "c=3", "a=4")
    refused = producer.write(owner, "d", "5")
    assert refused == (QUOTA_EXCEEDED if version == 5 else CLOSED)
    other = connect(of=broker)
    other.write_each(f"{owner}-2", "d=5")
    other.write_each(owner, "b=6")
    device = listener(connect, owner, of=broker)
    assert pairs(device.drain()) == ["c=3", "a=4", "b=6"]


@pytest.mark.rule("E5", "section 7")
def test_bytes_over_the_limit_are_refused(
    fresh_broker: BrokerFactory, connect: Connect, owner: str
) -> None:
    broker = fresh_broker(BARE | {"ecq.max_bytes_per_queue": "10KiB"})
    producer = connect(of=broker)
    assert producer.write(owner, "a", bytes(6000)) == SUCCESS
    assert producer.write(owner, "b", bytes(6000)) == QUOTA_EXCEEDED
    assert producer.write(owner, "b", bytes(6000), qos=2) == QUOTA_EXCEEDED
    assert producer.write(owner, "a", bytes(7000)) == SUCCESS
    assert producer.write(owner, "a", b"small") == SUCCESS
    assert producer.write(owner, "b", bytes(6000)) == SUCCESS
    received = listener(connect, owner, of=broker).drain()
    assert [len(one.packet.payload) for one in received] == [5, 6000]


@pytest.mark.rule("E16", "E21")
def test_the_properties_of_a_message_are_kept(connect: Connect, owner: str) -> None:
    properties = {
        "content_type": "application/json",
        "payload_format_indicator": 1,
        "response_topic": "answers/here",
        "correlation_data": b"\x00\x01\xff",
    }
    users = [("a", "1"), ("b", "2"), ("a", "3"), ("", "")]
    assert connect().write(owner, "k", "{}", user=users, **properties) == SUCCESS
    packet = listener(connect, owner).take().packet
    assert {key: packet.properties[key] for key in properties} == properties
    assert [one for one in packet.user_properties if one[0] != "ecq-seqno"] == users
    assert [one for one in packet.user_properties if one[0] == "ecq-seqno"] == [("ecq-seqno", "1")]


@pytest.mark.rule("E16", "E34")
def test_the_expiry_which_is_left_is_told(connect: Connect, owner: str) -> None:
    assert connect().write(owner, "k", "x", message_expiry_interval=1000) == SUCCESS
    packet = listener(connect, owner).take().packet
    assert 0 < packet.properties["message_expiry_interval"] <= 1000


@pytest.mark.rule("E16", "E10")
def test_an_old_owner_gets_the_payload_of_a_new_producer(connect: Connect, owner: str) -> None:
    connect().write(owner, "k", "x", user={"a": "1"}, content_type="text/plain")
    delivery = listener(connect, owner, version=4).take()
    assert (delivery.key, delivery.payload, delivery.packet.qos) == ("k", "x", 1)


@pytest.mark.rule("E16")
def test_somebody_elses_seqno_property_does_not_confuse(connect: Connect, owner: str) -> None:
    connect().write(owner, "k", "x", user={"ecq-seqno": "77"})
    packet = listener(connect, owner).take().packet
    assert ("ecq-seqno", "1") in packet.user_properties


@pytest.mark.rule("E1", "E4")
def test_a_topic_alias_names_a_mailbox_too(connect: Connect, owner: str) -> None:
    producer = connect()
    producer.write(owner, "k", "1", topic_alias=1)
    answer = producer.wire.publish("", b"2", qos=1, properties={"topic_alias": 1})
    assert answer.reason_code == SUCCESS
    assert pairs(listener(connect, owner).drain()) == ["k=2"]


@pytest.mark.rule("E1", "E2")
@pytest.mark.parametrize("qos", [0, 1])
def test_a_will_can_be_a_write(connect: Connect, owner: str, qos: int) -> None:
    device = listener(connect, owner)
    direct = Will(f"$ECQ/{owner}/direct", b"no", qos=qos)
    connect(will=direct, expect_code=NOT_AUTHORIZED)
    connect(will=Will(f"$ECQ/w/{owner}/k", b"gone", qos=qos)).abort()
    delivery = device.take()
    assert (delivery.key, delivery.payload) == ("k", "gone")
    device.expect_silence()
