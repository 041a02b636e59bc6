"""Data which comes late, for a row which others have overtaken (S15, S18, S20)."""

from __future__ import annotations

import pytest

from tests.sdv.client import Platform, requests
from tests.sdv.conftest import ConnectVehicle


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
