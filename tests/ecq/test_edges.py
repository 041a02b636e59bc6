"""Corners where rules of mailboxes meet each other and the rest of MQTT."""

from __future__ import annotations

import pytest

from tests.conftest import BrokerFactory
from tests.ecq.client import SUCCESS, Device, numbered, pairs, seqnos
from tests.ecq.conftest import BARE, VERSIONS, Connect
from tests.ecq.control import Mailboxes
from tests.harness import packets as p
from tests.queues.client import wait_until


def listener(connect: Connect, owner: str, **fields: object) -> Device:
    device = connect(owner, **fields)
    assert device.listen() == 1
    return device


@pytest.mark.rule("E11", "E17")
@VERSIONS
def test_an_owner_may_write_to_itself(connect: Connect, owner: str, version: int) -> None:
    device = listener(connect, owner, version=version)
    for number in range(5):
        assert device.write(owner, "k", str(number)) == SUCCESS
        assert device.take().payload == str(number)


@pytest.mark.rule("E20", "E30")
def test_an_entry_too_large_for_the_client_blocks_nothing(connect: Connect, owner: str) -> None:
    """A server may not send it, and acts as if it had been delivered."""
    producer = connect()
    producer.write_each(owner, "a=1")
    producer.write(owner, "big", bytes(5000))
    producer.write_each(owner, "b=2", *numbered(6))
    device = listener(connect, owner, properties={"maximum_packet_size": 1000})
    assert pairs(device.drain(1.0)) == ["a=1", "b=2", *numbered(6)]


@pytest.mark.rule("E20", "E30")
def test_a_mailbox_of_large_entries_only_blocks_nothing(
    connect: Connect, mailboxes: Mailboxes, owner: str
) -> None:
    producer = connect()
    for number in range(7):
        producer.write(owner, f"big{number}", bytes(5000))
    device = listener(connect, owner, properties={"maximum_packet_size": 1000})
    device.expect_silence()
    producer.write_each(owner, "small=x")
    assert pairs([device.take()]) == ["small=x"]
    wait_until(lambda: mailboxes.acked(owner) == 8)


@pytest.mark.rule("E17", "E20")
def test_many_owners_read_at_the_same_time(connect: Connect, owner: str) -> None:
    devices = [listener(connect, f"{owner}-{number}") for number in range(60)]
    producer = connect()
    for number in range(3):
        for device in devices:
            topic = f"$ECQ/w/{device.client_id}/k{number}"
            producer.wire.send_publish(topic, f"{device.client_id}:{number}", qos=1)
    for _ in range(180):
        assert producer.wire.expect(p.PUBACK).reason_code == SUCCESS
    for device in devices:
        expected = [f"{device.client_id}:{number}" for number in range(3)]
        assert device.take_payloads(3) == expected


@pytest.mark.rule("E20")
def test_an_owner_which_reads_nothing_is_nobody_elses_problem(connect: Connect, owner: str) -> None:
    producer = connect()
    for number in range(40):
        producer.write(owner, f"k{number}", bytes(200_000))
    silent = connect(owner)
    silent.wire.send(p.subscribe(1, [(f"$ECQ/{owner}/#", 1)]))
    other = listener(connect, f"{owner}-2")
    for number in range(20):
        producer.write_each(f"{owner}-2", f"k={number}")
        assert other.take().payload == str(number)
    silent.wire.wait_for(p.SUBACK, 1)
    assert len(silent.drain(1.0)) == 40


@pytest.mark.rule("E29", "E26", "E14")
def test_a_rejected_entry_which_was_rewritten_does_not_come_again(
    fresh_broker: BrokerFactory, connect: Connect, owner: str
) -> None:
    broker = fresh_broker(BARE | {"ecq.reject_policy": "retry"})
    producer = connect(of=broker)
    producer.write_each(owner, "a=old")
    device = listener(connect, owner, of=broker)
    held = device.hold()
    producer.write_each(owner, "a=new")
    device.ack(held, code=0x80)
    first = device.take()  # after the backoff, if the broker waits for it
    received = pairs([first, *device.drain()])
    assert received in (["a=new"], ["a=old", "a=new"])
    wait_until(lambda: Mailboxes(broker).acked(owner) == 2)


