"""Fan-out from the trigger to the PUBACK: who gets what, when, and how often (S1-S23)."""

from __future__ import annotations

import pytest

from tests.harness import packets as p
from tests.simulation.node import RETRY_MS
from tests.unit.fanout_node import FanoutNode


def test_online_vehicles_get_it_once() -> None:
    """T1."""
    node = FanoutNode()
    vehicles = [node.vehicle(f"V{number}") for number in range(10)]
    node.data("d", b"payload")
    node.trigger([one.client_id for one in vehicles], "task_a_1", "d")
    for one in vehicles:
        (packet,) = node.take(one)
        assert packet.topic == f"agent/{one.client_id}/proxy/request/task_a_1"
        assert (packet.payload, packet.qos, packet.flags & 9) == (b"payload", 1, 0)
        node.acknowledge(one, packet)
    assert node.fanout.status().remaining_messages == 0
    node.check()


@pytest.mark.parametrize("topic", ["online", "heartbeat"])
def test_vehicles_which_come_later_get_it(topic: str) -> None:
    """T2, T3."""
    node = FanoutNode()
    node.vehicle("V").hang_up()
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    assert node.session("V").unsettled == 0
    late = node.client("V")
    node.beat(late, topic)
    assert node.drain(late) == [("task_a_1", b"1")]


def test_the_second_comes_after_the_puback_of_the_first() -> None:
    """T6, S12."""
    node = FanoutNode()
    vehicle = node.vehicle("V")
    node.data("d", b"1")
    node.trigger(["V"], "task_a_2", "d")
    node.trigger(["V"], "task_a_1", "d")
    (first,) = node.take(vehicle)
    node.beat(vehicle)
    assert node.take(vehicle) == []
    assert first.topic.endswith("/task_a_2")
    node.acknowledge(vehicle, first)
    assert node.requests(vehicle) == ["task_a_1"]


@pytest.mark.parametrize("version", [4, 5])
def test_a_resumed_session_sends_it_again_and_nobody_else_does(version: int) -> None:
    """T4, T5, S16, S22."""
    node = FanoutNode()
    vehicle = node.vehicle("V", version=version)
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    node.trigger(["V"], "task_a_2", "d")
    (first,) = node.take(vehicle)
    vehicle.hang_up()
    again = node.client("V", version=version)
    (packet,) = node.take(again)
    assert packet.flags & 8
    assert packet.topic == first.topic
    node.beat(again)
    node.beat(again, "online")
    node.trigger(["V"], "task_a_3", "d")
    assert node.take(again) == []
    node.acknowledge(again, packet)
    assert node.drain(again) == [("task_a_2", b"1"), ("task_a_3", b"1")]
    node.check()


def test_a_crash_with_messages_in_flight_repeats_them_once() -> None:
    """S19: the row is the one the message was made from."""
    node = FanoutNode()
    vehicle = node.vehicle("V")
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    node.trigger(["V"], "task_b_1", "d")
    node.trigger(["V"], "task_a_1", "d")
    (first,) = node.take(vehicle)
    node.acknowledge(vehicle, first)
    (second,) = node.take(vehicle)
    assert second.topic.endswith("/task_b_1")
    node.crash()
    again = node.client("V")
    (packet,) = node.take(again)
    assert packet.topic == second.topic
    node.acknowledge(again, packet)
    assert node.drain(again) == [("task_a_1", b"1")]
    node.check()


def test_connected_but_not_subscribed_gets_nothing_until_it_subscribes() -> None:
    """T11, S13."""
    node = FanoutNode()
    vehicle = node.client("V")
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    node.beat(vehicle)
    assert node.take(vehicle) == []
    assert node.fanout.dispatcher.awake == {}
    node.subscribe(vehicle)
    assert node.drain(vehicle) == [("task_a_1", b"1")]


@pytest.mark.parametrize(
    ("topic_filter", "qos", "is_sent"),
    [
        ("agent/V/#", 1, True),
        ("#", 2, True),
        ("agent/+/proxy/request/+", 1, True),
        ("agent/V/proxy/request/#", 1, True),
        ("agent/V/proxy/request/+", 0, False),
        ("agent/V/proxy/request/task_a_1", 1, False),
        ("agent/W/proxy/request/+", 1, False),
        ("$share/g/agent/V/proxy/request/+", 1, False),
    ],
)
def test_a_wider_filter_does_as_well(topic_filter: str, qos: int, is_sent: bool) -> None:
    node = FanoutNode()
    vehicle = node.client("V")
    vehicle.subscribe(topic_filter, qos=qos)
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    assert node.requests(vehicle) == (["task_a_1"] if is_sent else [])


def test_the_identifier_of_the_subscription_comes_with_it() -> None:
    node = FanoutNode()
    vehicle = node.client("V")
    items: list[p.Subscription] = [("agent/V/proxy/request/+", 1)]
    packet = p.subscribe(1, items, properties={"subscription_identifier": 7})
    vehicle.transport.send(packet)
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    (found,) = node.take(vehicle)
    assert found.properties["subscription_identifier"] == [7]


def test_a_heartbeat_of_somebody_else_means_nothing() -> None:
    """S17; it goes its ordinary way."""
    node = FanoutNode()
    other = node.client("other")
    other.subscribe("ecp/#", qos=0)
    vehicle = node.vehicle("V")
    node.trigger(["V"], "task_a_1", "d")
    node.fanout.payloads.put("d", b"1", 0)  # nobody hears of it
    node.fanout.payloads.stored()
    node.fanout.dispatcher.left("V")
    node.work()
    node.beat(other, vin="V")
    assert node.take(vehicle) == []
    assert [one.topic for one in other.take_all()] == ["ecp/V/heartbeat"]
    node.beat(vehicle)
    assert len(node.take(vehicle)) == 1


