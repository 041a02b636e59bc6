"""Deliveries of queues: found by their packet ids, and the numbers which stand in their frames."""

from __future__ import annotations

import random

import pytest

from queuelake.broker.deliveries import Delivery, Inflight
from queuelake.broker.packet_ids import DELIVERY_ID_MIN, DELIVERY_IDS
from queuelake.queue_settings import Performance, QueueSettings
from queuelake.settings import Mqtt, Queues, Settings
from tests.harness import packets as p
from tests.simulation.node import Node, Peer


def consumer_of(node: Node) -> Peer:
    peer = node.client("consumer")
    peer.transport.send(p.subscribe(1, [("$queue/tasks", 1)]))
    node.work()
    peer.take_all()
    return peer


def one_delivery() -> Delivery:
    node = Node()
    consumer_of(node)
    publisher = node.client("publisher")
    publisher.transport.send(p.publish("$queue/tasks", b"1", qos=1, packet_id=1))
    node.work()
    deliveries = node.session("consumer").deliveries
    assert deliveries is not None
    found = deliveries.inflight.get(DELIVERY_ID_MIN)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(10))
def test_deliveries_are_found_by_their_packet_ids_in_any_order_of_answers(seed: int) -> None:
    dice = random.Random(seed)
    model = one_delivery()
    inflight = Inflight()
    out: dict[int, Delivery] = {}
    number = DELIVERY_IDS - 50  # ids begin anew on the way
    for _ in range(3_000):
        packet_id = DELIVERY_ID_MIN + number % DELIVERY_IDS
        assert inflight.get(packet_id) is out.get(packet_id)
        if packet_id not in out:
            one = Delivery(model.consumer, model.record, 0, 1, 1)
            inflight.put(packet_id, one)
            out[packet_id] = one
        number += 1
        while len(out) > dice.choice([1, 5, 40, 400]):
            answered = dice.choice([next(iter(out)), dice.choice(list(out))])
            assert inflight.get(answered) is out[answered]
            inflight.remove(out.pop(answered))
            assert inflight.get(answered) is None
        assert len(inflight) == len(out)
        assert bool(inflight) == bool(out)
    for packet_id, one in out.items():
        assert inflight.get(packet_id) is one


def test_all_packet_ids_can_be_out() -> None:
    model = one_delivery()
    inflight = Inflight()
    for number in range(DELIVERY_IDS):
        one = Delivery(model.consumer, model.record, 0, number, 1)
        inflight.put(DELIVERY_ID_MIN + number, one)
    assert len(inflight) == DELIVERY_IDS
    for number in range(DELIVERY_IDS):
        found = inflight.get(DELIVERY_ID_MIN + number)
        assert found is not None
        assert found.attempt == number


def test_offsets_and_ids_go_on_behind_the_first_thousand() -> None:
    """The frames of a thousand messages share what they have in common."""
    own = QueueSettings(partitions=1, performance=Performance(prefetch=10_000))
    node = Node(Settings(mqtt=Mqtt(inflight_max=10_000), queues=Queues(defaults=own)))
    consumer = consumer_of(node)
    publisher = node.client("publisher")
    for number in range(1, 2_103):
        user = {"user_property": [("message-id", "mine")]} if number == 2_050 else None
        publisher.transport.send(
            p.publish("$queue/tasks", b"%d" % number, qos=1, packet_id=number, properties=user)
        )
    node.work()
    got = [one for one in consumer.take_all() if one.type == p.PUBLISH]
    assert [one.payload for one in got] == [b"%d" % number for number in range(1, 2_103)]
    for number, one in enumerate(got, 1):
        user_properties = dict(one.user_properties)
        assert user_properties["offset"] == str(number)
        message_id = "mine" if number == 2_050 else f"$queue/tasks:0:{number}"
        assert user_properties["message-id"] == message_id
