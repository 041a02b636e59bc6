"""What becomes of sessions and wills over crashes, and what delivery refuses at its limits."""

from __future__ import annotations

import pytest

from queuelake.broker.line import Outgoing
from queuelake.broker.runner import REFILL_BYTES
from queuelake.broker.session import Session
from queuelake.settings import Limits, Mqtt, Settings
from queuelake.storage import api
from tests.harness import packets as p
from tests.harness.packets import Will
from tests.harness.reading import parse
from tests.property.test_session import CONNECTION, make_message, number_of
from tests.simulation.node import Node, Peer


def acknowledge_all(peer: Peer) -> list[int]:
    """PUBACK everything which is here; returns the packet ids."""
    ids = [one.packet_id for one in peer.take_all() if one.type == p.PUBLISH]
    for packet_id in ids:
        peer.acknowledge(p.PUBACK, packet_id)
    return ids


def test_the_bytes_of_a_queue_are_counted_right_after_a_crash() -> None:
    """What a partly settled row still holds of settled messages is not queued any more."""
    node = Node()
    reader = node.client("reader")
    reader.subscribe("t", qos=1)
    writer = node.client("writer")
    for number in range(1, 6):
        writer.publish("t", bytes(100 * number), 1, number)
    node.work()
    for packet_id in (1, 3):
        reader.acknowledge(p.PUBACK, packet_id)
    node.work()
    counted = node.session("reader").queued_bytes
    assert counted == sum(len(b"t") + 1 + 100 * number for number in (2, 4, 5))
    node.crash()
    assert node.session("reader").queued_bytes == counted
    reader = node.client("reader")
    acknowledge_all(reader)
    node.work()
    assert node.session("reader").queued_bytes == 0
    assert node.session("reader").unsettled == 0


def test_a_message_sent_beyond_settled_ones_is_a_repeat_after_a_crash() -> None:
    """The window counts unsettled messages, so it reaches further than its own length."""
    node = Node(Settings(mqtt=Mqtt(inflight_max=10)))
    reader = node.client("reader")
    reader.subscribe("t", qos=1)
    writer = node.client("writer")
    for number in range(1, 11):
        writer.publish("t", b"%d" % number, 1, number)
    node.work()
    ids = [one.packet_id for one in reader.take_all()]
    for packet_id in ids[1:]:
        reader.acknowledge(p.PUBACK, packet_id)
    node.work()
    writer.publish("t", b"later", 1, 11)
    node.work()
    assert reader.payloads() == [b"later"]
    node.crash()
    again = node.client("reader").take_all()
    assert [(one.payload, one.dup) for one in again] == [(b"1", True), (b"later", True)]


def test_a_session_which_was_connected_expires_though_the_broker_crashes_again() -> None:
    node = Node()
    node.client("reader", expiry_s=10)
    for _ in range(3):
        node.crash()
        node.work()
        node.pass_time(4000)
    assert "reader" not in node.broker.sessions.by_client
    node.work()
    assert not node.store.tables[api.SESSIONS]


def test_a_will_is_not_put_off_by_one_crash_after_the_other() -> None:
    node = Node()
    reader = node.client("reader")
    reader.subscribe("wills")
    will = Will("wills", b"gone", qos=1, properties={"will_delay_interval": 10})
    node.client("dying", will=will)
    for _ in range(3):
        node.crash()
        node.work()
        node.pass_time(4000)
    assert node.client("reader").payloads() == [b"gone"]


def test_a_will_comes_with_the_end_of_its_session_after_a_crash_too() -> None:
    node = Node()
    reader = node.client("reader")
    reader.subscribe("wills")
    will = Will("wills", b"gone", qos=1, properties={"will_delay_interval": 1000})
    node.client("dying", will=will, expiry_s=5)
    node.crash()
    node.work()
    node.pass_time(6000)
    assert node.client("reader").payloads() == [b"gone"]
    assert not node.store.tables[api.WILLS]


