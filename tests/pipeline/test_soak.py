"""The short form of `scripts/soak pipeline`: a few kills, and the lake is exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conftest import BrokerFactory
from tests.crash.pipeline_workload import CONFIG, PipelineWorkload
from tests.crash.ports import free_port

KILLS = 4


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_lake_is_exact_whoever_is_killed(fresh_broker: BrokerFactory) -> None:
    settings = {
        "listeners.mqtt.port": free_port(),
        "flight.enabled": True,
        "flight.port": free_port(),
        "http.enabled": False,
    }
    broker = fresh_broker(settings, config=CONFIG)
    lines: list[str] = []
    report: Callable[[str], None] = lines.append
    outcome = PipelineWorkload(broker, seed=7).run(0, KILLS, report)
    assert outcome.violations == [], lines
    assert outcome.accepted > 100
    assert sum(outcome.kills.values()) == KILLS
