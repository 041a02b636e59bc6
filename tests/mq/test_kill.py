"""Message queues under SIGKILL at any moment, over several lives of the broker.

One publisher and one subscriber for each of a regular and a last-value queue take random steps
until the broker is killed in the middle of a burst; then both connect again. The subscriber sees
everything in the order of its delivery, so it can tell what came back.

- What was confirmed is delivered at least once (last-value: it, or a later value of its key).
- What was acknowledged, and sealed by a later confirmed publish, is never delivered again.
- A value is never delivered after a later value of its key was.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from tests.conftest import BrokerFactory
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess
from tests.mq.client import SUCCESS, Delivery, MqClient
from tests.mq.conftest import KEY
from tests.mq.control import MqOperator

KEYS = 4
LIVES = 4
STEPS = 40
BURST = 12


@pytest.fixture
def admin_process() -> bool:
    return False


@dataclass
class Story:
    """Of one queue: numbers go up, whatever key they are published with."""

    keyed: bool
    number: int = 0
    confirmed: dict[int, int] = field(default_factory=dict)  # number -> key
    delivered: list[int] = field(default_factory=list)
    latest: dict[int, int] = field(default_factory=dict)  # key -> last number delivered
    acknowledged: set[int] = field(default_factory=set)
    sealed: set[int] = field(default_factory=set)
    held: list[Delivery] = field(default_factory=list)

    def take(self, delivery: Delivery) -> int:
        """Note a delivery; what it must not be is a mistake of the broker."""
        key, number = map(int, delivery.payload.split(":"))
        assert number not in self.sealed, f"{number} was acknowledged, and came again"
        if self.keyed:
            newest = self.latest.get(key, -1)
            assert number >= newest, f"{number} of key {key} came after {newest}"
            self.latest[key] = number
        self.delivered.append(number)
        return number

    def missing(self) -> list[int]:
        """Confirmed, and neither delivered nor replaced by what was published later."""
        seen = set(self.delivered)
        lost = [number for number in self.confirmed if number not in seen]
        if not self.keyed:
            return lost
        return [one for one in lost if one > self.latest.get(self.confirmed[one], -1)]


class Actors:
    """The clients of one life of the broker."""

    def __init__(self, broker: BrokerProcess, story: Story, dice: random.Random) -> None:
        self.story = story
        self._dice = dice
        self._topic = "last/x" if story.keyed else "all/x"
        self.producer = _client(broker, f"producer-{self._topic[:3]}")
        self.consumer = _client(broker, f"consumer-{self._topic[:3]}")
        story.held.clear()
        story.acknowledged.clear()  # not sealed in its life: may come again
        self.consumer.subscribe("$queue/last" if story.keyed else "$queue/all")

    def step(self) -> None:
        match self._dice.choices(("publish", "read", "ack", "seal"), (5, 4, 2, 1))[0]:
            case "publish":
                self.publish()
            case "read":
                self.read()
            case "ack":
                self.acknowledge()
            case _:
                self.seal()

    def publish(self, by: MqClient | None = None) -> bool:
        key, payload = self._next()
        client = by or self.producer
        taken = client.publish(self._topic, payload, user={"mq-key": str(key)}) == SUCCESS
        if taken:
            self.story.confirmed[self.story.number] = key
        return taken

    def burst(self) -> None:
        """Publishes and acknowledgements on their way when the broker dies."""
        for packet_id in range(1000, 1000 + BURST):
            key, payload = self._next()
            user = [("user_property", ("mq-key", str(key)))]
            self.producer.wire.send_publish(
                self._topic, payload, qos=1, packet_id=packet_id, properties=user
            )
        for delivery in self.story.held[::2]:
            self.consumer.wire.acknowledge(p.PUBACK, delivery.packet.packet_id)

    def read(self, quiet_s: float = 0.01) -> bool:
        delivery = self.consumer.poll(quiet_s, ack=False)
        if delivery is None:
            return False
        self.story.take(delivery)
        self.story.held.append(delivery)
        return True

    def acknowledge(self) -> None:
        story = self.story
        for _ in range(min(3, len(story.held))):
            delivery = story.held.pop(self._dice.randrange(len(story.held)))
            self.consumer.ack(delivery)
            story.acknowledged.add(int(delivery.payload.split(":")[1]))

    def seal(self) -> None:
        """The subscriber publishes itself: behind its acknowledgements, in one order."""
        acknowledged = set(self.story.acknowledged)
        assert self.publish(by=self.consumer)
        self.story.sealed |= acknowledged

    def drain(self) -> None:
        while self.read(1.0):
            self.acknowledge()

    def close(self) -> None:
        self.producer.wire.close()
        self.consumer.wire.close()

    def _next(self) -> tuple[int, str]:
        self.story.number += 1
        key = self._dice.randrange(KEYS)
        return key, f"{key}:{self.story.number}"


def _client(broker: BrokerProcess, client_id: str) -> MqClient:
    client = MqClient(broker.client(timeout=15.0), client_id)
    client.wire.connect(client_id)
    return client


@pytest.fixture
def broker(fresh_broker: BrokerFactory) -> BrokerProcess:
    process = fresh_broker()
    queues = MqOperator(process)
    queues.create("all/#", name="all", is_lastvalue=False)
    queues.create("last/#", name="last", key_expression=KEY)
    return process


@pytest.mark.rule("M24", "M23", "M9", "acceptance 14")
@pytest.mark.parametrize("seed", [1, 2])
def test_promises_are_kept_when_the_broker_is_killed(broker: BrokerProcess, seed: int) -> None:
    dice = random.Random(seed)
    stories = [Story(keyed=False), Story(keyed=True)]
    for _ in range(LIVES):
        actors = [Actors(broker, story, dice) for story in stories]
        for _ in range(dice.randrange(STEPS)):
            dice.choice(actors).step()
        for actor in actors:
            actor.burst()
        broker.kill()
        for actor in actors:
            actor.close()
        broker.restart()
    for story in stories:
        actor = Actors(broker, story, dice)
        actor.drain()
        assert story.missing() == []
        actor.seal()
        actor.close()
        last = Actors(broker, story, dice)
        last.drain()
        last.close()
        assert len(story.delivered) > 10, "too little happened to mean anything"
