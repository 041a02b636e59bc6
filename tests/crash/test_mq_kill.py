"""Message queues keep their promises over SIGKILL: `tests.soak.message_queues` in short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.mq_workload import MqWorkload
from tests.crash.ports import free_port
from tests.harness.broker import BrokerProcess


@pytest.mark.timeout(240)
def test_every_accepted_message_is_acked_and_none_comes_back_when_the_broker_is_killed(
    tmp_path: Path,
) -> None:
    settings = {"listeners.mqtt.port": free_port(), "http.enabled": False}
    broker = BrokerProcess(tmp_path, settings)
    try:
        outcome = MqWorkload(broker, seed=1).run(kills=3)
    finally:
        broker.close()
    assert outcome.violations == []
    assert outcome.accepted > 100
    assert outcome.rejected > 0
    assert outcome.sealed > 100
