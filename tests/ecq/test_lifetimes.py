"""How long entries and positions live, and who takes them away (E15, E18, E27, E31-E36, T9)."""

from __future__ import annotations

import time

import pytest

from queuelake.ecq_settings import EcqConfig
from tests.conftest import BrokerFactory
from tests.ecq.client import SUCCESS, Device, pairs
from tests.ecq.conftest import BARE, Connect
from tests.ecq.control import Mailboxes
from tests.ecq.node import DAY_MS, MailboxNode
from tests.ecq.tables import row_counts
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess
from tests.queues.client import wait_until

ROWS = ("ecq_index", "ecq_payload")


def listener(connect: Connect, owner: str, **fields: object) -> Device:
    device = connect(owner, **fields)
    assert device.listen() == 1
    return device


def wait_for_empty_tables(broker: BrokerProcess) -> None:
    wait_until(lambda: row_counts(broker, *ROWS) == [0, 0])


@pytest.mark.rule("E31", "E33", "T9", "section 9")
def test_what_is_too_old_is_neither_delivered_nor_kept(
    fresh_broker: BrokerFactory, connect: Connect, owner: str
) -> None:
    broker = fresh_broker(BARE | {"ecq.data_retention": "1s"})
    mailboxes = Mailboxes(broker)
    connect(of=broker).write_each(owner, "a=1", "b=2")
    assert row_counts(broker, *ROWS) == [2, 2]
    time.sleep(1.1)
    device = listener(connect, owner, of=broker)
    device.expect_silence()
    assert mailboxes.collect() is True
    wait_for_empty_tables(broker)
    assert mailboxes.inspect(owner)["queue"] == "empty"
    assert mailboxes.status()["messages"] == "empty"
    connect(of=broker).write_each(owner, "a=3")
    assert device.take().seqno == 3


@pytest.mark.rule("E31", "T9", "section 7")
def test_collection_runs_by_itself(
    fresh_broker: BrokerFactory, connect: Connect, owner: str
) -> None:
    broker = fresh_broker(BARE | {"ecq.data_retention": "300", "ecq.gc_interval": "200ms"})
    connect(of=broker).write_each(owner, "a=1", "b=2")
    wait_for_empty_tables(broker)


