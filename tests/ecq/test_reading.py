"""How a mailbox is read: batches, positions, and what comes again (E11-E14, E19-E30)."""

from __future__ import annotations

import pytest

from tests.conftest import BrokerFactory
from tests.ecq.client import CLOSED, SUCCESS, Device, numbered, pairs, seqnos
from tests.ecq.conftest import BARE, VERSIONS, Connect
from tests.ecq.control import Mailboxes
from tests.harness import packets as p
from tests.queues.client import wait_until


def listener(connect: Connect, owner: str, **fields: object) -> Device:
    device = connect(owner, **fields)
    assert device.listen() == 1
    return device


@pytest.mark.rule("E13", "E14", "E19", "T2")
@VERSIONS
def test_the_last_value_of_a_key_goes_to_the_tail(
    connect: Connect, owner: str, version: int
) -> None:
    connect().write_each(owner, "k1=a", "k2=b", "k1=c")
    received = listener(connect, owner, version=version).drain()
    assert pairs(received) == ["k2=b", "k1=c"]
    if version == 5:
        assert seqnos(received) == [2, 3]


@pytest.mark.rule("E11", "E12")
def test_sequence_numbers_go_on_when_the_mailbox_is_empty(connect: Connect, owner: str) -> None:
    device, producer = listener(connect, owner), connect()
    for number in range(1, 8):
        producer.write_each(owner, f"k=v{number}")
        delivery = device.take()
        assert (delivery.seqno, delivery.payload) == (number, f"v{number}")


@pytest.mark.rule("E12", "E13", "E14")
def test_a_rewritten_key_leaves_a_gap_and_no_number_is_used_twice(
    connect: Connect, owner: str
) -> None:
    producer = connect()
    producer.write_each(owner, *["k=x"] * 9, "j=y")
    device = listener(connect, owner)
    assert seqnos(device.drain()) == [9, 10]
    producer.write_each(owner, "k=z")
    assert seqnos(device.drain()) == [11]


@pytest.mark.rule("E11")
def test_each_producer_sees_its_own_order(connect: Connect, owner: str) -> None:
    producers = [connect() for _ in range(4)]
    for number in range(10):
        for index, producer in enumerate(producers):
            producer.wire.send_publish(f"$ECQ/w/{owner}/p{index}-{number}", str(number), qos=1)
    for producer in producers:
        for _ in range(10):
            assert producer.wire.expect(p.PUBACK).reason_code == SUCCESS
    received = listener(connect, owner).drain()
    assert seqnos(received) == list(range(1, 41))
    for index in range(4):
        mine = [one.payload for one in received if one.key.startswith(f"p{index}-")]
        assert mine == list(map(str, range(10)))


@pytest.mark.rule("T3", "E23")
@VERSIONS
def test_what_was_acknowledged_never_comes_again(
    connect: Connect, mailboxes: Mailboxes, owner: str, version: int
) -> None:
    connect().write_each(owner, *numbered(7))
    device = listener(connect, owner, version=version)
    assert len(device.drain()) == 7
    wait_until(lambda: mailboxes.acked(owner) == 7)
    device.disconnect()
    again = listener(connect, owner, version=version)
    again.expect_silence()


@pytest.mark.rule("E19", "E20", "E21")
def test_the_next_batch_waits_for_every_acknowledgement(connect: Connect, owner: str) -> None:
    connect().write_each(owner, *numbered(12))
    device = listener(connect, owner)
    first = device.hold_all()
    assert seqnos(first) == [1, 2, 3, 4, 5]
    device.ack(*first[:4])
    device.expect_silence()
    device.ack(first[4])
    second = device.hold_all()
    assert seqnos(second) == [6, 7, 8, 9, 10]
    device.ack(*second)
    assert seqnos(device.drain()) == [11, 12]


