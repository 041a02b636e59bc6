"""Section 4.8: what a client sees when the store cannot take its message.

The store may not grow beyond a few MiB, so that it is full after some hundred messages.
"""

from __future__ import annotations

import pytest

from tests.conformance.v311.reading import answer_or_close
from tests.conftest import BrokerFactory
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess

MIB = 1024 * 1024
MESSAGES_MAX = 4000
PADDING = bytes(8000)


def _fill(broker: BrokerProcess, level: int) -> int:
    """Publish for an absent session until one is not acknowledged; returns how many were."""
    with broker.client(level, timeout=20.0) as keeper:
        keeper.connect("keeper", clean=False)
        keeper.subscribe("full/t", qos=1)
        keeper.disconnect()
    with broker.client(level, timeout=20.0) as wire:
        wire.connect("publisher")
        for number in range(MESSAGES_MAX):
            wire.send_publish("full/t", b"%06d" % number + PADDING, qos=1)
            answer = answer_or_close(wire)
            if answer is None:
                return number
            assert answer.type == p.PUBACK
    raise AssertionError(f"{MESSAGES_MAX} messages fit into a store of 4 MiB")


@pytest.mark.conforms311("MQTT-4.8.0-2", "MQTT-4.3.2-2")
def test_a_message_which_cannot_be_stored_closes_and_all_others_arrive(
    fresh_broker: BrokerFactory, level: int
) -> None:
    broker = fresh_broker(
        {
            "http.enabled": False,
            "storage.map_size_bytes_initial": 4 * MIB,
            "storage.map_size_bytes_max": 4 * MIB,
        }
    )
    acknowledged = _fill(broker, level)
    assert acknowledged > 0
    with broker.client(level, timeout=20.0) as keeper:
        keeper.connect("keeper", clean=False)
        numbers = [int(keeper.expect_publish().payload[:6]) for _ in range(acknowledged)]
        assert numbers == list(range(acknowledged))
        keeper.expect_nothing()
    # The space of what was delivered is free again: service goes on without a restart.
    with broker.client(level, timeout=20.0) as keeper, broker.client(level, timeout=20.0) as wire:
        keeper.connect("keeper", clean=False)
        wire.connect("publisher")
        wire.publish("full/t", b"after", qos=1)
        keeper.expect_publish("full/t", b"after")
