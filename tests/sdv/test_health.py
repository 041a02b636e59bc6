"""What the health check says while the tables of fan-out cannot be written (S4)."""

from __future__ import annotations

import sys

import pytest

from tests.conftest import BrokerFactory
from tests.crash.test_store_failures import wait_ready, writes_fail
from tests.ecq.client import CLOSED
from tests.sdv.conftest import ConnectPlatform

NEEDS_PRLIMIT = pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit")


@pytest.fixture
def admin_process() -> bool:
    return True


@NEEDS_PRLIMIT
@pytest.mark.rule("S4")
def test_the_health_check_says_why(fresh_broker: BrokerFactory, connect: ConnectPlatform) -> None:
    broker = fresh_broker()
    platform = connect(of=broker)
    with writes_fail(broker):
        assert platform.data("d", "x") == CLOSED
        reasons = wait_ready(broker, 503)
    assert any("tables_not_ready" in reason for reason in reasons), reasons
    wait_ready(broker, 200)
