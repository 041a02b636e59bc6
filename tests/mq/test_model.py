"""Last-value queues against a dict, and limited queues against a list, through the real broker."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.broker import BrokerProcess
from tests.mq.client import MqClient
from tests.mq.conftest import KEY
from tests.mq.rest import MqRest, Queue

EXAMPLES = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
KEYS = ("", "a", "b", "ä/#", "A" * 300)
QUIET_S = 0.15

# A publish of a key, with a QoS, or a subscriber which reads everything or holds and leaves.
publishes = st.tuples(st.sampled_from(KEYS), st.sampled_from([0, 1, 2]))
visits = st.sampled_from(["drain", "hold", "half"])
steps = st.lists(st.one_of(publishes, publishes, publishes, visits), max_size=25)


def client_of(broker: BrokerProcess) -> MqClient:
    name = uuid.uuid4().hex
    client = MqClient(broker.client(timeout=15.0), name)
    client.wire.connect(name)
    return client


class Reader:
    """Visits a queue; what the queue holds is in `live`, in the order of the last writes."""

    def __init__(self, broker: BrokerProcess, queue: Queue) -> None:
        self._broker = broker
        self._queue = queue
        self.live: dict[str, str] = {}

    def visit(self, how: str) -> None:
        client = client_of(self._broker)
        client.subscribe(self._queue.address)
        held = client.hold_each(len(self.live))
        assert [one.payload for one in held] == list(self.live.values())
        taken = {"drain": held, "half": held[::2], "hold": []}[how]
        client.ack(*taken)
        client.expect_silence(QUIET_S)
        client.disconnect()
        gone = {one.payload for one in taken}
        self.live = {key: one for key, one in self.live.items() if one not in gone}


@EXAMPLES
@given(steps=steps)
@pytest.mark.rule("M9", "M10", "M19", "M23")
def test_a_last_value_queue_is_a_dict_in_the_order_of_its_writes(
    broker: BrokerProcess, steps: list[tuple[str, int] | str]
) -> None:
    name = f"m{uuid.uuid4().hex[:10]}"
    rest, producer = MqRest(broker), client_of(broker)
    queue = rest.create(f"{name}/#", name=name, key_expression=KEY)
    reader = Reader(broker, queue)
    try:
        for number, step in enumerate([*steps, "drain", "drain"]):
            if isinstance(step, str):
                reader.visit(step)
                continue
            key, qos = step
            producer.publish(queue.topic(), str(number), qos=qos, user={"mq-key": key})
            reader.live.pop(key, None)
            reader.live[key] = str(number)
    finally:
        producer.wire.close()
        rest.delete(queue)


@EXAMPLES
@given(
    count_max=st.integers(1, 20),
    sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=60),
    by_bytes=st.booleans(),
)
@pytest.mark.rule("M26", "M27")
def test_a_limit_drops_the_oldest_and_never_one_behind_them(
    broker: BrokerProcess, count_max: int, sizes: list[int], by_bytes: bool
) -> None:
    name = f"m{uuid.uuid4().hex[:10]}"
    rest, client = MqRest(broker), client_of(broker)
    limits = {"max_shard_message_bytes" if by_bytes else "max_shard_message_count": count_max}
    if by_bytes:
        limits = {"max_shard_message_bytes": count_max * 1000}
        sizes = [min(size, count_max * 1000) for size in sizes]  # one which has no room is refused
    queue = rest.create(f"{name}/#", name=name, is_lastvalue=False, limits=limits)
    payloads = [f"{number}:".ljust(size, ".") for number, size in enumerate(sizes)]
    try:
        client.publish_each(queue.topic(), *payloads)
        client.subscribe(queue.address)
        received = client.drain(QUIET_S)
        assert received == payloads[len(payloads) - len(received) :]
        if not by_bytes:
            assert len(received) >= min(count_max, len(payloads))
    finally:
        client.wire.close()
        rest.delete(queue)