def test_a_client_which_comes_back_in_time_keeps_its_will_from_being_published() -> None:
    node = Node()
    reader = node.client("reader")
    reader.subscribe("wills")
    will = Will("wills", b"gone", qos=1, properties={"will_delay_interval": 10})
    node.client("dying", will=will).hang_up()
    node.pass_time(5000)
    assert node.client("dying").session_present
    node.pass_time(20_000)
    assert reader.payloads() == []
    assert not node.store.tables[api.WILLS]


def test_a_full_queue_refuses_and_says_so() -> None:
    node = Node(Settings(limits=Limits(queued_messages_per_client_max=3)))
    node.client("reader").subscribe("t", qos=1)
    node.session("reader").connection.transport.hang_up()  # type: ignore[union-attr]
    writer = node.client("writer")
    for number in range(1, 6):
        writer.publish("t", b"%d" % number, 1, number)
    node.work()
    assert [one.reason_code for one in writer.take_all()] == [0, 0, 0, 0x97, 0x97]
    assert node.client("reader").payloads() == [b"1", b"2", b"3"]


def test_a_slow_reader_costs_bounded_memory_and_loses_nothing() -> None:
    node = Node(Settings(limits=Limits(memory_bytes_per_client_max=10_000)))
    reader = node.client("reader")
    reader.subscribe("t", qos=1)
    reader.transport.connection.pause_writing()
    writer = node.client("writer")
    for number in range(1, 301):
        writer.publish("t", b"%d:" % number + bytes(2000), 1, number)
        node.work()
        # One stretch of the store may be read back beyond the limit, no more.
        assert node.session("reader").memory_bytes < 10_000 + 1.2 * REFILL_BYTES
    reader.transport.connection.resume_writing()
    node.work()
    assert [int(one.split(b":")[0]) for one in reader.payloads()] == list(range(1, 301))


def test_messages_for_a_member_whose_session_ends_go_to_the_other() -> None:
    node = Node()
    first, second = node.client("first"), node.client("second")
    for member in (first, second):
        member.subscribe("$share/g/t", qos=1)
    writer = node.client("writer")
    for number in range(1, 11):
        writer.publish("t", b"%d" % number, 1, number)
    node.work()
    got = second.payloads()
    assert 0 < len(got) < 10
    first.hang_up()
    node.client("first", clean=True)
    got += second.payloads()
    assert sorted(got, key=int) == [b"%d" % number for number in range(1, 11)]


def test_large_messages_are_read_back_a_few_at_a_time() -> None:
    """Sixteen messages of 10 MB are not sixteen entries: memory has a limit of its own."""
    session = Session(1, "client", 5, 3600)
    session.attach(5, 1, 0, 0)
    session.connection = CONNECTION
    session.next_seq = 17
    session.durable_seq = 16
    session.unsettled = 16
    read = 0
    while session.wants_refill():
        read += 1
        message = make_message(read, 1, 10_000_000, False, 0)
        session.refill(Outgoing(message, 0x32, b"", b"", read))
    assert session.memory_bytes < 25_000_000


@pytest.mark.parametrize("version", [4, 5])
def test_qos_0_keeps_its_place_but_waits_for_nobody(version: int) -> None:
    session = Session(1, "client", version, 0)
    session.attach(version, 2, 0, 0)
    session.connection = CONNECTION
    for number, qos in enumerate([1, 0, 1, 0, 1, 0], 1):
        session.offer(make_message(number, qos, 0, False, 0), qos, False, b"", b"")
    out: list[bytes] = []
    session.pump(out, 0, [0, 0, 0])
    assert [number_of(parse(one, version)) for one in out] == [1, 2, 3, 4, 6]


def test_a_full_retained_store_refuses_no_message_which_a_subscriber_got() -> None:
    node = Node(Settings(limits=Limits(retained_messages_max=1)))
    reader = node.client("reader", expiry_s=0)
    reader.subscribe("#", qos=1)
    writer = node.client("writer", expiry_s=0)
    writer.publish("first", b"kept", 1, 1, retain=True)
    node.work()
    writer.take_all()
    writer.publish("second", b"not kept", 1, 2, retain=True)
    node.work()
    assert [one.reason_code for one in writer.take_all()] == [0]
    assert reader.payloads() == [b"kept", b"not kept"]
