"""What mailboxes keep over a stop, SIGKILL, and a store which fails (E5, E13, E23, T8, T12)."""

from __future__ import annotations

import sys

import pytest

from tests.conftest import BrokerFactory
from tests.crash.test_store_failures import RESUME_S_MAX, writes_fail
from tests.ecq.client import CLOSED, SUCCESS, UNSPECIFIED, Device, numbered, pairs, seqnos
from tests.ecq.conftest import BARE, VERSIONS, Connect
from tests.ecq.control import Mailboxes
from tests.ecq.tables import row_counts
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess
from tests.queues.client import wait_until

ENDINGS = pytest.mark.parametrize("ending", ["kill", "stop"])
NEEDS_PRLIMIT = pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit")


@pytest.fixture
def broker(fresh_broker: BrokerFactory) -> BrokerProcess:
    return fresh_broker(BARE)


def listener(connect: Connect, owner: str, **fields: object) -> Device:
    device = connect(owner, **fields)
    assert device.listen() == 1
    return device


def end_and_restart(broker: BrokerProcess, ending: str) -> None:
    getattr(broker, ending)()
    broker.restart()


@ENDINGS
@pytest.mark.rule("E7", "E12", "E13", "section 1")
def test_what_was_written_is_there_after_a_restart(
    broker: BrokerProcess, connect: Connect, owner: str, ending: str
) -> None:
    producer = connect()
    for number in range(12):
        producer.write(owner, f"k{number % 7}", str(number), qos=number % 3)
    producer.write_each(owner, "sealed=x")
    end_and_restart(broker, ending)
    connect().write_each(owner, "after=y")
    received = listener(connect, owner).drain()
    assert [one.payload for one in received] == [*map(str, range(5, 12)), "x", "y"]
    assert seqnos(received) == [*range(6, 13), 13, 14]


@ENDINGS
@pytest.mark.rule("E23", "E25", "section 1")
def test_the_position_is_there_after_a_restart_and_what_was_held_comes_again(
    broker: BrokerProcess, connect: Connect, owner: str, ending: str
) -> None:
    connect().write_each(owner, *numbered(9))
    device = listener(connect, owner)
    device.ack(*device.hold_each(5))
    held = device.hold_each(4)  # the position was stored before these were fetched
    device.ack(*held[:2])
    end_and_restart(broker, ending)
    assert Mailboxes(broker).acked(owner) == 5
    again = listener(connect, owner)
    assert seqnos(again.drain()) == [6, 7, 8, 9]
    wait_until(lambda: Mailboxes(broker).acked(owner) == 9)
    end_and_restart(broker, ending)
    listener(connect, owner).expect_silence()
    connect().write_each(owner, "k1=new")
    assert Mailboxes(broker).inspect(owner)["queue"] != "empty"


@ENDINGS
@pytest.mark.rule("E16")
def test_properties_survive_a_restart(
    broker: BrokerProcess, connect: Connect, owner: str, ending: str
) -> None:
    users = [("a", "1"), ("a", "2")]
    connect().write(owner, "k", "x", user=users, content_type="t", correlation_data=b"c")
    end_and_restart(broker, ending)
    packet = listener(connect, owner).take().packet
    assert packet.properties["content_type"] == "t"
    assert packet.properties["correlation_data"] == b"c"
    assert [one for one in packet.user_properties if one[0] == "a"] == users


@pytest.mark.rule("E13", "T8", "section 9")
def test_compaction_leaves_one_row_of_each_key(
    broker: BrokerProcess, connect: Connect, owner: str
) -> None:
    producer = connect()
    for number in range(40):
        producer.write(owner, f"k{number % 4}", bytes(100 * number))
    assert row_counts(broker, "ecq_index", "ecq_payload", "ecq_seqno") == [4, 4, 1]


@NEEDS_PRLIMIT
@pytest.mark.rule("E5", "T12")
@VERSIONS
def test_no_write_succeeds_while_the_store_fails(
    broker: BrokerProcess, connect: Connect, owner: str, version: int
) -> None:
    connect().write_each(owner, "a=1", "b=2")
    with writes_fail(broker):
        for qos in (1, 2):
            producer = connect(version=version)
            code = producer.write(owner, "a", "refused", qos=qos)
            assert code >= UNSPECIFIED if version == 5 else code == CLOSED
    producer = connect()
    wait_until(lambda: producer.write(owner, "c", "3") == SUCCESS, RESUME_S_MAX)
    received = listener(connect, owner).drain()
    assert pairs(received) == ["a=1", "b=2", "c=3"]
    assert seqnos(received)[:2] == [1, 2]
    broker.kill()
    broker.restart()
    assert row_counts(broker, "ecq_index", "ecq_payload") == [3, 3]


@NEEDS_PRLIMIT
@pytest.mark.rule("E5", "E23", "T12")
def test_a_reader_goes_on_when_the_store_is_back(
    broker: BrokerProcess, connect: Connect, owner: str
) -> None:
    producer = connect()
    producer.write_each(owner, *numbered(7))
    device = listener(connect, owner)
    held = device.hold_each(5)
    with writes_fail(broker):
        device.ack(*held)
        assert producer.write(owner, "k9", "refused") >= UNSPECIFIED
    wait_until(lambda: producer.write(owner, "k8", "8") == SUCCESS, RESUME_S_MAX)
    received = set(pairs(device.drain(1.5)))
    assert {"k6=6", "k7=7", "k8=8"} <= received <= set(numbered(8))
    wait_until(lambda: Mailboxes(broker).acked(owner) >= 8)
    broker.kill()
    broker.restart()
    listener(connect, owner).expect_silence()


@pytest.mark.rule("E4", "E5", "T8")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_kill_right_after_the_answer_loses_nothing(
    broker: BrokerProcess, connect: Connect, owner: str, qos: int
) -> None:
    for number in range(3):
        producer = connect()
        packet_id = producer.wire.send_publish(f"$ECQ/w/{owner}/k", str(number), qos=qos)
        answer = producer.wire.wait_for(p.PUBACK if qos == 1 else p.PUBREC, packet_id)
        broker.kill()
        assert answer.reason_code == SUCCESS
        broker.restart()
        assert row_counts(broker, "ecq_index", "ecq_payload") == [1, 1]
    received = listener(connect, owner).drain()
    assert (pairs(received), seqnos(received)) == (["k=2"], [3])
