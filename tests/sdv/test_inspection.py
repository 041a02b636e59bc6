"""What operators are told of fan-out, and what they can call back (section 7)."""

from __future__ import annotations

import pytest

from queuelake.errors import AnswerError
from tests.conftest import BrokerFactory
from tests.ecq.conftest import BARE
from tests.queues.client import wait_until
from tests.sdv.client import Platform, requests
from tests.sdv.conftest import ConnectPlatform, ConnectVehicle
from tests.sdv.control import Fanout


@pytest.mark.rule("section 7")
def test_an_empty_broker(fresh_broker: BrokerFactory) -> None:
    fanout = Fanout(fresh_broker(BARE))
    usage = {"index": 0, "data": {"payload": 0, "meta": 0}}
    empty = {"remaining_messages": 0, "unique_payloads": 0, "memory_usage": usage}
    assert fanout.status() == empty
    assert fanout.pending("nobody") == []
    assert fanout.collect() is True


@pytest.mark.rule("section 7", "section 3")
def test_the_status_counts_rows_and_payloads(
    fresh_broker: BrokerFactory, connect: ConnectPlatform
) -> None:
    broker = fresh_broker(BARE)
    platform, fanout = connect(of=broker), Fanout(broker)
    platform.request("r1", "v1", "v2", "v3")
    platform.request("r2", "v1")
    for _ in range(2):
        status = fanout.status()
        assert (status["remaining_messages"], status["unique_payloads"]) == (4, 2)
        usage = status["memory_usage"]
        assert usage["index"] > 0
        assert usage["data"]["payload"] >= len("data of r1") * 2
        assert usage["data"]["meta"] > 0
        broker.kill()
        broker.restart()


@pytest.mark.rule("section 7", "S12")
def test_a_vehicle_tells_what_waits_and_what_is_in_flight(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str
) -> None:
    platform.request("r1", vin)
    platform.trigger([vin], "r2", f"missing{vin}")
    found = fanout.inspect(vin)
    assert [one["request_id"] for one in found["pending"]] == ["r1", "r2"]
    assert [one["has_data"] for one in found["pending"]] == [True, False]
    assert (found["connected"], found["subscribed"], found["in_flight"]) == (False, False, None)
    device = vehicle(vin)
    device.hold()
    found = fanout.inspect(vin)
    assert (found["connected"], found["subscribed"]) == (True, True)
    assert found["in_flight"]["request_id"] == "r1"


@pytest.mark.rule("section 7", "S21")
def test_a_request_tells_how_far_it_has_come(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str
) -> None:
    request_id, fleet = f"task_{vin}", [f"{vin}-{number}" for number in range(4)]
    devices = [vehicle(one) for one in fleet[:3]]
    platform.request(request_id, *fleet)
    held = [one.hold() for one in devices]
    found = fanout.request(request_id)
    assert (found["pending"], found["in_flight"], found["acked"]) == (1, 3, 0)
    devices[0].ack(held[0])
    devices[1].ack(held[1], code=0x80)

    def counts() -> tuple[int, ...]:
        told = fanout.request(request_id)
        return tuple(told[key] for key in ("pending", "in_flight", "acked", "rejected", "expired"))

    wait_until(lambda: counts() == (1, 1, 1, 1, 0))


@pytest.mark.rule("section 7")
def test_a_request_nobody_made(fanout: Fanout, vin: str) -> None:
    try:
        assert fanout.request(f"no{vin}")["triggered"] == 0
    except AnswerError as error:
        assert error.http_status == 404


@pytest.mark.rule("section 7")
def test_a_request_can_be_cancelled(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str
) -> None:
    """What is in flight stays; the rest goes, for some vehicles or for all."""
    request_id, fleet = f"task_{vin}", [f"{vin}-{number}" for number in range(4)]
    first = vehicle(fleet[0])
    platform.request(request_id, *fleet)
    platform.request("other", *fleet)
    held = first.hold()
    assert fanout.cancel(request_id, fleet[1])["cancelled"] == 1
    assert fanout.pending(fleet[1]) == ["other"]
    assert fanout.pending(fleet[2]) == [request_id, "other"]
    assert fanout.cancel(request_id)["cancelled"] == 2
    assert [fanout.pending(one) for one in fleet[1:]] == [["other"]] * 3
    first.ack(held)
    assert requests(first.drain()) == ["other"]
    assert requests(vehicle(fleet[3]).drain()) == ["other"]
