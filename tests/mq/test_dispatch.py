"""Who gets a message (M17): random, round robin, least in-flight, sticky key."""

from __future__ import annotations

import pytest

from tests.mq.client import MqClient, spread
from tests.mq.conftest import Connect, MakeQueue
from tests.mq.rest import QUEUES, MqRest, Queue


def subscribers(connect: Connect, queue: Queue, count: int) -> list[MqClient]:
    clients = [connect() for _ in range(count)]
    for client in clients:
        assert client.subscribe(queue.address) == 1
    return clients


@pytest.mark.rule("M17", "section 1")
@pytest.mark.parametrize("strategy", ["random", "round_robin", "least_inflight", "sticky_key"])
@pytest.mark.parametrize("kind", ["regular", "last-value"])
def test_each_message_goes_to_one_subscriber(
    connect: Connect, regular: MakeQueue, last_value: MakeQueue, strategy: str, kind: str
) -> None:
    make = regular if kind == "regular" else last_value
    queue = make(dispatch_strategy=strategy)
    clients, producer = subscribers(connect, queue, 3), connect()
    producer.publish_keyed(queue.topic(), *(f"{n}={n}" for n in range(60)))
    received = spread(clients, 60)
    assert sorted((one for mine in received for one in mine), key=int) == list(map(str, range(60)))
    for client in clients:
        client.expect_silence(0.1)


@pytest.mark.rule("M17")
def test_random_is_the_default_and_reaches_everybody(
    connect: Connect, rest: MqRest, root: str
) -> None:
    queue = rest.create(f"{root}/#", is_lastvalue=False)
    assert rest.call("GET", queue.path).json["dispatch_strategy"] == "random"
    clients = subscribers(connect, queue, 3)
    connect().publish_each(queue.topic(), *map(str, range(90)))
    received = spread(clients, 90)
    # Each stays below 5 of 90 once in many millions of runs.
    assert min(map(len, received)) >= 5
    assert len({tuple(int(one) % 3 for one in mine) for mine in received}) == 3


@pytest.mark.rule("M17", "acceptance 7")
def test_round_robin_is_equal_and_cyclic(connect: Connect, regular: MakeQueue) -> None:
    queue = regular(dispatch_strategy="round_robin")
    clients = subscribers(connect, queue, 3)
    connect().publish_each(queue.topic(), *map(str, range(30)))
    received = spread(clients, 30)
    assert sorted(received, key=lambda mine: int(mine[0])) == [
        list(map(str, range(first, 30, 3))) for first in range(3)
    ]


@pytest.mark.rule("M17")
def test_the_cycle_is_of_those_who_are_there(connect: Connect, regular: MakeQueue) -> None:
    queue = regular(dispatch_strategy="round_robin")
    producer = connect()
    clients = subscribers(connect, queue, 3)
    clients.pop().disconnect()
    producer.publish_each(queue.topic(), *map(str, range(10)))
    assert sorted(map(len, spread(clients, 10))) == [5, 5]
    clients += subscribers(connect, queue, 2)
    producer.publish_each(queue.topic(), *map(str, range(12)))
    assert [len(mine) for mine in spread(clients, 12)] == [3, 3, 3, 3]


@pytest.mark.rule("M17", "acceptance 8")
def test_least_inflight_prefers_the_idle(connect: Connect, regular: MakeQueue) -> None:
    queue = regular(dispatch_strategy="least_inflight")
    producer = connect()
    (busy,) = subscribers(connect, queue, 1)
    producer.publish_each(queue.topic(), "1", "2", "3")
    held = busy.hold_each(3)
    (idle,) = subscribers(connect, queue, 1)
    for number in range(10):
        producer.publish_each(queue.topic(), f"for the idle {number}")
        idle.ack(idle.hold())
    busy.expect_silence(0.1)
    busy.ack(*held)
    producer.publish_each(queue.topic(), "a", "b")
    assert {busy.hold().payload, idle.hold().payload} == {"a", "b"}


@pytest.mark.rule("M17")
def test_least_inflight_fills_up_evenly(connect: Connect, regular: MakeQueue) -> None:
    queue = regular(dispatch_strategy="least_inflight")
    clients = subscribers(connect, queue, 3)
    connect().publish_each(queue.topic(), *map(str, range(12)))
    assert [len(client.hold_each(4)) for client in clients] == [4, 4, 4]
    for client in clients:
        client.expect_silence(0.1)


@pytest.mark.rule("M17", "M8")
def test_sticky_key_keeps_a_publisher_with_one_subscriber(
    connect: Connect, regular: MakeQueue
) -> None:
    queue = regular(dispatch_strategy="sticky_key")
    clients = subscribers(connect, queue, 3)
    names = [f"{queue.name}-{number}" for number in range(12)]
    for name in names:
        connect(name).publish_each(queue.topic(), *(f"{name}:{number}" for number in range(5)))
    received = spread(clients, 60)
    for name in names:
        owners = [mine for mine in received if any(one.startswith(f"{name}:") for one in mine)]
        assert len(owners) == 1
        mine = [one for one in owners[0] if one.startswith(f"{name}:")]
        assert mine == [f"{name}:{number}" for number in range(5)]
    assert sum(1 for mine in received if mine) >= 2, "12 keys at one of 3 subscribers"


@pytest.mark.rule("M17")
def test_sticky_key_moves_only_the_keys_of_who_left(
    connect: Connect, last_value: MakeQueue
) -> None:
    queue = last_value(dispatch_strategy="sticky_key")
    clients, producer = subscribers(connect, queue, 3), connect()
    pairs = [f"{number}={number}" for number in range(30)]
    producer.publish_keyed(queue.topic(), *pairs)
    before = spread(clients, 30)
    clients.pop().disconnect()
    producer.publish_keyed(queue.topic(), *pairs)
    after = spread(clients, 30)
    for mine, then in zip(after, before, strict=False):
        assert set(mine) >= set(then)


@pytest.mark.rule("M17", "section 8")
def test_a_strategy_which_is_none_is_refused(rest: MqRest, root: str) -> None:
    body = {"name": root, "topic_filter": f"{root}/#", "dispatch_strategy": "fair"}
    assert rest.call("POST", QUEUES, body).status == 400


@pytest.mark.rule("M17", "section 1")
def test_a_message_returned_goes_before_those_behind_it(
    connect: Connect, regular: MakeQueue
) -> None:
    queue = regular(local_max_inflight=2)
    connect().publish_each(queue.topic(), *"12345")
    first = connect()
    first.subscribe(queue.address)
    first.hold_each(2)
    first.disconnect()
    second = connect()
    second.subscribe(queue.address)
    assert second.take_payloads(5) == list("12345")
