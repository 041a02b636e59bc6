"""Reading again from an earlier place, by the owner and by an operator (E37, E38, T11)."""

from __future__ import annotations

import json
import time

import pytest

from queuelake.errors import AnswerError
from tests.conftest import BrokerFactory
from tests.ecq.client import SUCCESS, UNSPECIFIED, Device, numbered, pairs, seqnos
from tests.ecq.conftest import BARE, VERSIONS, Connect
from tests.ecq.control import Mailboxes
from tests.queues.client import wait_until

WRONG = [
    "",
    "first",
    "[]",
    "{}",
    '{"seqno": "x"}',
    '{"seqno": -1}',
    '{"seqno": 1.5}',
    '{"seqno": null}',
    '{"ts": "yesterday"}',
    '{"to": "last"}',
    '{"seqno": 1, "to": "first"}',
    '{"seqno": 1e400}',
    "\xff",
    "[" * 5000,
]


def listener(connect: Connect, owner: str, **fields: object) -> Device:
    device = connect(owner, **fields)
    assert device.listen() == 1
    return device


def milliseconds() -> int:
    return int(time.time() * 1000)


@pytest.mark.rule("E37", "E24", "T11")
@pytest.mark.parametrize("body", [{"seqno": 1}, {"seqno": 0}, {"to": "first"}, {"ts": 0}])
@VERSIONS
def test_the_owner_reads_live_entries_again_in_order(
    connect: Connect, owner: str, version: int, body: dict[str, object]
) -> None:
    connect().write_each(owner, *numbered(7), "k2=new")
    device = listener(connect, owner, version=version)
    expected = ["k1=1", "k3=3", "k4=4", "k5=5", "k6=6", "k7=7", "k2=new"]
    assert pairs(device.drain()) == expected
    assert device.rewind(json.dumps(body)) == SUCCESS
    assert pairs(device.drain()) == expected
    device.disconnect()
    listener(connect, owner).expect_silence(0.2)


@pytest.mark.rule("E37")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_rewind_of_any_qos(connect: Connect, owner: str, qos: int) -> None:
    connect().write_each(owner, *numbered(4))
    device = listener(connect, owner)
    device.drain()
    assert device.rewind('{"seqno": 3}', qos=qos) == SUCCESS
    assert seqnos(device.drain()) == [3, 4]


@pytest.mark.rule("E37", "E15")
def test_a_rewind_to_a_time(connect: Connect, owner: str) -> None:
    device, producer = listener(connect, owner), connect()
    producer.write_each(owner, "a=1", "b=2")
    moment = milliseconds() + 1
    while milliseconds() <= moment:
        time.sleep(0.001)
    producer.write_each(owner, "c=3", "d=4")
    device.drain()
    assert device.rewind(json.dumps({"ts": moment})) == SUCCESS
    assert pairs(device.drain()) == ["c=3", "d=4"]
    assert device.rewind(json.dumps({"ts": milliseconds() + 60_000})) == SUCCESS
    device.expect_silence()
    producer.write_each(owner, "e=5")
    assert pairs(device.drain()) == ["e=5"]


@pytest.mark.rule("E37")
def test_a_rewind_forgets_what_is_in_flight(
    connect: Connect, mailboxes: Mailboxes, owner: str
) -> None:
    connect().write_each(owner, *numbered(8))
    device = listener(connect, owner)
    device.ack(*device.hold_each(5))
    held = device.hold_each(3)
    assert device.rewind('{"seqno": 2}') == SUCCESS
    again = device.hold_all()
    assert seqnos(again) == [2, 3, 4, 5, 6]
    assert not {one.packet.packet_id for one in again} & {one.packet.packet_id for one in held}
    device.ack(*held)
    device.expect_silence(0.2)
    assert mailboxes.acked(owner) == 1
    device.ack(*again)
    assert seqnos(device.drain()) == [7, 8]


@pytest.mark.rule("E37")
def test_a_rewind_without_a_subscription_counts_for_the_next(connect: Connect, owner: str) -> None:
    connect().write_each(owner, *numbered(3))
    device = listener(connect, owner)
    device.drain()
    device.unsubscribe(f"$ECQ/{owner}/#")
    assert device.rewind('{"seqno": 2}') == SUCCESS
    device.expect_silence(0.2)
    device.listen()
    assert seqnos(device.drain()) == [2, 3]


@pytest.mark.rule("E37")
@pytest.mark.parametrize("body", WRONG)
def test_a_rewind_to_nowhere_is_refused(
    connect: Connect, mailboxes: Mailboxes, owner: str, body: str
) -> None:
    connect().write_each(owner, *numbered(2))
    device = listener(connect, owner)
    device.drain()
    wait_until(lambda: mailboxes.acked(owner) == 2)
    assert device.rewind(body.encode("latin-1")) >= UNSPECIFIED
    device.expect_silence(0.2)
    assert mailboxes.acked(owner) == 2


@pytest.mark.rule("E37", "E24")
def test_a_rewind_beyond_the_end_loses_no_later_write(connect: Connect, owner: str) -> None:
    device, producer = listener(connect, owner), connect()
    producer.write_each(owner, *numbered(2))
    device.drain()
    device.rewind('{"seqno": 1000}')
    producer.write_each(owner, "later=x")
    assert pairs(device.drain()) == ["later=x"]


@pytest.mark.rule("E38", "T11")
def test_an_operator_rewinds_a_mailbox(connect: Connect, mailboxes: Mailboxes, owner: str) -> None:
    connect().write_each(owner, "a=1", "b=2", "a=3", "c=4")
    device = listener(connect, owner)
    device.drain()
    wait_until(lambda: mailboxes.acked(owner) == 4)
    assert mailboxes.rewind(owner, seqno=3) == 2
    assert pairs(device.drain()) == ["a=3", "c=4"]
    mailboxes.rewind(owner, to="first")
    assert pairs(device.drain()) == ["b=2", "a=3", "c=4"]
    device.disconnect()
    mailboxes.rewind(owner, seqno=4)
    assert pairs(listener(connect, owner).drain()) == ["c=4"]


@pytest.mark.rule("E38")
def test_a_rewind_below_the_oldest_live_entry_starts_there(
    fresh_broker: BrokerFactory, connect: Connect, owner: str
) -> None:
    broker = fresh_broker(BARE)
    connect(of=broker).write_each(owner, "a=1", "a=2", "a=3")
    device = listener(connect, owner, of=broker)
    device.drain()
    Mailboxes(broker).rewind(owner, seqno=1)
    assert pairs(device.drain()) == ["a=3"]
    device.disconnect()
    Mailboxes(broker).rewind(owner, seqno=1)
    broker.kill()
    broker.restart()
    assert pairs(listener(connect, owner, of=broker).drain()) == ["a=3"]


@pytest.mark.rule("E38")
@pytest.mark.parametrize("body", [{}, {"seqno": "x"}, {"to": "last"}, {"seqno": 1, "ts": 1}])
def test_an_operator_who_errs_is_told(
    connect: Connect, mailboxes: Mailboxes, owner: str, body: dict[str, object]
) -> None:
    connect().write_each(owner, "a=1")
    with pytest.raises(AnswerError):
        mailboxes.rewind(owner, **body)
    assert mailboxes.acked(owner) == 0