@pytest.mark.rule("E20", "E17")
def test_a_write_during_a_batch_waits_for_its_end(connect: Connect, owner: str) -> None:
    device, producer = listener(connect, owner), connect()
    producer.write_each(owner, "a=1")
    held = device.hold()
    producer.write_each(owner, "b=2", "c=3")
    device.expect_silence()
    device.ack(held)
    assert pairs(device.drain()) == ["b=2", "c=3"]


@pytest.mark.rule("E19", "section 7")
@pytest.mark.parametrize("size", [1, 2, 31])
def test_the_size_of_a_batch_can_be_chosen(
    fresh_broker: BrokerFactory, connect: Connect, owner: str, size: int
) -> None:
    broker = fresh_broker(BARE | {"ecq.reader_batch_size": size})
    connect(of=broker).write_each(owner, *numbered(size + 3))
    device = listener(connect, owner, of=broker)
    held = device.hold_all()
    assert seqnos(held) == list(range(1, size + 1))
    device.ack(*held)
    assert seqnos(device.drain()) == list(range(size + 1, size + 4))


@pytest.mark.rule("E30")
@pytest.mark.parametrize(("window", "batch"), [(1, 1), (2, 1), (3, 2), (5, 4), (6, 5), (100, 5)])
def test_a_batch_is_smaller_than_the_window_of_the_client(
    connect: Connect, owner: str, window: int, batch: int
) -> None:
    connect().write_each(owner, *numbered(8))
    device = listener(connect, owner, properties={"receive_maximum": window})
    held = device.hold_all()
    assert seqnos(held) == list(range(1, batch + 1))
    device.ack(*held)
    assert seqnos(device.drain()) == list(range(batch + 1, 9))


@pytest.mark.rule("E30")
def test_other_messages_pass_a_mailbox_which_is_not_read(connect: Connect, owner: str) -> None:
    producer = connect()
    producer.write_each(owner, *numbered(8))
    device = connect(owner, properties={"receive_maximum": 3})
    device.subscribe(f"plain/{owner}")
    device.listen()
    held = device.hold_all()
    assert len(held) == 2
    for number in range(3):
        producer.publish(f"plain/{owner}", str(number))
        assert device.take().payload == str(number)
    device.ack(*held)
    assert len(device.drain()) == 6


@pytest.mark.rule("E30")
def test_a_window_full_of_other_messages_only_delays(connect: Connect, owner: str) -> None:
    device, producer = connect(owner, properties={"receive_maximum": 1}), connect()
    device.subscribe(f"plain/{owner}")
    producer.publish(f"plain/{owner}", "plain")
    plain = device.hold()
    device.listen()
    producer.write_each(owner, "a=1", "b=2")
    device.expect_silence()
    device.ack(plain)
    assert pairs(device.drain(1.0)) == ["a=1", "b=2"]


@pytest.mark.rule("E22", "E23", "E24", "T5")
def test_the_position_is_the_highest_number_of_the_batch(
    connect: Connect, mailboxes: Mailboxes, owner: str
) -> None:
    connect().write_each(owner, *numbered(3))
    device = listener(connect, owner)
    held = device.hold_each(3)
    device.ack(held[2])
    device.ack(held[0])
    assert mailboxes.acked(owner) == 0
    device.ack(held[1])
    wait_until(lambda: mailboxes.acked(owner) == 3)
    device.disconnect()
    listener(connect, owner).expect_silence()
    assert mailboxes.acked(owner) == 3


@pytest.mark.rule("E22", "E25")
def test_an_acknowledgement_of_something_else_changes_nothing(
    connect: Connect, mailboxes: Mailboxes, owner: str
) -> None:
    connect().write_each(owner, *numbered(7))
    device = listener(connect, owner)
    held = device.hold_each(5)
    for packet_id in (1, 2, 40_000, 65_535):
        if packet_id not in {one.packet.packet_id for one in held}:
            device.wire.acknowledge(p.PUBACK, packet_id)
    device.ack(held[0])
    device.ack(held[0])
    device.expect_silence(0.2)
    assert mailboxes.acked(owner) == 0
    device.ack(*held[1:])
    assert seqnos(device.drain()) == [6, 7]


