"""Group commit: nothing is confirmed before it is stored; what a failed commit leaves behind."""

from __future__ import annotations

import pytest

from queuelake.settings import Limits, Settings
from queuelake.storage import api
from tests.harness import packets as p
from tests.harness.packets import Packet, Will
from tests.simulation.node import RETRY_MS, Node, Peer

VERSIONS = [4, 5]


def names(packets: list[Packet]) -> list[tuple[str, int]]:
    return [(p.NAMES[one.type], one.packet_id) for one in packets]


def away(node: Node, name: str, *filters: str, qos: int = 2) -> None:
    """A client with a persistent session, which is not there."""
    peer = node.client(name)
    peer.subscribe(*filters, qos=qos)
    peer.leave()


def retry(node: Node) -> None:
    """The store works again, and the broker tries it again."""
    node.pass_time(RETRY_MS)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [1, 2])
def test_an_answer_leaves_when_its_group_is_durable_and_not_before(version: int, qos: int) -> None:
    node = Node()
    away(node, "reader", "t")
    writer = node.client("writer", version)
    writer.publish("t", b"1", qos, 1)
    node.loop.run_until_idle()
    assert node.committer.is_busy()
    assert writer.take_all() == []
    node.committer.commit()
    assert writer.take_all() == [], "the loop has not heard of it"
    node.loop.run_until_idle()
    assert names(writer.take_all()) == [("PUBACK" if qos == 1 else "PUBREC", 1)]


def test_answers_leave_in_the_order_of_their_packets_though_only_some_had_to_wait() -> None:
    node = Node()
    away(node, "reader", "kept/#")
    writer = node.client("writer", expiry_s=0)
    node.client("other", expiry_s=0).subscribe("loose/#", qos=1)
    writer.publish("kept/a", b"1", 1, 1)
    writer.publish("loose/a", b"2", 1, 2)
    writer.transport.send(p.PINGREQ_BYTES)
    node.loop.run_until_idle()
    writer.publish("loose/a", b"3", 1, 3)
    writer.publish("kept/a", b"4", 1, 4)
    node.loop.run_until_idle()
    assert writer.take_all() == []
    node.work()
    expected = [("PUBACK", 1), ("PUBACK", 2), ("PINGRESP", 0), ("PUBACK", 3), ("PUBACK", 4)]
    assert names(writer.take_all()) == expected


def test_a_persistent_subscriber_gets_nothing_which_a_crash_could_take_back() -> None:
    node = Node()
    reader = node.client("reader")
    reader.subscribe("t")
    writer = node.client("writer")
    writer.publish("t", b"1", 1, 1)
    node.loop.run_until_idle()
    assert reader.take_all() == []
    node.work()
    assert reader.payloads() == [b"1"]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_failed_commit_refuses_the_publish_and_the_next_one_is_taken(qos: int) -> None:
    node = Node()
    away(node, "reader", "t")
    writer = node.client("writer")
    writer.publish("t", b"lost", qos, 1)
    node.fail_commit()
    (answer,) = writer.take_all()
    assert answer.reason_code == 0x80
    assert "commit failed" in node.broker.runner.failure
    retry(node)
    writer.publish("t", b"kept", qos, 1)
    node.work()
    assert [one.reason_code for one in writer.take_all()] == [0]
    assert node.broker.runner.failure == ""
    assert node.client("reader").payloads() == [b"kept"]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_of_3_1_1_is_closed_without_an_answer_and_sends_again(qos: int) -> None:
    node = Node()
    away(node, "reader", "t")
    writer = node.client("writer", 4)
    writer.publish("t", b"1", qos, 7)
    node.fail_commit()
    assert writer.take_all() == []
    assert writer.transport.closed_by_broker()
    retry(node)
    writer = node.client("writer", 4)
    writer.publish("t", b"1", qos, 7, dup=True)
    node.work()
    assert names(writer.take_all()) == [("PUBACK" if qos == 1 else "PUBREC", 7)]
    assert node.client("reader").payloads() == [b"1"]


