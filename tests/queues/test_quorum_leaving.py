"""Consumers of quorum queues which unsubscribe, and come back: on a simulated broker."""

from __future__ import annotations

import random

import pytest

from queuelake.broker.quorum.rows import seq_of
from tests.harness import packets as p
from tests.harness.packets import Packet
from tests.queues.node import QueueNode
from tests.simulation.node import Peer

QUORUM = {"type": "quorum"}
FAILED = 0x80


@pytest.fixture
def node() -> QueueNode:
    node = QueueNode()
    node.make("q", **QUORUM)
    return node


def subscribe(node: QueueNode, peer: Peer, mode: str = "puback") -> None:
    properties = [("user_property", ("ack-mode", mode))]
    peer.transport.send(p.subscribe(11, [("$queue/q", 1)], properties=properties))
    node.work()
    assert peer.take().reason_codes == [1]


def unsubscribe(node: QueueNode, peer: Peer) -> None:
    peer.transport.send(p.unsubscribe(12, ["$queue/q"]))
    node.work()


def acked(node: QueueNode, peer: Peer, packet: Packet) -> int:
    """Settled by a publish; its PUBACK may follow."""
    said = [("user_property", ("message-id", dict(packet.user_properties)["message-id"]))]
    peer.transport.send(p.publish("$queue/q/$ack", b"", qos=1, packet_id=77, properties=said))
    node.work()
    return next(one for one in peer.take_all() if one.type == p.PUBACK).reason_code


@pytest.mark.rule("Q10", "section 16")
def test_who_unsubscribes_and_comes_back_gets_what_comes_then(node: QueueNode) -> None:
    peer = node.consumer("q", None)
    for round_ in ("abc", "de", "fghi"):
        for payload in round_:
            node.publish("q", payload)
        assert node.settle_all(peer) == list(round_)
        unsubscribe(node, peer)
        assert peer.take().type == p.UNSUBACK
        subscribe(node, peer)
    host = node.broker.queues.quorum.hosts["q"]
    assert list(host.subscribers) == list(host.machine.consumers)


def test_who_comes_back_when_the_queue_sleeps_wakes_it(node: QueueNode) -> None:
    peer = node.consumer("q", None)
    unsubscribe(node, peer)
    assert peer.take().type == p.UNSUBACK
    node.after(40)
    assert "q" not in node.broker.queues.quorum.hosts
    subscribe(node, peer)
    node.publish("q", "x")
    assert node.settle_all(peer) == ["x"]


@pytest.mark.rule("Q13")
def test_what_is_on_its_way_to_who_unsubscribes_goes_to_another(node: QueueNode) -> None:
    first = node.consumer("q", None, priority="1")
    second = node.consumer("q", None)
    producer = node.client("hurry")
    producer.transport.send(p.publish("$queue/q", b"x", qos=1, packet_id=1))
    first.transport.send(p.unsubscribe(12, ["$queue/q"]))
    node.work()
    assert [one.type for one in first.take_all()] == [p.UNSUBACK]
    (delivery,) = second.take_all()
    assert delivery.payload == b"x"
    assert "x-delivery-count" not in dict(delivery.user_properties)


@pytest.mark.parametrize("reason", [0, FAILED])
def test_a_late_puback_means_the_delivery_it_answers_and_no_later_one(
    node: QueueNode, reason: int
) -> None:
    peer = node.consumer("q", None)
    node.publish("q", "old")
    (old,) = peer.take_all()
    assert acked(node, peer, old) == 0
    unsubscribe(node, peer)
    assert peer.take().type == p.UNSUBACK
    subscribe(node, peer)
    node.publish("q", "new")
    (new,) = peer.take_all()
    peer.transport.send(p.acknowledge(p.PUBACK, old.packet_id, reason))
    node.work()
    assert node.broker.queues.quorum.hosts["q"].machine.held_count == 1
    assert acked(node, peer, new) == 0


