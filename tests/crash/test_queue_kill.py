"""Queues keep their promises over SIGKILL: the short form of `tests.soak.queues`."""

from __future__ import annotations

import pytest

from tests.conftest import BrokerFactory
from tests.crash.ports import free_port
from tests.crash.queue_events import event_mistakes
from tests.crash.queue_workload import CONFIG, QueueWorkload


@pytest.mark.timeout(240)
def test_every_accepted_message_ends_once_when_the_broker_is_killed(
    fresh_broker: BrokerFactory,
) -> None:
    settings = {"listeners.mqtt.port": free_port(), "http.enabled": False}
    broker = fresh_broker(settings, config=CONFIG)
    outcome = QueueWorkload(broker, seed=1).run(kills=3)
    assert outcome.violations == []
    assert outcome.accepted > 100
    assert outcome.delivered > outcome.accepted, "nothing was ever redelivered"
    assert outcome.dead["rejected"] > 0
    broker.kill()
    assert event_mistakes(broker.data_dir, "crash/parallel") == []