@pytest.mark.rule("E32", "E33")
def test_collection_reaches_every_owner_and_no_young_entry(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    """350 owners are more than three slices."""
    broker = fresh_broker(BARE | {"ecq.data_retention": "3s"})
    producer = connect(of=broker)
    for number in range(350):
        producer.wire.send_publish(f"$ECQ/w/o{number}/old", "x", qos=1)
    for _ in range(350):
        assert producer.wire.expect(p.PUBACK).reason_code == SUCCESS
    old_until = time.monotonic() + 3.1
    time.sleep(max(0.0, old_until - 1.5 - time.monotonic()))
    for number in range(0, 350, 50):
        assert producer.write(f"o{number}", "young", "y") == SUCCESS
    time.sleep(max(0.0, old_until - time.monotonic()))
    Mailboxes(broker).collect()
    producer.subscribe("plain")
    producer.publish("plain", "goes on")
    assert producer.take().payload == "goes on"
    wait_until(lambda: row_counts(broker, *ROWS)[0] <= 7)


@pytest.mark.rule("E31", "E33")
def test_a_week_is_the_default() -> None:
    node = MailboxNode()
    node.write("o", "a", "1")
    node.leap(7 * DAY_MS - 3600_000)
    node.write("o", "b", "2")
    node.leap(2 * 3600_000)
    assert node.read("o") == ["b=2"]
    assert node.rows(*ROWS) == [1, 1]


@pytest.mark.rule("E31")
def test_the_first_run_comes_after_half_an_hour_at_most() -> None:
    node = MailboxNode(ecq=EcqConfig(data_retention="1s", gc_interval="10d"))
    node.write("o", "a", "1")
    node.leap(25 * 60_000)
    assert node.rows(*ROWS) == [1, 1]
    node.leap(10 * 60_000)
    assert node.rows(*ROWS) == [0, 0]


@pytest.mark.rule("E34", "E33")
def test_an_expiry_shorter_than_the_retention_wins() -> None:
    node = MailboxNode()
    node.write("o", "a", "1", message_expiry_interval=60)
    node.write("o", "b", "2", message_expiry_interval=30 * 24 * 3600)
    node.write("o", "c", "3")
    node.leap(61_000)
    peer = node.listener("o")
    received = node.drain(peer)
    assert pairs(received) == ["b=2", "c=3"]
    peer.leave()
    node.write("o", "b", "4", message_expiry_interval=30 * 24 * 3600)
    node.leap(8 * DAY_MS)
    assert node.read("o") == []


@pytest.mark.rule("E34")
def test_an_expired_entry_leaves_the_tables_too() -> None:
    node = MailboxNode()
    node.write("o", "a", "1", message_expiry_interval=60)
    node.leap(2 * 3600_000)
    node.leap(2 * 3600_000)
    assert node.rows(*ROWS) == [0, 0]


@pytest.mark.rule("E35", "E12")
def test_the_position_of_an_idle_mailbox_is_forgotten_and_no_number_comes_twice() -> None:
    node = MailboxNode()
    for number in range(1, 6):
        node.write("o", "k", str(number))
    assert node.read("o") == ["k=5"]
    node.leap(5 * DAY_MS)
    node.leap(20 * DAY_MS)
    assert node.rows("ecq_state") == [1]
    for _ in range(4):
        node.leap(10 * DAY_MS)
    assert node.rows("ecq_state", "ecq_seqno", *ROWS) == [0, 0, 0, 0]
    node.write("o", "k", "again")
    peer = node.listener("o")
    [delivery] = node.drain(peer)
    assert delivery.payload == "again"
    assert delivery.seqno > 5


@pytest.mark.rule("E35", "section 7")
def test_positions_can_be_kept_for_ever() -> None:
    node = MailboxNode(ecq=EcqConfig(state_retention="0s"))
    node.write("o", "k", "1")
    node.read("o")
    for _ in range(6):
        node.leap(30 * DAY_MS)
    assert node.rows("ecq_state", *ROWS) == [1, 0, 0]


@pytest.mark.rule("E36")
def test_another_interval_starts_a_run(
    fresh_broker: BrokerFactory, connect: Connect, owner: str
) -> None:
    broker = fresh_broker(BARE | {"ecq.data_retention": "300ms"})
    connect(of=broker).write_each(owner, "a=1")
    time.sleep(0.4)
    assert row_counts(broker, *ROWS) == [1, 1]
    Mailboxes(broker).configure(gc_interval="2h")
    wait_for_empty_tables(broker)


@pytest.mark.rule("E36")
def test_a_second_request_during_a_run_is_ignored_with_a_warning(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(BARE | {"ecq.data_retention": "300ms"})
    producer, mailboxes = connect(of=broker), Mailboxes(broker)
    for number in range(600):  # six slices, with a pause after each
        producer.wire.send_publish(f"$ECQ/w/o{number}/k", "x", qos=1)
    for _ in range(600):
        producer.wire.expect(p.PUBACK)
    time.sleep(0.4)
    started = [mailboxes.collect() for _ in range(2)]
    assert started == [True, False]
    wait_for_empty_tables(broker)
    wait_until(mailboxes.collect)
    assert "warning" in broker.stderr_tail().lower()


@pytest.mark.rule("E18", "E5")
def test_a_write_which_waits_too_long_is_abandoned() -> None:
    node = MailboxNode()
    node.write("o", "before", "0")
    begun, waiting = node.producer(), node.producer()
    node.send_write(begun, "o", "begun", "1")
    node.loop.run_until_idle()
    assert node.committer.is_busy()
    node.send_write(waiting, "o", "waiting", "2")
    node.loop.run_until_idle()
    node.loop.advance(5500)
    node.loop.run_until_idle()
    node.work()
    first, second = begun.take(), waiting.take()
    assert (first.type, first.reason_code) == (p.PUBACK, 0)
    assert second.type == p.PUBACK
    assert second.reason_code >= 0x80
    assert node.read("o") == ["before=0", "begun=1"]


@pytest.mark.rule("E27")
def test_a_lost_notification_is_made_up_for_by_the_poll() -> None:
    """Another broker writes into the same store, and nobody tells the reader."""
    reading, writing = MailboxNode(), MailboxNode()
    writing.share(reading)
    peer = reading.listener("o")
    writing.write("o", "k", "x")
    reading.work()
    assert peer.take_all() == []
    reading.pass_time(31_000)
    assert pairs(reading.drain(peer)) == ["k=x"]
