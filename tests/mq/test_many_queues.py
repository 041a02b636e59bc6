"""A thousand queues whose filters overlap: a message enters those which match, and no other."""

from __future__ import annotations

import itertools

import pytest

from tests.conftest import BrokerFactory
from tests.mq.conftest import MANUAL, Connect
from tests.mq.rest import MqRest

QUEUES_MIN = 1000
REGULAR = {"mq.max_queue_count": 0, "mq.auto_create.regular.enable": True}


def filters() -> list[str]:
    """Of sites, lines and kinds, each exact or a wildcard: a topic matches about a dozen."""
    sites, lines, kinds = ([f"{letter}{number}" for number in range(10)] for letter in "slk")
    exact = [f"{site}/{line}/{kind}" for site in sites for line in lines for kind in kinds[:6]]
    pairs = [
        one
        for first, second in itertools.product(range(10), range(10))
        for one in (
            f"s{first}/l{second}/+",
            f"s{first}/+/k{second}",
            f"+/l{first}/k{second}",
            f"s{first}/l{second}/#",
        )
    ]
    single = [
        one
        for number in range(10)
        for one in (f"s{number}/#", f"s{number}/+/+", f"+/l{number}/#", f"+/+/k{number}")
    ]
    return [*exact, *pairs, *single, "#", "+/+/+"]


def matches(topic_filter: str, topic: str) -> bool:
    pattern, levels = topic_filter.split("/"), topic.split("/")
    if pattern[-1] == "#":
        pattern = pattern[:-1]
        levels = levels[: len(pattern)] if len(levels) >= len(pattern) else levels
    return len(pattern) == len(levels) and all(
        one in ("+", level) for one, level in zip(pattern, levels, strict=True)
    )


@pytest.mark.rule("section 1", "M14")
def test_each_of_a_thousand_queues_gets_what_matches(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(MANUAL | REGULAR)
    reader, producer = connect(of=broker), connect(of=broker)
    made = filters()
    for number, topic_filter in enumerate(made, 1):
        assert reader.subscribe(f"$q/{topic_filter}", identifier=number) == 1
    assert len(MqRest(broker).names()) == len(made) >= QUEUES_MIN
    for topic in ("s4/l4/k4", "s2/l9/k7", "s1/any/k3", "s6/l8/k3/deep", "s0", "none"):
        expected = [number for number, one in enumerate(made, 1) if matches(one, topic)]
        producer.publish(topic, topic)
        packets = [reader.take().packet for _ in expected]
        assert {one.topic for one in packets} <= {topic}
        assert sorted(one.subscription_identifiers[0] for one in packets) == expected
        reader.expect_silence(0.2)


@pytest.mark.rule("section 1", "M31")
def test_messages_follow_queues_which_come_and_go(
    rest: MqRest, connect: Connect, root: str
) -> None:
    """Where a topic goes is remembered by the broker; it must not be remembered too long."""
    producer = connect()
    queues = [
        rest.create(f"{root}/{level}", name=f"{root}-{number}", is_lastvalue=False)
        for number, level in enumerate(("x", "+", "#", "x/#"))
    ]
    producer.publish_each(f"{root}/x", "0")
    for number, queue in enumerate(queues, 1):
        rest.delete(queue)
        code = producer.publish(f"{root}/x", str(number))
        assert code == (0x10 if number == len(queues) else 0)
    again = rest.create(f"{root}/x", name=f"{root}-0", is_lastvalue=False)
    producer.publish_each(f"{root}/x", "again")
    client = connect()
    client.subscribe(again.address)
    assert client.drain(at_least=1) == ["again"]