@pytest.mark.rule("E25", "T4")
@pytest.mark.parametrize("ending", ["abort", "disconnect"])
@VERSIONS
def test_a_batch_which_was_not_finished_comes_again(
    connect: Connect, mailboxes: Mailboxes, owner: str, version: int, ending: str
) -> None:
    producer = connect()
    producer.write_each(owner, *numbered(6))
    device = listener(connect, owner, version=version)
    held = device.hold_each(5)
    device.ack(*held[:3])
    getattr(device, ending)()
    assert mailboxes.acked(owner) == 0
    producer.write_each(owner, "k2=again")
    received = listener(connect, owner, version=version).drain()
    assert pairs(received) == ["k1=1", "k3=3", "k4=4", "k5=5", "k6=6", "k2=again"]
    assert not [one for one in received if one.packet.dup]


@pytest.mark.rule("E25", "E10")
@VERSIONS
def test_a_session_which_is_resumed_gets_each_entry_once(
    connect: Connect, owner: str, version: int
) -> None:
    fields: dict[str, object] = {"clean": False, "version": version}
    if version == 5:
        fields["properties"] = {"session_expiry_interval": 3600}
    producer = connect()
    producer.write_each(owner, "a=1", "b=2")
    device = listener(connect, owner, **fields)
    device.hold_each(2)
    device.abort()
    producer.write_each(owner, "c=3")
    again = connect(owner, **fields)
    assert again.wire.connack is not None
    assert again.wire.connack.session_present
    before = again.hold_all()
    assert again.listen() == 1
    received = [*before, *again.hold_all()]
    assert sorted(pairs(received)) == ["a=1", "b=2", "c=3"]
    assert not [one for one in received if one.packet.dup]
    again.ack(*received)
    again.expect_silence(0.2)


@pytest.mark.rule("E25")
def test_nothing_is_kept_in_the_session_while_the_owner_is_away(
    connect: Connect, owner: str
) -> None:
    fields: dict[str, object] = {"clean": False, "properties": {"session_expiry_interval": 3600}}
    device, producer = listener(connect, owner, **fields), connect()
    device.disconnect()
    producer.write_each(owner, *["k=old"] * 5, "k=new")
    again = connect(owner, **fields)
    again.listen()
    assert pairs(again.drain()) == ["k=new"]


@pytest.mark.rule("E26")
def test_a_key_rewritten_in_flight_comes_again_later(
    connect: Connect, mailboxes: Mailboxes, owner: str
) -> None:
    device, producer = listener(connect, owner), connect()
    producer.write_each(owner, "k=old")
    held = device.hold()
    producer.write_each(owner, "k=new")
    device.expect_silence(0.2)
    device.ack(held)
    new = device.hold()
    assert (new.payload, new.seqno) == ("new", 2)
    device.ack(new)
    wait_until(lambda: mailboxes.acked(owner) == 2)


@pytest.mark.rule("E26", "E25")
def test_a_key_rewritten_in_flight_comes_once_after_a_lost_connection(
    connect: Connect, owner: str
) -> None:
    device, producer = listener(connect, owner), connect()
    producer.write_each(owner, "k=old", "j=x")
    device.hold()
    producer.write_each(owner, "k=new")
    device.abort()
    assert pairs(listener(connect, owner).drain()) == ["j=x", "k=new"]


@pytest.mark.rule("E28")
@VERSIONS
def test_a_second_connection_takes_the_mailbox_over(
    connect: Connect, mailboxes: Mailboxes, owner: str, version: int
) -> None:
    producer = connect()
    producer.write_each(owner, "a=1", "b=2")
    first = listener(connect, owner, version=version)
    first.hold_each(2)
    second = connect(owner, version=version)
    producer.write_each(owner, "c=3")
    assert first.publish("any", "x") == CLOSED
    second.expect_silence()
    assert mailboxes.acked(owner) == 0
    second.listen()
    assert pairs(second.drain()) == ["a=1", "b=2", "c=3"]


