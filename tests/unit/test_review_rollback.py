"""After a failed commit: what somebody can send again is refused, everything else is made good."""

from __future__ import annotations

from queuelake.settings import Limits, Settings
from queuelake.storage import api
from tests.harness import packets as p
from tests.harness.packets import Will
from tests.simulation.node import RETRY_MS, Node

SHARED = "$share/group/work"


def test_a_will_is_stored_after_a_failed_commit() -> None:
    node = Node()
    keeper = node.client("keeper")
    keeper.subscribe("wills", qos=1)
    keeper.leave()
    mortal = node.client("mortal", will=Will("wills", b"gone", qos=1, retain=True))
    node.store.fail_commits = 2
    mortal.hang_up()
    node.pass_time(RETRY_MS)
    node.pass_time(RETRY_MS)
    node.crash()
    assert node.client("keeper").payloads() == [b"gone"]
    other = node.client("other")
    other.subscribe("wills")
    assert other.payloads() == [b"gone"]


def test_shared_messages_of_an_ended_session_survive_a_failed_commit() -> None:
    node = Node()
    leaver = node.client("leaver")
    leaver.subscribe(SHARED, qos=1)
    publisher = node.client("publisher")
    publisher.publish("work", b"1", 1, 1)
    node.work()
    assert publisher.take().reason_code == 0
    stayer = node.client("stayer")
    stayer.subscribe(SHARED, qos=1)
    node.store.fail_commits = 1
    leaver.transport.send(p.disconnect(0, {"session_expiry_interval": 0}))
    node.work()
    node.pass_time(RETRY_MS)
    assert stayer.payloads() == [b"1"]


def test_shared_messages_of_a_session_which_ends_while_they_are_stored_are_handed_on() -> None:
    node = Node()
    members = [node.client("one"), node.client("two")]
    for member in members:
        member.subscribe(SHARED, qos=1)
    publisher = node.client("publisher")
    for number in (1, 2):
        publisher.publish("work", b"%d" % number, 1, number)
    node.loop.run_until_idle()
    assert node.committer.is_busy()
    members[0].transport.send(p.disconnect(0, {"session_expiry_interval": 0}))
    node.work()
    assert [one.reason_code for one in publisher.take_all()] == [0, 0]
    assert sorted(members[1].payloads()) == [b"1", b"2"]


def test_retained_messages_for_a_new_subscription_survive_a_failed_commit() -> None:
    node = Node()
    publisher = node.client("publisher")
    publisher.publish("kept", b"1", 1, 1, retain=True)
    node.work()
    keeper = node.client("keeper")
    keeper.transport.send(p.subscribe(1, [("kept", 1)]))
    node.fail_commit()
    assert keeper.take_all() == []
    node.pass_time(RETRY_MS)
    assert [one.type for one in keeper.take_all()] == [p.SUBACK, p.PUBLISH]


def test_a_publisher_which_waited_for_the_store_reads_on_after_a_failed_commit() -> None:
    node = Node(Settings(limits=Limits(unconfirmed_bytes_per_client_max=10)))
    keeper = node.client("keeper")
    keeper.subscribe("work", qos=1)
    publisher = node.client("publisher")
    publisher.publish("work", bytes(100), 1, 1)
    node.fail_commit()
    node.pass_time(RETRY_MS)
    publisher.publish("work", b"again", 1, 2)
    node.work()
    assert [one.reason_code for one in publisher.take_all()] == [0x80, 0]
    assert keeper.payloads() == [b"again"]


def test_a_repeated_qos_2_publish_is_not_refused_by_a_commit_it_does_not_need() -> None:
    node = Node()
    keeper = node.client("keeper")
    keeper.subscribe("work", qos=2)
    publisher = node.client("publisher")
    publisher.publish("work", b"1", 2, 1)
    node.work()
    assert publisher.take().reason_code == 0
    publisher.publish("work", b"2", 1, 2)
    publisher.publish("work", b"1", 2, 1, dup=True)
    node.fail_commit()
    node.pass_time(RETRY_MS)
    codes = {(one.type, one.reason_code) for one in publisher.take_all()}
    assert codes == {(p.PUBACK, 0x80), (p.PUBREC, 0)}


def test_a_message_only_an_ended_session_would_get_takes_no_space() -> None:
    node = Node()
    leaver = node.client("leaver")
    leaver.subscribe("work", qos=1)
    publisher = node.client("publisher")
    publisher.publish("work", b"1", 1, 1)
    leaver.transport.send(p.disconnect(0, {"session_expiry_interval": 0}))
    node.work()
    assert publisher.take().reason_code == 0
    assert node.store.tables[api.MESSAGES] == {}


def test_what_cannot_be_laid_out_is_refused_and_stops_nobody_else() -> None:
    node = Node(Settings(limits=Limits(subscriptions_per_client_max=0)))
    keeper = node.client("keeper")
    # More subscription identifiers than a queue row can hold, all for one message.
    levels = 14
    for number in range(14_000):
        parts = ["+" if number >> level & 1 else "x" for level in range(levels)]
        properties = {"subscription_identifier": 268_000_000}
        packet = p.subscribe(1, [("/".join(parts), 1)], properties=properties)
        keeper.transport.send(packet)
    keeper.transport.send(p.subscribe(1, [("other", 1)]))
    node.work()
    keeper.take_all()
    publisher = node.client("publisher")
    publisher.publish("/".join("x" * levels), b"poison", 1, 1)
    node.work()
    assert publisher.take().reason_code == 0x80
    node.pass_time(RETRY_MS)
    publisher.publish("other", b"fine", 1, 2)
    node.work()
    assert publisher.take().reason_code == 0
    assert keeper.payloads() == [b"fine"]