def test_a_row_without_data_is_passed_over_until_its_data_comes() -> None:
    """T12, S20, S6."""
    node = FanoutNode()
    vehicle = node.vehicle("V")
    node.data("there", b"2")
    node.trigger(["V"], "task_a_1", "missing")
    node.trigger(["V"], "task_a_2", "there")
    assert node.drain(vehicle) == [("task_a_2", b"2")]
    assert node.pending("V") == ["task_a_1"]
    assert node.fanout.metrics.missing_data > 0
    node.data("missing", b"1")
    assert node.drain(vehicle) == [("task_a_1", b"1")]
    node.check()


def test_the_prefix_can_be_another() -> None:
    """T10, defect 1."""
    node = FanoutNode(topic_prefix="cars/x-{VIN}/cmd")
    vehicle = node.vehicle("V")
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    node.trigger(["V"], "task_a_2", "d")
    (packet,) = node.take(vehicle)
    assert packet.topic == "cars/x-V/cmd/task_a_1"
    node.acknowledge(vehicle, packet)
    assert node.drain(vehicle) == [("task_a_2", b"1")]


def test_lost_knowledge_of_what_is_in_flight_stops_nobody() -> None:
    """T16, S23."""
    node = FanoutNode()
    vehicle = node.vehicle("V")
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    node.trigger(["V"], "task_a_2", "d")
    (packet,) = node.take(vehicle)
    node.fanout.dispatcher.left("V")
    node.beat(vehicle)
    assert node.take(vehicle) == []
    node.acknowledge(vehicle, packet)
    assert node.drain(vehicle) == [("task_a_2", b"1")]
    node.check()


def test_a_takeover_continues_with_what_was_in_flight() -> None:
    """T17."""
    node = FanoutNode()
    old = node.vehicle("V")
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    node.trigger(["V"], "task_a_2", "d")
    assert node.requests(old) == ["task_a_1"]
    new = node.client("V")
    assert old.transport.closed_by_broker()
    assert node.drain(new) == [("task_a_1", b"1"), ("task_a_2", b"1")]
    node.check()


def test_a_session_which_ended_is_forgotten_with_what_it_held() -> None:
    node = FanoutNode()
    vehicle = node.vehicle("V", expiry_s=0)
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    assert node.requests(vehicle) == ["task_a_1"]
    vehicle.hang_up()
    assert node.drain(node.vehicle("V", clean=True)) == [("task_a_1", b"1")]


def test_what_is_larger_than_the_vehicle_takes_counts_as_rejected() -> None:
    node = FanoutNode()
    vehicle = node.client("V")
    node.subscribe(vehicle)
    node.session("V").packet_size_max = 100
    node.data("large", b"x" * 200)
    node.data("small", b"1")
    node.trigger(["V"], "task_a_1", "large")
    node.trigger(["V"], "task_a_2", "small")
    assert node.drain(vehicle) == [("task_a_2", b"1")]
    assert node.fanout.request("task_a_1").rejected == 1


@pytest.mark.parametrize("policy", ["done", "retry", "dlq"])
def test_what_a_rejection_means_can_be_said(policy: str) -> None:
    """S21."""
    node = FanoutNode(on_reject=policy)
    vehicle = node.vehicle("V")
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    node.trigger(["V"], "task_a_2", "d")
    seen = []
    for _ in range(10):
        for packet in node.take(vehicle):
            seen.append(packet.topic.rpartition("/")[2])
            is_first = packet.topic.endswith("_1")
            node.acknowledge(vehicle, packet, 0x83 if is_first else 0)
        node.pass_time(8_500)
    tries = 5 if policy == "retry" else 1
    assert seen == ["task_a_1"] * tries + ["task_a_2"]
    assert node.fanout.request("task_a_1").rejected == 1
    assert node.fanout.request("task_a_2").acked == 1
    dead = node.broker.queues.find("dlq/sdv-fanout")
    assert (dead.machine.depth() if dead is not None else 0) == (policy == "dlq")
    node.check()


def test_one_which_acknowledges_nothing_is_disconnected_and_gets_it_again() -> None:
    """S24a."""
    node = FanoutNode(ack_timeout="5s")
    vehicle = node.vehicle("V")
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    node.pass_time(4_000)
    assert not vehicle.transport.closed_by_broker()
    node.pass_time(3_000)
    assert vehicle.transport.closed_by_broker()
    (packet,) = node.take(node.client("V"))
    assert packet.flags & 8


def test_a_failed_commit_of_a_delivery_is_made_good() -> None:
    node = FanoutNode()
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    vehicle = node.client("V")
    vehicle.transport.send(p.subscribe(1, [("agent/V/proxy/request/+", 1)]))
    node.work()
    node.store.fail_commits = 0
    (packet,) = node.take(vehicle)
    node.trigger(["V"], "task_a_2", "d")
    node.store.fail_commits = 1
    vehicle.acknowledge(p.PUBACK, packet.packet_id)
    node.work()
    assert node.take(vehicle) == []
    node.pass_time(RETRY_MS)
    assert node.drain(vehicle) == [("task_a_2", b"1")]
    assert node.fanout.status().remaining_messages == 0
    node.check()
