"""What was acknowledged survives SIGKILL at any moment: the short form of `tests.soak.crash`."""

from __future__ import annotations

import pytest

from tests.conftest import BrokerFactory
from tests.crash.ports import free_port
from tests.crash.workload import Workload


@pytest.mark.timeout(240)
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(
    fresh_broker: BrokerFactory,
) -> None:
    broker = fresh_broker({"listeners.mqtt.port": free_port()})
    outcome = Workload(broker, seed=1).run(kills=6)
    assert outcome.violations == []
    assert outcome.kills == 6
    assert outcome.acknowledged > 100
