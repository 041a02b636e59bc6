"""Who may read a mailbox (section 3, E8-E10, T7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.v5.test_access import add_user
from tests.conftest import BrokerFactory
from tests.ecq.client import (
    FILTER_INVALID,
    NOT_AUTHORIZED,
    SUCCESS,
    UNSPECIFIED,
    Delivery,
    pairs,
)
from tests.ecq.conftest import BARE, VERSIONS, Connect
from tests.harness.broker import BrokerProcess

OTHERS = [
    "$ECQ/somebody/#",
    "$ECQ/+/#",
    "$ECQ/#",
    "$ECQ/+",
    "$ECQ/{owner}",
    "$ECQ/{owner}/x",
    "$ECQ/{owner}/+",
    "$ECQ/{owner}/x/#",
    "$ECQ/w/#",
    "$ECQ/w/{owner}/#",
    "$ECQ/w/+/+",
    "$share/g/$ECQ/{owner}/#",
    "$share/g/$ECQ/#",
]
ALLOW_ALL = """
[[acl]]
permission = "allow"
action = "all"
topics = ["#", "$ECQ/#", "eq $ECQ/#", "eq $ECQ/+/#"]
"""
DENY_OWN = """
[[acl]]
permission = "deny"
action = "subscribe"
clientid = "barred"
topics = ["$ECQ/barred/#"]
"""


@pytest.mark.rule("section 3", "E10", "T1")
@VERSIONS
def test_the_owner_reads_with_qos_1(connect: Connect, owner: str, version: int) -> None:
    device = connect(owner, version=version)
    assert device.listen() == 1
    connect().write_each(owner, "k=x")
    delivery = device.take()
    assert (delivery.topic, delivery.payload) == (f"$ECQ/{owner}/k", "x")
    assert (delivery.packet.qos, delivery.packet.retain, delivery.packet.dup) == (1, False, False)
    if version == 5:
        assert delivery.seqno == 1
    device.expect_silence()


@pytest.mark.rule("section 3", "T7")
@pytest.mark.parametrize("qos", [0, 2])
@VERSIONS
def test_the_owner_reads_with_no_other_qos(
    connect: Connect, owner: str, version: int, qos: int
) -> None:
    device = connect(owner, version=version)
    assert device.listen(qos=qos) == (NOT_AUTHORIZED if version == 5 else UNSPECIFIED)
    connect().write_each(owner, "k=x")
    device.expect_silence(0.2)
    assert device.listen() == 1
    assert device.take().payload == "x"


@pytest.mark.rule("section 3", "T7")
@pytest.mark.parametrize("topic_filter", OTHERS)
@VERSIONS
def test_every_other_filter_is_refused(
    connect: Connect, owner: str, version: int, topic_filter: str
) -> None:
    device = connect(owner, version=version)
    expected = NOT_AUTHORIZED if version == 5 else UNSPECIFIED
    connect().write_each(owner, "x=1")
    for qos in (0, 1, 2):
        assert device.subscribe(topic_filter.format(owner=owner), qos=qos) == expected
    device.expect_silence(0.2)


@pytest.mark.rule("section 3")
@pytest.mark.parametrize("topic_filter", ["#", "+/#", "+/+/+"])
def test_wildcards_at_the_front_are_ordinary_filters(
    connect: Connect, owner: str, topic_filter: str
) -> None:
    device, producer = connect(owner), connect()
    assert device.subscribe(topic_filter) == 1
    producer.write_each(owner, "k=x")
    producer.publish(f"t/{owner}/x", "plain")
    received: list[Delivery] = []
    while not received or received[-1].payload != "plain":
        received.append(device.take())
    assert not [one for one in received if one.topic.startswith("$ECQ")]


@pytest.mark.rule("section 3", "T7")
def test_one_packet_may_hold_good_and_bad_filters(connect: Connect, owner: str) -> None:
    device = connect(owner)
    filters = [(f"$ECQ/{owner}/#", 1), ("$ECQ/other/#", 1), (f"plain/{owner}", 1), ("$ECQ/#", 1)]
    suback = device.wire.subscribe(*filters)
    assert suback.reason_codes == [1, NOT_AUTHORIZED, 1, NOT_AUTHORIZED]
    connect().write_each(owner, "k=x")
    assert device.take().payload == "x"


@pytest.mark.rule("E8")
@pytest.mark.parametrize("topic_filter", ["$ECQ/somebody/#", "$ECQ/+/#", "$ECQ/#", "$ECQ/me/x"])
def test_no_rule_of_the_acl_opens_a_mailbox(
    fresh_broker: BrokerFactory, connect: Connect, topic_filter: str
) -> None:
    broker = fresh_broker(BARE, config=ALLOW_ALL)
    device = connect("me", of=broker)
    assert device.subscribe(topic_filter) == NOT_AUTHORIZED
    connect(of=broker).write_each("somebody", "k=x")
    device.expect_silence(0.2)
    assert device.listen() == 1


@pytest.mark.rule("E8")
def test_the_acl_may_close_a_mailbox(fresh_broker: BrokerFactory, connect: Connect) -> None:
    broker = fresh_broker(BARE, config=DENY_OWN)
    assert connect("barred", of=broker).listen() == NOT_AUTHORIZED
    assert connect("free", of=broker).listen() == 1


@pytest.fixture
def guarded(fresh_broker: BrokerFactory, tmp_path: Path) -> BrokerProcess:
    """A broker with users, of whom one is of the platform, and no rule but the shipped ones."""
    for name in ("dev", "ops"):
        users = add_user(tmp_path, name, "secret")
    settings = {"auth.password_file": str(users), "auth.platform_users": ["ops"]}
    return fresh_broker(BARE | settings)


@pytest.mark.rule("E8", "E2", "E37")
def test_the_shipped_rules_give_a_device_its_mailbox_and_no_more(
    guarded: BrokerProcess, connect: Connect
) -> None:
    device = connect("o1", of=guarded, username="dev", password="secret")
    other = connect("o2", of=guarded, username="dev", password="secret")
    ops = connect("ops-1", of=guarded, username="ops", password="secret")
    assert device.listen() == 1
    assert ops.write("o1", "k", "x") == SUCCESS
    assert device.take().payload == "x"
    for client in (device, other, ops):
        assert client.publish("$ECQ/o1/k", "x") == NOT_AUTHORIZED
    assert other.write("o1", "k", "x") == NOT_AUTHORIZED
    assert other.subscribe("$ECQ/o1/#") == NOT_AUTHORIZED
    assert ops.subscribe("$ECQ/o1/#") == NOT_AUTHORIZED
    assert other.rewind('{"to": "first"}', owner="o1") == NOT_AUTHORIZED
    device.expect_silence(0.2)
    assert ops.rewind('{"to": "first"}', owner="o1") == SUCCESS
    assert device.take().payload == "x"
    assert device.rewind('{"to": "first"}') == SUCCESS
    assert device.take().payload == "x"


@pytest.mark.rule("E9")
@pytest.mark.parametrize("client_id", ["a/b", "/a", "a/", "w"])
def test_some_client_ids_own_no_mailbox(connect: Connect, client_id: str) -> None:
    for version, code in ((5, FILTER_INVALID), (4, UNSPECIFIED)):
        device = connect(client_id, version=version)
        assert device.listen() == code
        device.disconnect()


@pytest.mark.rule("E9")
@pytest.mark.parametrize("client_id", ["+", "#"])
def test_a_client_called_like_a_wildcard_owns_no_mailbox(connect: Connect, client_id: str) -> None:
    device = connect(client_id)
    try:
        assert device.listen() >= UNSPECIFIED
    except AssertionError as error:  # the filter may be one which no client may send
        assert "8f" in str(error)


@pytest.mark.rule("section 3")
def test_what_was_unsubscribed_comes_no_more_until_subscribed_again(
    connect: Connect, owner: str
) -> None:
    device, producer = connect(owner), connect()
    device.listen()
    producer.write_each(owner, "a=1")
    assert pairs([device.take()]) == ["a=1"]
    assert device.unsubscribe(f"$ECQ/{owner}/#").reason_codes == [0]
    producer.write_each(owner, "b=2")
    device.expect_silence()
    assert device.listen() == 1
    assert pairs(device.drain()) == ["b=2"]
    assert device.unsubscribe("$ECQ/other/#").reason_codes == [0x11]


@pytest.mark.rule("section 3", "E25")
def test_what_was_held_at_an_unsubscribe_comes_again(connect: Connect, owner: str) -> None:
    device, producer = connect(owner), connect()
    device.listen()
    producer.write_each(owner, "a=1", "b=2")
    device.hold()
    device.unsubscribe(f"$ECQ/{owner}/#")
    device.hold_all(0.2)
    device.listen()
    assert pairs(device.drain()) == ["a=1", "b=2"]


@pytest.mark.rule("section 3")
def test_a_second_subscribe_starts_no_second_reader(connect: Connect, owner: str) -> None:
    device, producer = connect(owner), connect()
    for _ in range(3):
        assert device.listen() == 1
    producer.write_each(owner, "a=1", "b=2", "c=3")
    assert pairs(device.drain()) == ["a=1", "b=2", "c=3"]


@pytest.mark.rule("section 3", "E21")
def test_a_delivery_tells_the_subscription_identifier(connect: Connect, owner: str) -> None:
    device = connect(owner)
    assert device.listen(identifier=7) == 1
    connect().write_each(owner, "a=1")
    assert device.take().packet.subscription_identifiers == [7]


@pytest.mark.rule("section 1", "section 2")
def test_a_mailbox_is_there_with_its_first_write_for_any_owner(
    connect: Connect, owner: str
) -> None:
    """There is no declare step, and each owner has its own numbers and values."""
    producer = connect()
    for number in range(3):
        producer.write_each(f"{owner}-{number}", f"k={number}", "j=x")
    for number in range(3):
        device = connect(f"{owner}-{number}")
        device.listen()
        received = device.drain()
        assert pairs(received) == [f"k={number}", "j=x"]
        assert [one.seqno for one in received] == [1, 2]
