"""Queues when something goes wrong between two steps: found by review, each failed before."""

from __future__ import annotations

from typing import Any

from queuelake.queue_settings import Performance, QueueSettings
from queuelake.settings import Queues, Settings
from tests.harness import packets as p
from tests.simulation.node import RETRY_MS, Node, Peer


def settings(**defaults: Any) -> Settings:
    return Settings(queues=Queues(defaults=QueueSettings(**defaults)))


def send(peer: Peer, topic: str, payload: bytes = b"", packet_id: int = 1, **user: str) -> None:
    """A publish at QoS 1; nothing is done with it until the node works."""
    pairs = [(key.replace("_", "-"), value) for key, value in user.items()]
    properties: p.Properties = {"user_property": pairs} if pairs else None
    peer.transport.send(
        p.publish(topic, payload, qos=1, packet_id=packet_id, properties=properties)
    )


def join(node: Node, peer: Peer, topic: str, qos: int = 1, **user: str) -> int:
    """Subscribe; returns the reason code."""
    pairs = [(key.replace("_", "-"), value) for key, value in user.items()]
    properties: p.Properties = {"user_property": pairs} if pairs else None
    peer.transport.send(p.subscribe(999, [(topic, qos)], properties=properties))
    node.work()
    answer = peer.take()
    assert answer.type == p.SUBACK
    return answer.reason_codes[0]


def codes(peer: Peer) -> list[int]:
    return [one.reason_code for one in peer.take_all() if one.type == p.PUBACK]


def message_id(packet: p.Packet) -> str:
    return dict(packet.user_properties)["message-id"]


def depth(node: Node, name: str) -> int:
    host = node.broker.queues.find(name)
    assert host is not None
    return host.machine.depth()


def test_a_queue_which_is_part_of_two_failed_groups_works_again() -> None:
    node = Node(settings(partitions=1))
    consumer, publisher = node.client("consumer"), node.client("publisher")
    join(node, consumer, "$queue/tasks")
    send(publisher, "$queue/tasks", b"1")
    node.work()
    publisher.take_all()
    node.store.fail_commits = 1
    send(publisher, "$queue/tasks", b"2")
    node.loop.run_until_idle()
    assert node.committer.is_busy()
    send(publisher, "$queue/tasks", b"3")
    node.work()
    node.pass_time(RETRY_MS)
    publisher.take_all()
    send(publisher, "$queue/tasks", b"4")
    node.work()
    assert codes(publisher) == [0]
    assert consumer.payloads() == [b"1", b"1", b"4"]


def test_a_dead_letter_which_a_seal_makes_is_in_that_commit() -> None:
    """Its queue wrote its part of the group before the message was found to have expired."""
    node = Node(settings(partitions=1, expire_to_dlq=True, performance=Performance(prefetch=3)))
    consumer, publisher = node.client("consumer"), node.client("publisher")
    join(node, consumer, "$queue/tasks")
    for number in range(3):
        send(publisher, "$queue/tasks", b"%d" % number)
    short: p.Properties = {"message_expiry_interval": 1}
    publisher.transport.send(
        p.publish("$queue/tasks", b"short", qos=1, packet_id=9, properties=short)
    )
    send(publisher, "$queue/dlq/tasks", b"made")
    node.work()
    node.pass_time(990)
    held = [one for one in consumer.take_all() if one.type == p.PUBLISH]
    node.loop.now_ns += 20_000_000  # over, and nobody has looked yet
    send(publisher, "$queue/dlq/tasks", b"first in the group")
    send(consumer, "$queue/tasks/$ack", message_id=message_id(held[0]))
    node.work()
    node.crash()
    assert depth(node, "tasks") == 2
    assert depth(node, "dlq/tasks") == 3
