"""Mistakes which a reviewer found: message queues, and answers about queues in general."""

from __future__ import annotations

from queuelake.mq_settings import MqSettings, config_with
from queuelake.settings import AclRule, Settings
from tests.harness import packets as p
from tests.simulation.node import Node

NOT_AUTHORIZED = 0x87


def test_a_v3_publisher_is_answered_after_the_commit_though_a_queue_was_full() -> None:
    node = Node()
    limits = {"limits": {"max_queue_depth": 1}, "overflow": "reject"}
    node.broker.queues.create("full", {"topics": ["t/#"], **limits})
    node.work()
    node.client("sub").subscribe("t/#", qos=1)
    publisher = node.client("pub", version=4)
    publisher.publish("t/a", b"one", 1, 1)
    node.work()
    publisher.transport.received.clear()
    publisher.publish("t/a", b"two", 1, 2)
    node.loop.run_until_idle()
    assert bytes(publisher.transport.received) == b"", "its commit is not over"
    node.store.fail_commits = 1
    node.work()
    assert bytes(publisher.transport.received) == b""


def test_an_answer_to_a_v3_publisher_has_no_words() -> None:
    node = Node()
    publisher = node.client("pub", version=4)
    publisher.publish("$ECQ/w/owner", b"x", 1, 3)
    node.work()
    assert bytes(publisher.transport.received) == b"\x40\x02\x00\x03"


def test_no_address_of_a_queue_leads_around_the_acl() -> None:
    rules = [
        AclRule("deny", ["secret/#"], action="subscribe", clientid="eve"),
        AclRule("allow", ["$queue/#", "$q/#", "#"]),
    ]
    node = Node(Settings(acl=rules))
    node.client("alice").subscribe("$q/secret/#", qos=1)
    eve = node.client("eve")
    for topic_filter in ("secret/#", "$q/secret/#", "$queue//secret/#"):
        eve.transport.send(p.subscribe(5, [(topic_filter, 1)]))
        node.work()
        assert list(eve.take().reason_codes) == [NOT_AUTHORIZED], topic_filter


def test_many_subscriptions_may_wait_for_queues_which_are_made_for_them() -> None:
    node = Node()
    queues = node.broker.message_queues
    off = {"auto_create": {"lastvalue": {"enable": False}}, "max_queue_count": 0}
    queues.configure(config_with(queues.config, off))
    client = node.client("many")
    for number in range(400):
        client.subscribe(f"$q/dev/{number}/#", qos=1)
    node.work()
    assert queues.names() == []
    queues.configure(config_with(queues.config, {"auto_create": {"lastvalue": {"enable": True}}}))
    assert len(queues.names()) == 400


def test_a_refusal_tells_nothing_about_other_queues() -> None:
    node = Node()
    node.broker.message_queues.create(MqSettings("/t/#", "t/#", False, "", bytes_max=10))
    node.broker.queues.problem = "queue '$queue/payroll' holds 5 of 5 messages"
    bob = node.client("bob")
    bob.publish("t/x", b"x" * 100, 1, 1)
    node.work()
    assert b"payroll" not in bytes(bob.transport.received)


def test_a_queue_without_a_name_is_reached_by_its_derived_name_once_it_is_there() -> None:
    node = Node()
    client = node.client("reader")
    client.transport.send(p.subscribe(5, [("$queue//t/#", 1)]))
    node.work()
    assert client.take().reason_codes[0] >= 0x80, "so far it is no name of any queue"
    node.broker.message_queues.create(MqSettings("/t/#", "t/#", False, ""))
    client.subscribe("$queue//t/#", qos=1)
    node.client("pub").publish("t/x", b"1", 1, 1)
    node.work()
    assert client.payloads() == [b"1"]
