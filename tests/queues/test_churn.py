"""A group under churn: workers ack, nack, reject, die and come, and every message ends once."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from tests.queues.client import SUCCESS, Delivery, QueueClient
from tests.queues.conftest import Connect, MakeQueue

KEYS = [f"key{number}" for number in range(6)]
MESSAGES_PER_KEY = 15
WORKERS = 3
DEADLINE_S = 60.0


class Churn:
    """Workers of one group and the ledger of what they settled."""

    def __init__(self, connect: Connect, queue: str, seed: int) -> None:
        self.connect = connect
        self.queue = queue
        self.dice = random.Random(seed)
        self.born = 0
        self.workers: list[QueueClient] = []
        self.acked: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()

    def hire(self) -> None:
        # The ids do not grow with time, so that newcomers take ranges from the middle.
        worker = self.connect(f"churn-{self.dice.randrange(1000):03}-{self.born}")
        self.born += 1
        assert worker.subscribe(self.queue) == 1
        self.workers.append(worker)

    def step(self) -> None:
        worker = self.dice.choice(self.workers)
        delivery = worker.poll(0.05)
        if delivery is None:
            return
        self.check_turn(delivery)
        chance = self.dice.random()
        if chance < 0.7:
            assert worker.ack(delivery) == SUCCESS
            self.acked[delivery.payload] += 1
        elif chance < 0.85:
            assert worker.nack(delivery) == SUCCESS
        elif chance < 0.93:
            assert worker.reject(delivery) == SUCCESS
            self.rejected[delivery.payload] += 1
        else:
            self.workers.remove(worker)
            self.dice.choice([worker.abort, worker.disconnect])()
            self.hire()

    def check_turn(self, delivery: Delivery) -> None:
        """Everything before it with the same key is settled: one message of a key at a time."""
        key, _, number = delivery.payload.partition(":")
        for earlier in range(int(number)):
            assert self.ended(f"{key}:{earlier}"), f"{delivery.payload} before {key}:{earlier}"
        assert not self.ended(delivery.payload), f"{delivery.payload} again"

    def ended(self, payload: str) -> int:
        return self.acked[payload] + self.rejected[payload]


@pytest.mark.rule("D12", "D13", "D18", "section 7")
@pytest.mark.parametrize("seed", range(3))
def test_every_message_ends_once_and_each_key_in_order(
    connect: Connect, make_queue: MakeQueue, seed: int
) -> None:
    queue = make_queue(partitions=5, key_inflight=1, retry_policy={"max_retries": 1000})
    producer = connect()
    everything = [f"{key}:{number}" for number in range(MESSAGES_PER_KEY) for key in KEYS]
    for payload in everything:
        producer.publish_each(queue, payload, key=payload.partition(":")[0])
    churn = Churn(connect, queue, seed)
    for _ in range(WORKERS):
        churn.hire()
    deadline = time.monotonic() + DEADLINE_S
    while not all(churn.ended(payload) for payload in everything):
        assert time.monotonic() < deadline, "some messages did not come"
        churn.step()
    for worker in churn.workers:
        worker.expect_silence(0.2)
    letters = connect()
    letters.subscribe(f"dlq/{queue}")
    dead = Counter(one.payload for one in letters.receive_and_ack(churn.rejected.total()))
    assert dead == churn.rejected
    letters.expect_silence()