@pytest.mark.rule("E28", "E25")
def test_connections_which_take_over_one_another_lose_nothing(connect: Connect, owner: str) -> None:
    """Two devices with one client id, each of which connects again at once."""
    producer, acknowledged = connect(), set()
    for number in range(12):
        producer.write_each(owner, f"k{number}={number}")
        device = listener(connect, owner)
        delivery = device.hold()
        if number % 3 == 0:
            device.ack(delivery)
            acknowledged.add(delivery.key)
    rest = listener(connect, owner).drain(1.0)
    assert acknowledged | {one.key for one in rest} == {f"k{number}" for number in range(12)}


@pytest.mark.rule("E25", "E28")
def test_a_half_open_connection_keeps_nothing_from_the_next(connect: Connect, owner: str) -> None:
    """The device is gone and its network says nothing: the next connection gets it all."""
    producer = connect()
    producer.write_each(owner, *numbered(3))
    silent = listener(connect, owner)  # reads nothing, closes nothing
    assert pairs(listener(connect, owner).drain()) == ["k1=1", "k2=2", "k3=3"]
    silent.wire.close()


@pytest.mark.rule("E17", "E27")
def test_nothing_written_around_a_subscribe_is_missed(connect: Connect, owner: str) -> None:
    """The owner subscribes and leaves while a producer writes without a pause."""
    producer, device = connect(), connect(owner)
    seen: set[str] = set()
    for number in range(60):
        producer.wire.send_publish(f"$ECQ/w/{owner}/k{number}", str(number), qos=1)
        if number % 3 == 0:
            device.listen()
        if number % 7 == 0:
            device.unsubscribe(f"$ECQ/{owner}/#")
        while (delivery := device.poll(0.005)) is not None:
            seen.add(delivery.payload)
    for _ in range(60):
        producer.wire.expect(p.PUBACK)
    device.listen()
    seen |= {one.payload for one in device.drain(1.0)}
    assert seen == set(map(str, range(60)))


@pytest.mark.rule("E22", "E29")
@pytest.mark.parametrize("code", [0x80, 0x83, 0x97, 0x99])
def test_a_rejected_entry_is_done_by_default(
    connect: Connect, mailboxes: Mailboxes, owner: str, code: int
) -> None:
    connect().write_each(owner, "a=1", "b=2")
    device = listener(connect, owner)
    held = device.hold_each(2)
    device.ack(held[0], code=code)
    device.ack(held[1])
    wait_until(lambda: mailboxes.acked(owner) == 2)
    device.expect_silence(0.2)


@pytest.mark.rule("E29", "section 7")
def test_a_rejected_entry_can_come_again(
    fresh_broker: BrokerFactory, connect: Connect, owner: str
) -> None:
    broker = fresh_broker(BARE | {"ecq.reject_policy": "retry"})
    connect(of=broker).write_each(owner, "a=1", "b=2")
    device = listener(connect, owner, of=broker)
    held = device.hold_each(2)
    device.ack(held[0], code=0x80)
    device.ack(held[1])
    again = device.take()
    assert (again.key, again.seqno) == ("a", 1)
    device.expect_silence()
    wait_until(lambda: Mailboxes(broker).acked(owner) == 2)


@pytest.mark.rule("E29", "section 7")
def test_a_rejected_entry_can_become_a_dead_letter(
    fresh_broker: BrokerFactory, connect: Connect, owner: str
) -> None:
    broker = fresh_broker(BARE | {"ecq.reject_policy": "dlq"})
    connect(of=broker).write_each(owner, "a=1", "b=2")
    device, undertaker = listener(connect, owner, of=broker), connect(of=broker)
    undertaker.subscribe(f"$queue/dlq/ecq/{owner}")
    held = device.hold_each(2)
    device.ack(held[0], code=0x97)
    device.ack(held[1])
    assert undertaker.take().payload == "1"
    device.expect_silence(0.2)
    wait_until(lambda: Mailboxes(broker).acked(owner) == 2)