@pytest.mark.rule("E29", "E25")
def test_a_rejected_entry_comes_again_after_a_lost_connection(
    fresh_broker: BrokerFactory, connect: Connect, owner: str
) -> None:
    broker = fresh_broker(BARE | {"ecq.reject_policy": "retry"})
    connect(of=broker).write_each(owner, "a=1", "b=2")
    device = listener(connect, owner, of=broker)
    held = device.hold_each(2)
    device.ack(held[0], code=0x80)
    device.ack(held[1])
    device.abort()
    received = listener(connect, owner, of=broker).drain(3.0)
    assert "a=1" in pairs(received)
    wait_until(lambda: Mailboxes(broker).acked(owner) == 2)


@pytest.mark.rule("E29", "T12")
def test_an_entry_which_is_always_rejected_ends(
    fresh_broker: BrokerFactory, connect: Connect, owner: str
) -> None:
    """The number of attempts is bounded, or the next entry is not kept waiting for ever."""
    broker = fresh_broker(BARE | {"ecq.reject_policy": "dlq"})
    producer = connect(of=broker)
    device = listener(connect, owner, of=broker)
    for number in range(8):
        producer.write_each(owner, f"k{number}={number}")
        device.ack(device.hold(), code=0x80)
    wait_until(lambda: Mailboxes(broker).acked(owner) == 8)
    undertaker = connect(of=broker)
    undertaker.subscribe(f"$queue/dlq/ecq/{owner}")
    assert sorted(undertaker.take_payloads(8)) == list(map(str, range(8)))


@pytest.mark.rule("E19", "E31", "section 7")
def test_a_shorter_retention_counts_at_once(
    fresh_broker: BrokerFactory, connect: Connect, owner: str
) -> None:
    broker = fresh_broker(BARE)
    connect(of=broker).write_each(owner, "a=1")
    mailboxes = Mailboxes(broker)
    mailboxes.configure(data_retention="1")
    listener(connect, owner, of=broker).expect_silence()
    mailboxes.configure(data_retention="7d")
    connect(of=broker).write_each(owner, "b=2")
    device = listener(connect, owner, of=broker)
    assert pairs(device.drain())[-1] == "b=2"


@pytest.mark.rule("E37", "E23")
def test_rewinds_without_a_pause_end_in_one_order(
    connect: Connect, mailboxes: Mailboxes, owner: str
) -> None:
    connect().write_each(owner, *numbered(12))
    device = listener(connect, owner)
    for number in (3, 7, 1, 12, 5):
        device.poll(0.01)
        assert device.rewind(f'{{"seqno": {number}}}') == SUCCESS
    received = seqnos(device.drain(1.0))
    assert received[-8:] == [5, 6, 7, 8, 9, 10, 11, 12]
    wait_until(lambda: mailboxes.acked(owner) == 12)


@pytest.mark.rule("E25", "E28")
def test_an_acknowledgement_from_an_earlier_connection_counts_for_nothing(
    connect: Connect, mailboxes: Mailboxes, owner: str
) -> None:
    """Packet ids begin anew; a client which mixes them up must not settle unseen entries."""
    connect().write_each(owner, "a=1", "b=2")
    first = listener(connect, owner)
    held = first.hold_each(2)
    first.abort()
    second = connect(owner)
    second.ack(*held)  # before it has subscribed
    assert mailboxes.acked(owner) == 0
    second.listen()
    assert pairs(second.drain()) == ["a=1", "b=2"]


@pytest.mark.rule("E7", "E11")
def test_a_flood_of_qos_0_writes_is_stored_whole(connect: Connect, owner: str) -> None:
    producer = connect()
    writes = [p.publish(f"$ECQ/w/{owner}/k{number}", str(number)) for number in range(500)]
    producer.wire.send(b"".join(writes))
    producer.write_each(owner, "last=x")
    received = listener(connect, owner).drain(1.0)
    assert [one.payload for one in received] == [*map(str, range(500)), "x"]