def test_after_a_failed_commit_a_late_puback_settles_nothing_else(node: QueueNode) -> None:
    """All it held comes again, under other numbers."""
    peer = node.consumer("q", None)
    for payload in "abc":
        node.publish("q", payload)
    first, second, _ = peer.take_all()
    peer.acknowledge(p.PUBACK, first.packet_id)
    node.work()
    node.store.fail_commits = 1
    node.publish("q", "lost", expected=FAILED)
    node.after(2)
    peer.acknowledge(p.PUBACK, second.packet_id)
    node.work()
    again = peer.take_all()
    assert [one.payload for one in again] == [b"b", b"c"]
    assert [acked(node, peer, one) for one in again] == [0, 0]
    assert node.broker.queues.quorum.hosts["q"].machine.total == 0


class Worker:
    """A client which comes and goes, and knows what it has not settled."""

    def __init__(self, node: QueueNode, name: str) -> None:
        self._node = node
        self._name = name
        self.peer: Peer | None = None
        self.held: dict[str, Packet] = {}

    def act(self, dice: random.Random, done: set[str]) -> None:
        """One thing; nothing is answered yet."""
        if self.peer is None:
            self.peer = self._node.client(self._name, expiry_s=0)
            return
        step = dice.random()
        send = self.peer.transport.send
        if step < 0.5 and self.held:
            payload = dice.choice(list(self.held))
            delivery = self.held.pop(payload)
            verdict = dice.choice(["$ack", "$ack", "$nack"])
            if verdict == "$ack":
                done.add(payload)
            said = [("user_property", ("message-id", dict(delivery.user_properties)["message-id"]))]
            send(p.publish(f"$queue/q/{verdict}", b"", qos=1, packet_id=77, properties=said))
        elif step < 0.75:
            terms = [("user_property", ("prefetch", dice.choice(["1", "3", "20"])))]
            send(p.subscribe(11, [("$queue/q", 1)], properties=terms))
        elif step < 0.95:
            send(p.unsubscribe(12, ["$queue/q"]))
        else:
            self.peer.hang_up()
            self.peer = None
            self.held = {}

    def read(self, done: set[str]) -> None:
        for packet in self.peer.take_all() if self.peer is not None else []:
            if packet.type == p.PUBLISH:
                assert packet.payload.decode() not in done
                self.held[packet.payload.decode()] = packet
            elif packet.type == p.PUBACK:
                assert packet.reason_code == 0


@pytest.mark.rule("Q13", "section 18")
@pytest.mark.parametrize("seed", range(10))
def test_who_comes_and_goes_holds_what_the_queue_says_it_holds(seed: int) -> None:
    """Subscribe, unsubscribe, settle, leave and publish, several of them in one commit."""
    dice = random.Random(seed)
    node = QueueNode()
    node.make("q", **QUORUM, delivery_limit=-1, single_active_consumer=dice.random() < 0.3)
    workers = {name: Worker(node, name) for name in ("w1", "w2", "w3")}
    producer = node.client("producer")
    sent, done = 0, set[str]()
    for _ in range(120):
        for _ in range(dice.randrange(1, 4)):
            if dice.random() < 0.4:
                sent += 1
                packet = p.publish("$queue/q", str(sent), qos=1, packet_id=sent)
                producer.transport.send(packet)
            else:
                workers[dice.choice(list(workers))].act(dice, done)
        node.work()
        for worker in workers.values():
            worker.read(done)
        if dice.random() < 0.1:
            node.after(40)  # a queue nobody consumes sleeps by then
        host = node.broker.queues.quorum.find("q")
        assert host is not None
        held: dict[str, set[int]] = {name: set() for name in workers}
        for consumer in host.machine.consumers.values():
            held[consumer.pid.partition("/")[2]] = {
                seq_of(one.index) for one in consumer.held.values()
            }
        assert held == {name: {int(one) for one in w.held} for name, w in workers.items()}
        assert host.machine.total == sent - len(done)
