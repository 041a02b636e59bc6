"""Corners of the contract: odd names, wrong values, many of everything, two roles in one client."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.harness import packets as p
from tests.harness.broker import Broker
from tests.queues import rest
from tests.queues.client import NO_MATCH, SUCCESS, UNSPECIFIED, key_of
from tests.queues.conftest import Connect, MakeQueue

WRONG_PROPERTIES = [
    {"delay-ms": "soon"},
    {"delay-ms": "-5"},
    {"delay-ms": str(10**30)},
    {"delay-ms": str(2**63 - 1)},
    {"deliver-at": "tomorrow"},
    {"deliver-at": str(2**63 - 1)},
    {"delay-ms": "1_000"},
    {"delay-ms": " 5 "},
    {"deliver-at": "+5"},
    {"priority": "high"},
    {"priority": "1_0"},
]


@pytest.mark.rule("section 3")
@pytest.mark.parametrize("wrong", WRONG_PROPERTIES, ids=str)
@pytest.mark.parametrize("qos", [1, 2])
def test_a_property_which_is_no_such_number_is_refused_and_nothing_is_stored(
    connect: Connect, queue: str, wrong: dict[str, str], qos: int
) -> None:
    client = connect()
    client.subscribe(queue)
    assert client.publish(queue, "wrong", qos=qos, user=wrong) >= UNSPECIFIED
    client.publish_each(queue, "right")
    assert client.receive().payload == "right"
    client.expect_silence(0.1)


@pytest.mark.rule("section 5")
@pytest.mark.parametrize("delay", ["soon", "-5", str(10**30)])
def test_a_nack_with_a_wrong_delay_is_refused_and_the_message_stays_held(
    connect: Connect, queue: str, delay: str
) -> None:
    client = connect()
    client.subscribe(queue)
    client.publish_each(queue, "x")
    delivery = client.receive()
    assert client.nack(delivery, delay_ms=delay) >= UNSPECIFIED
    client.expect_silence(0.2)
    assert client.ack(delivery) == SUCCESS


@pytest.mark.rule("D2a", "section 2")
@pytest.mark.parametrize(
    "name", ["a//b", "a/", "/a", "dlq", "responses", "$ack", "$config", "x/$other", "x/$y/z"]
)
def test_what_is_no_name_of_a_queue_is_refused_to_both_sides(connect: Connect, name: str) -> None:
    client = connect()
    assert client.publish(name, "x") >= UNSPECIFIED
    assert client.subscribe(name) >= UNSPECIFIED


@pytest.mark.rule("D10", "section 3")
def test_long_and_foreign_names_keys_and_ids_are_kept_exactly(connect: Connect, queue: str) -> None:
    client = connect()
    group, message_id, key = "Gruppe 東京/@+#", "ü" * 2000, "k" * 20_000
    assert client.subscribe(f"{queue}/Größe 7", group=group) == 1
    user = {"message-id": message_id, "partition-key": key, "note": "n" * 10_000}
    assert client.publish(f"{queue}/Größe 7", "x", user=user) == SUCCESS
    delivery = client.receive()
    assert (delivery.group, delivery.message_id) == (group, message_id)
    assert delivery.properties["note"] == "n" * 10_000
    assert client.ack(delivery) == SUCCESS


@pytest.mark.rule("D10")
def test_an_empty_consumer_group_counts_as_absent(connect: Connect, queue: str) -> None:
    client = connect("edges-1")
    client.subscribe(queue, group="")
    client.publish_each(queue, "x")
    assert client.receive().group == "edges"


@pytest.mark.rule("D11")
def test_a_thousand_partitions_are_shared_by_three(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(partitions=1000)
    clients = [connect(name) for name in ("w-a", "w-b", "w-c")]
    for client in clients:
        client.subscribe(queue)
    edges = {"w-a": (0, 333), "w-b": (334, 666), "w-c": (667, 999)}
    for partitions in edges.values():
        for partition in partitions:
            clients[0].publish_each(queue, "x", key=key_of(partition, 1000))
    for client in clients:
        received = sorted(one.partition for one in client.receive_and_ack(2))
        assert tuple(received) == edges[client.client_id]


@pytest.mark.rule("D20")
def test_a_backoff_beyond_all_numbers_is_the_maximum(
    connect: Connect, make_queue: MakeQueue
) -> None:
    policy = {"initial_backoff": "100ms", "backoff_multiplier": 1e308, "max_backoff": "200ms"}
    queue = make_queue(performance={"delivery_timeout": "100ms"}, retry_policy=policy)
    client = connect()
    client.subscribe(queue)
    client.publish_each(queue, "x")
    assert [one.count for one in client.receive_each(5)] == [1, 2, 3, 4, 5]


@pytest.mark.rule("D7")
def test_drop_head_finds_the_oldest_message_of_all_partitions(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=3, overflow="drop_head", limits={"max_queue_depth": 3})
    client = connect()
    for number, partition in enumerate((2, 1, 0, 1, 1)):
        client.publish_each(queue, str(number), key=key_of(partition, 3))
        time.sleep(0.002)  # a queue tells ages by milliseconds
    client.subscribe(queue)
    assert sorted(client.receive_payloads(3)) == ["2", "3", "4"]


@pytest.mark.rule("section 5")
def test_settlements_sent_at_once_are_answered_in_their_order(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1, performance={"prefetch": 60})
    client.subscribe(queue, group="g")
    client.publish_each(queue, *map(str, range(60)))
    held = client.receive_each(60)
    topics = [f"$queue/{queue}/${'ack' if number % 3 else 'reject'}" for number in range(60)]
    sent = [
        client.wire.send_publish(
            topic, qos=1, properties=[("user_property", ("message-id", delivery.message_id))]
        )
        for topic, delivery in zip(topics, held, strict=True)
    ]
    answers = [client.wire.expect(p.PUBACK) for _ in sent]
    assert [answer.packet_id for answer in answers] == sent
    assert {answer.reason_code for answer in answers} == {SUCCESS}


@pytest.mark.rule("section 1")
def test_a_topic_alias_may_stand_for_a_queue(connect: Connect, queue: str) -> None:
    client = connect()
    alias = {"topic_alias": 1}
    for packet_id, topic in enumerate((f"$queue/{queue}", "", ""), 1):
        client.wire.send(
            p.publish(topic, str(packet_id), qos=1, packet_id=packet_id, properties=alias)
        )
        assert client.wire.wait_for(p.PUBACK, packet_id).reason_code == SUCCESS
    client.subscribe(queue)
    assert sorted(client.receive_payloads(3)) == ["1", "2", "3"]


@pytest.mark.rule("D12")
def test_leaving_and_joining_again_gives_no_second_copy_of_what_is_held(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1)
    client.subscribe(queue, group="g")
    client.publish_each(queue, "1", "2")
    held = client.receive_each(2)
    client.wire.unsubscribe(f"$queue/{queue}")
    client.subscribe(queue, group="g")
    client.expect_silence()
    assert [client.ack(delivery) for delivery in held] == [SUCCESS, SUCCESS]


@pytest.mark.rule("D2")
def test_one_client_may_read_everything_and_a_pattern_in_two_groups(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1, sublevels=True)
    client.subscribe(queue, group="g")
    client.subscribe(f"{queue}/eu/#", group="g")
    client.publish_each(f"{queue}/eu/a", "both")
    client.publish_each(f"{queue}/us/a", "one")
    received = client.receive_each(3)
    seen = sorted((one.group, one.payload) for one in received)
    assert seen == [("g", "both"), ("g", "one"), ("g@eu/#", "both")]
    for delivery in received:
        code = client.settle("ack", delivery, queue=queue, group_id=delivery.group)
        assert code == SUCCESS
    client.abort()
    for name in (queue, f"{queue}/eu/#"):
        successor = connect()
        successor.subscribe(name, group="g")
        successor.expect_silence(0.2)


@pytest.mark.rule("D2", "section 5")
def test_a_message_of_a_sublevel_may_be_settled_where_it_was_delivered(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1, sublevels=True)
    client.subscribe(f"{queue}/+/a", group="g")
    client.publish_each(f"{queue}/eu/a", "x")
    delivery = client.receive()
    assert client.nack(delivery) == SUCCESS
    again = client.receive()
    assert again.count == 2
    assert client.ack(again) == SUCCESS


@pytest.mark.rule("D13", "section 8")
def test_settings_which_change_while_messages_are_held_lose_none(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=2)
    first, second = connect("w-a"), connect("w-b")
    first.subscribe(queue)
    second.subscribe(queue)
    for number in range(8):
        first.publish_each(queue, str(number), key=key_of(number % 2, 2))
    held = {client.client_id: client.receive_each(4) for client in (first, second)}
    assert first.configure(queue, partitions=5, retry_blocks="none") == SUCCESS
    for client in (first, second):
        for delivery in held[client.client_id]:
            assert client.nack(delivery) == SUCCESS
    again = first.drain() + second.drain()
    assert sorted((one.payload, one.count) for one in again) == [(str(n), 2) for n in range(8)]


@pytest.mark.rule("section 5", "D18")
def test_the_delay_of_a_nack_outlives_its_consumer(connect: Connect, make_queue: MakeQueue) -> None:
    client, queue = connect(), make_queue(partitions=1)
    client.subscribe(queue, group="g")
    client.publish_each(queue, "x")
    first = client.receive()
    assert client.nack(first, delay_ms="1500") == SUCCESS
    client.abort()
    successor = connect()
    successor.subscribe(queue, group="g")
    second = successor.receive()
    assert second.count == 2
    assert second.received_at - first.received_at >= 1.5


@pytest.mark.rule("section 5")
def test_a_settlement_at_another_queue_touches_nothing_and_makes_no_queue(
    connect: Connect, make_queue: MakeQueue, broker: Broker, queue: str
) -> None:
    client, mine, other = connect(), make_queue(partitions=1), make_queue(partitions=1)
    for name in (mine, other):
        client.subscribe(name)
    client.publish_each(mine, "x")
    delivery = client.receive()
    for name in (other, queue):
        assert client.settle_id(name, "ack", delivery.message_id) == NO_MATCH
    assert rest.call(broker, "GET", rest.queue_path(queue))[0] == 404
    assert client.nack(delivery) == SUCCESS
    assert client.receive().count == 2


@pytest.mark.rule("D24")
def test_a_dead_letter_queue_which_is_full_loses_no_dead_letter(
    connect: Connect, make_queue: MakeQueue
) -> None:
    graveyard = make_queue(partitions=1, limits={"max_queue_depth": 1})
    queue = make_queue(partitions=1, dlq_config={"topic": f"$queue/{graveyard}"})
    client, watcher = connect(), connect()
    client.subscribe(queue)
    client.publish_each(queue, "1", "2", "3")
    for delivery in client.receive_each(3):
        assert client.reject(delivery) == SUCCESS
    watcher.subscribe(graveyard)
    assert [one.payload for one in watcher.receive_and_ack(3)] == ["1", "2", "3"]


@pytest.mark.rule("section 1", "D17", "section 8")
@pytest.mark.parametrize(
    "wrong", [{"group_start": "middle"}, {"ack_mode": "never"}, {"x_stream_offset": "first"}]
)
def test_a_subscribe_property_which_means_nothing_here_is_refused(
    connect: Connect, queue: str, wrong: dict[str, Any]
) -> None:
    assert connect().subscribe(queue, **wrong) >= UNSPECIFIED
