"""Data which comes late, for a row which others have overtaken (S15, S18, S20)."""

from __future__ import annotations

import pytest

from tests.conftest import BrokerFactory
from tests.ecq.conftest import BARE
from tests.sdv.client import SESSION, Platform, requests
from tests.sdv.conftest import ConnectPlatform, ConnectVehicle


@pytest.mark.rule("S20", "S15")
def test_data_which_comes_while_one_is_in_flight_waits_for_its_end(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    device = vehicle(vin)
    platform.trigger([vin], "r1", f"late{vin}")
    platform.request("r2", vin)
    held = device.hold()
    platform.data(f"late{vin}", "late")
    device.expect_silence(0.2)
    device.ack(held)
    assert requests(device.drain()) == ["r1"]


@pytest.mark.rule("S19", "S20", "S15")
def test_data_for_an_overtaken_row_is_sent_after_a_restart(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    broker = fresh_broker(BARE)
    platform = connect(of=broker)
    platform.trigger([vin], "oldest", "missing")
    platform.request("r1", vin)
    vehicle(vin, of=broker, **SESSION).hold()
    broker.kill()
    broker.restart()
    device = vehicle(vin, of=broker, listening=False, **SESSION)
    assert requests(device.drain()) == ["r1"]
    connect(of=broker).data("missing", "x")
    assert requests(device.drain()) == ["oldest"]