def test_the_group_collected_over_a_failed_one_fails_with_it() -> None:
    node = Node()
    away(node, "reader", "t")
    writer = node.client("writer")
    writer.publish("t", b"sealed", 1, 1)
    node.loop.run_until_idle()
    writer.publish("t", b"collected", 1, 2)
    node.fail_commit()
    assert [one.reason_code for one in writer.take_all()] == [0x80, 0x80]
    retry(node)
    assert node.client("reader").payloads() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_qos_2_id_of_a_failed_group_is_new_again_though_its_client_had_left(version: int) -> None:
    """Else the repeat is taken for a message which is here, and confirmed, and lost."""
    node = Node()
    away(node, "reader", "t")
    writer = node.client("writer", version)
    writer.publish("t", b"1", 2, 1)
    node.loop.run_until_idle()
    writer.transport.hang_up()
    node.fail_commit()
    retry(node)
    writer = node.client("writer", version)
    writer.publish("t", b"1", 2, 1, dup=True)
    node.work()
    assert names(writer.take_all()) == [("PUBREC", 1)]
    assert node.client("reader").payloads() == [b"1"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_repeat_of_a_stored_qos_2_message_is_not_forgotten_with_a_failed_group(
    version: int,
) -> None:
    """Else the client sends it once more, and it is delivered twice."""
    node = Node()
    away(node, "reader", "t")
    writer = node.client("writer", version)
    writer.publish("t", b"stored", 2, 1)
    node.work()
    writer.hang_up()
    writer = node.client("writer", version)
    writer.publish("t", b"new", 1, 2)
    writer.publish("t", b"stored", 2, 1, dup=True)
    node.fail_commit()
    answers = [one for one in writer.take_all() if one.type == p.PUBREC]
    assert all(one.reason_code == 0 for one in answers)
    retry(node)
    if version == 4:
        writer = node.client("writer", version)
        writer.publish("t", b"stored", 2, 1, dup=True)
        node.work()
    assert node.client("reader").payloads() == [b"stored"]


def test_a_repeat_of_a_qos_2_message_is_confirmed_only_when_the_message_is_durable() -> None:
    node = Node()
    away(node, "reader", "t")
    writer = node.client("writer")
    writer.publish("t", b"1", 2, 1)
    node.loop.run_until_idle()
    again = Peer(node, "writer", 5)
    again.connect()
    again.publish("t", b"1", 2, 1, dup=True)
    node.fail_commit()
    retry(node)
    answers = again.take_all()
    assert answers[0].type == p.CONNACK, "nothing comes before CONNACK"
    assert [one.reason_code for one in answers[1:]] == [0x80]


def test_nothing_is_said_before_connack_though_a_commit_failed() -> None:
    node = Node()
    away(node, "reader", "t")
    writer = Peer(node, "writer", 5)
    writer.connect()
    writer.publish("t", b"1", 1, 1)
    node.fail_commit()
    retry(node)
    assert names(writer.take_all()) == [("CONNACK", 0), ("PUBACK", 1)]


def test_a_client_which_was_not_read_is_read_again_after_a_failure() -> None:
    node = Node(Settings(limits=Limits(unconfirmed_bytes_per_client_max=100)))
    away(node, "reader", "t")
    writer = node.client("writer")
    writer.publish("t", bytes(200), 1, 1)
    writer.publish("t", b"waits in the socket", 1, 2)
    node.fail_commit()
    retry(node)
    assert names(writer.take_all()) == [("PUBACK", 1), ("PUBACK", 2)]
    assert node.client("reader").payloads() == [b"waits in the socket"]


def test_a_subscription_waits_for_the_store_and_then_survives() -> None:
    node = Node()
    reader = node.client("reader")
    reader.transport.send(p.subscribe(5, [("t", 1)]))
    node.fail_commit()
    assert reader.take_all() == []
    retry(node)
    assert names(reader.take_all()) == [("SUBACK", 5)]
    node.crash()
    writer = node.client("writer")
    writer.publish("t", b"1", 1, 1)
    node.work()
    assert node.client("reader").payloads() == [b"1"]


def test_retained_messages_of_a_subscription_come_though_its_first_commit_failed() -> None:
    node = Node()
    writer = node.client("writer")
    writer.publish("t", b"kept", 1, 1, retain=True)
    node.work()
    reader = node.client("reader")
    reader.transport.send(p.subscribe(5, [("t", 1)]))
    node.fail_commit()
    retry(node)
    assert names(reader.take_all()) == [("SUBACK", 5), ("PUBLISH", 1)]


def test_a_refused_retained_message_leaves_the_one_before_it() -> None:
    node = Node()
    writer = node.client("writer")
    for packet_id, payload in ((1, b"first"), (2, b"second")):
        writer.publish("t", payload, 1, packet_id, retain=True)
        if packet_id == 1:
            node.work()
    writer.publish("other", b"new", 1, 3, retain=True)
    node.fail_commit()
    retry(node)
    reader = node.client("reader", expiry_s=0)
    reader.subscribe("#")
    node.work()
    assert reader.payloads() == [b"first"]


def test_a_will_is_published_once_though_commits_fail() -> None:
    """Nobody else could publish it again."""
    node = Node()
    away(node, "reader", "wills")
    watcher = node.client("watcher", expiry_s=0)
    watcher.subscribe("wills")
    dying = node.client("dying", will=Will("wills", b"gone", qos=1, retain=True))
    dying.transport.hang_up()
    node.fail_commit()
    node.fail_commit()
    retry(node)
    retry(node)
    assert node.client("reader").payloads() == [b"gone"]
    assert watcher.payloads() == [b"gone"]
    assert not node.store.tables[api.WILLS]
    assert len(node.store.tables[api.RETAINED]) == 1


def test_messages_handed_on_by_an_ended_session_are_not_lost_with_a_failed_commit() -> None:
    node = Node()
    away(node, "first", "$share/g/t", qos=1)
    writer = node.client("writer")
    for number in range(1, 4):
        writer.publish("t", b"%d" % number, 1, number)
    node.work()
    away(node, "second", "$share/g/t", qos=1)
    Peer(node, "first", 5).connect(clean=True)
    node.fail_commit()
    retry(node)
    assert node.client("second").payloads() == [b"1", b"2", b"3"]


def test_messages_being_stored_for_a_session_which_ends_go_to_the_other_member() -> None:
    node = Node()
    away(node, "first", "$share/g/t", qos=1)
    writer = node.client("writer")
    writer.publish("t", b"sealed", 1, 1)
    node.loop.run_until_idle()
    writer.publish("t", b"collected", 1, 2)
    peer = Peer(node, "second", 5)
    peer.connect()
    peer.transport.send(p.subscribe(5, [("$share/g/t", 1)]))
    Peer(node, "first", 5).connect(clean=True)
    node.work()
    assert sorted(peer.payloads()) == [b"collected", b"sealed"]


def test_a_session_which_ends_before_its_messages_are_stored_leaves_nothing_in_the_store() -> None:
    node = Node()
    away(node, "reader", "t")
    away(node, "other", "u")
    writer = node.client("writer")
    writer.publish("t", b"1", 1, 1)
    writer.publish("u", b"2", 1, 2)
    Peer(node, "reader", 5).connect(clean=True, expiry_s=0)
    node.work()
    assert node.client("other").payloads() == [b"2"]
    other = node.session("other").connection
    assert other is not None
    other.data_received(p.acknowledge(p.PUBACK, 1))
    node.work()
    for table in (api.QUEUE, api.MESSAGES, api.REFERENCES):
        assert not node.store.tables[table], api.TABLE_NAMES[table]


def test_settlements_are_kept_over_failed_commits() -> None:
    node = Node()
    reader = node.client("reader")
    reader.subscribe("t", qos=1)
    writer = node.client("writer")
    for number in (1, 2):
        writer.publish("t", b"%d" % number, 1, number)
    node.work()
    reader.acknowledge(p.PUBACK, 1)
    node.fail_commit()
    retry(node)
    node.crash()
    assert node.client("reader").payloads() == [b"2"]
