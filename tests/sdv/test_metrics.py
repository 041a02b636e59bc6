"""What a scrape tells of fan-out (section 10)."""

from __future__ import annotations

import pytest

from tests.api.queue_rest import Rest
from tests.conftest import BrokerFactory
from tests.queues.client import wait_until
from tests.sdv.client import TRIGGER
from tests.sdv.conftest import ConnectPlatform, ConnectVehicle


@pytest.fixture
def admin_process() -> bool:
    return True


@pytest.mark.rule("section 10", "S20", "S21")
def test_a_scrape_tells_what_happened(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle
) -> None:
    broker = fresh_broker()
    platform, device = connect(of=broker), vehicle("v1", of=broker)
    rest = Rest(broker)

    def total(name: str) -> float:
        found = [v for (one, *_), v in rest.samples().items() if one.endswith(name)]
        assert found, f"no sample of {name}"
        return sum(found)

    platform.publish(TRIGGER, "not JSON")
    platform.trigger(["v1"], "r0", "missing")
    for request_id in ("r1", "r2", "r3"):
        platform.request(request_id, "v1", "v2")
    device.ack(device.hold())
    device.ack(device.hold(), code=0x80)
    device.hold()
    expected = {
        "sdv_pending": 6,
        "sdv_inflight": 1,
        "sdv_dispatched_total": 3,
        "sdv_acked_total": 1,
        "sdv_rejected_total": 1,
        "sdv_expired_total": 0,
        "sdv_trigger_invalid_total": 1,
        "sdv_time_to_ack_seconds_count": 1,
    }
    wait_until(lambda: total("sdv_acked_total") == 1)
    found = {name: total(name) for name in expected}
    assert found["sdv_pending"] in (5, 4)
    assert found["sdv_time_to_ack_seconds_count"] in (1, 2)
    for name in ("sdv_pending", "sdv_time_to_ack_seconds_count"):
        del expected[name], found[name]
    assert found == expected
    assert total("sdv_missing_data") >= 1
