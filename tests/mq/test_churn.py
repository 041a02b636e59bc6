"""Subscribers which come, go, reject and forget: every message ends once.

What was acknowledged and sealed by a ping does not come again; what was not, comes until it is.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from tests.mq.client import Delivery, MqClient
from tests.mq.conftest import Connect, MakeQueue
from tests.mq.rest import Queue

MESSAGES = 80
SUBSCRIBERS = 4
KEYS = 6
DEADLINE_S = 60.0


class Churn:
    """The subscribers of one queue and what they acknowledged."""

    def __init__(self, connect: Connect, queue: Queue, seed: int) -> None:
        self._connect = connect
        self._queue = queue
        self._dice = random.Random(seed)
        self.clients: dict[MqClient, list[Delivery]] = {}
        self.acked: set[int] = set()

    def join(self) -> None:
        client = self._connect(version=self._dice.choice([4, 5]))
        assert client.subscribe(self._queue.address) == 1
        self.clients[client] = []

    def step(self) -> None:
        client = self._dice.choice(list(self.clients))
        held = self.clients[client]
        if (delivery := client.poll(0.03, ack=False)) is not None:
            number = int(delivery.payload)
            assert number not in self.acked, f"{number} was acknowledged, and came again"
            held.append(delivery)
        chance = self._dice.random()
        if chance < 0.08:
            self.leave(client)
        elif held and chance < 0.75:
            taken = held.pop(self._dice.randrange(len(held)))
            client.ack(taken)
            self.acked.add(int(taken.payload))
        elif held and chance < 0.85 and client.wire.version == 5:
            client.reject(held.pop())

    def leave(self, client: MqClient) -> None:
        del self.clients[client]
        ways: list[Callable[[], object]] = [client.abort, client.disconnect]
        ways.append(lambda: client.wire.unsubscribe(self._queue.address))
        self._dice.choice(ways)()
        self.join()

    def settle_all(self) -> None:
        """Everybody acknowledges what it has and what comes."""
        for client, held in self.clients.items():
            client.ack(*held)
            self.acked |= {int(one.payload) for one in held}
            held.clear()
        for client in self.clients:
            while (delivery := client.poll(0.05)) is not None:
                self.acked.add(int(delivery.payload))


@pytest.mark.rule("M15", "M16", "M19", "M20", "M21", "section 1")
@pytest.mark.parametrize("strategy", ["random", "round_robin", "least_inflight", "sticky_key"])
def test_every_message_of_a_regular_queue_ends_once(
    connect: Connect, regular: MakeQueue, strategy: str
) -> None:
    queue = regular(dispatch_strategy=strategy, redispatch_interval="50ms", local_max_inflight=4)
    producer, churn = connect(), Churn(connect, queue, seed=len(strategy))
    for _ in range(SUBSCRIBERS):
        churn.join()
    for number in range(MESSAGES):
        producer.publish_each(queue.topic(), str(number))
        churn.step()
    deadline = time.monotonic() + DEADLINE_S
    while len(churn.acked) < MESSAGES:
        assert time.monotonic() < deadline, f"missing {set(range(MESSAGES)) - churn.acked}"
        churn.step()
    for client in churn.clients:
        client.expect_silence(0.1)


@pytest.mark.rule("M9", "M20", "M21", "M23")
@pytest.mark.parametrize("seed", range(3))
def test_the_last_value_of_every_key_ends_once(
    connect: Connect, last_value: MakeQueue, seed: int
) -> None:
    queue = last_value(redispatch_interval="50ms")
    producer, churn = connect(), Churn(connect, queue, seed)
    dice, last = random.Random(seed), dict[int, int]()
    for _ in range(SUBSCRIBERS):
        churn.join()
    for number in range(MESSAGES):
        key = dice.randrange(KEYS)
        producer.publish_keyed(queue.topic(), f"{key}={number}")
        last[key] = number
        churn.step()
    deadline = time.monotonic() + DEADLINE_S
    while not churn.acked >= set(last.values()):
        assert time.monotonic() < deadline, f"missing {set(last.values()) - churn.acked}"
        churn.settle_all()
    churn.settle_all()
    late = connect()
    late.subscribe(queue.address)
    late.expect_silence()
