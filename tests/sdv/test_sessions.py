"""Vehicles which come, go and come back: no message is lost and none comes twice.

S16, S19, S22, S23; T3-T5, T16, T17.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import BrokerFactory
from tests.ecq.client import CLOSED
from tests.ecq.conftest import BARE, VERSIONS
from tests.harness.broker import BrokerProcess
from tests.queues.client import wait_until
from tests.sdv.client import SESSION, Platform, requests
from tests.sdv.conftest import ConnectPlatform, ConnectVehicle
from tests.sdv.control import Fanout

ENDINGS = pytest.mark.parametrize("ending", ["kill", "stop"])


def session(version: int) -> dict[str, Any]:
    """A session which stays while the vehicle is away."""
    return SESSION | {"version": 5} if version == 5 else {"clean": False, "version": 4}


@pytest.mark.rule("S13", "S16", "T3")
@VERSIONS
def test_nothing_is_queued_in_the_session_of_a_vehicle_which_is_away(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str, version: int
) -> None:
    vehicle(vin, **session(version)).disconnect()
    platform.request("r1", vin)
    platform.request("r2", vin)
    found = fanout.inspect(vin)
    assert (found["connected"], found["in_flight"]) == (False, None)
    assert fanout.call("client", client_id=vin)["queued_messages"] == 0
    again = vehicle(vin, listening=False, **session(version))
    again.heartbeat()
    held = again.hold_all()
    assert requests(held) == ["r1"]
    assert not held[0].packet.dup
    again.ack(*held)
    assert requests(again.drain()) == ["r2"]


@pytest.mark.rule("S15", "S16", "S22", "T4")
@pytest.mark.parametrize("ending", ["abort", "disconnect"])
@VERSIONS
def test_a_resumed_session_redelivers_once(
    platform: Platform, vehicle: ConnectVehicle, vin: str, version: int, ending: str
) -> None:
    device = vehicle(vin, **session(version))
    platform.request("r1", vin)
    platform.request("r2", vin)
    device.hold()
    getattr(device, ending)()
    again = vehicle(vin, listening=False, **session(version))
    held = again.hold_all()
    assert requests(held) == ["r1"]
    assert held[0].packet.dup
    again.ack(*held)
    assert requests(again.drain()) == ["r2"]


@pytest.mark.rule("S16", "S22", "T5")
@VERSIONS
def test_a_heartbeat_before_the_acknowledgement_doubles_nothing(
    platform: Platform, vehicle: ConnectVehicle, vin: str, version: int
) -> None:
    device = vehicle(vin, **session(version))
    platform.request("r1", vin)
    device.hold()
    device.abort()
    again = vehicle(vin, listening=False, **session(version))
    held = again.hold()
    assert held.packet.dup
    for _ in range(3):
        again.heartbeat()
        again.online()
    again.listen()
    again.expect_silence(1.5)
    again.ack(held)
    again.heartbeat()
    again.expect_silence(0.2)
    platform.request("r2", vin)
    assert requests(again.drain()) == ["r2"]


@pytest.mark.rule("S16", "S15")
def test_a_trigger_after_a_resume_doubles_nothing(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    device = vehicle(vin, **SESSION)
    platform.request("r1", vin)
    device.hold()
    device.abort()
    platform.request("r2", vin)
    again = vehicle(vin, listening=False, **SESSION)
    platform.request("r3", vin)
    received = again.hold_all()
    while received[-1:] and (more := _acknowledge_last(again, received)):
        received += more
    assert sorted(requests(received)) == ["r1", "r2", "r3"]
    assert received[0].packet.dup


def _acknowledge_last(device: Any, received: list[Any]) -> list[Any]:
    device.ack(received[-1])
    return list(device.hold_all())


@pytest.mark.rule("S22", "S13")
def test_a_clean_session_gets_the_row_anew(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str
) -> None:
    device = vehicle(vin)
    platform.request("r1", vin)
    device.hold()
    device.abort()
    wait_until(lambda: fanout.inspect(vin)["in_flight"] is None)
    assert fanout.pending(vin) == ["r1"]
    again = vehicle(vin)
    held = again.hold_all()
    assert requests(held) == ["r1"]
    assert not held[0].packet.dup
    again.ack(*held)
    again.expect_silence(0.2)
    wait_until(lambda: fanout.pending(vin) == [])


@pytest.mark.rule("S22", "S16")
def test_a_session_which_was_discarded_gets_the_row_anew(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    device = vehicle(vin, **SESSION)
    platform.request("r1", vin)
    device.hold()
    device.abort()
    again = vehicle(vin)  # a clean start
    again.heartbeat()
    assert requests(again.drain()) == ["r1"]


@pytest.mark.rule("S12", "S13", "T17")
@VERSIONS
def test_a_second_connection_takes_over(
    platform: Platform, vehicle: ConnectVehicle, vin: str, version: int
) -> None:
    first = vehicle(vin, version=version)
    platform.request("r1", vin)
    platform.request("r2", vin)
    first.hold()
    second = vehicle(vin, version=version)
    assert first.publish("any", "x") == CLOSED
    held = second.hold_all()
    assert requests(held) == ["r1"]
    second.ack(*held)
    assert requests(second.drain()) == ["r2"]


@pytest.mark.rule("S16", "T17")
def test_a_takeover_of_a_session_redelivers_once(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    """The first connection is half open: it says nothing, and does not close."""
    vehicle(vin, **SESSION)
    platform.request("r1", vin)
    second = vehicle(vin, **SESSION)
    second.heartbeat()
    held = second.hold_all()
    assert requests(held) == ["r1"]
    second.ack(*held)
    second.expect_silence(0.2)


@pytest.mark.rule("S12", "T17")
def test_two_vehicles_with_one_vin_lose_nothing(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    expected = [f"task_a_{number}" for number in range(10)]
    for request_id in expected:
        platform.request(request_id, vin)
    seen: list[str] = []
    for number in range(8):
        device = vehicle(vin)
        held = device.hold()
        seen += requests([held])
        if number % 2:
            device.ack(held)
    seen += requests(vehicle(vin).drain(1.0))
    assert set(seen) == set(expected)
    assert sorted(seen, key=expected.index) == seen


@ENDINGS
@pytest.mark.rule("S19", "S23", "T16")
@VERSIONS
def test_vehicles_go_on_after_a_restart_with_messages_in_flight(
    fresh_broker: BrokerFactory,
    connect: ConnectPlatform,
    vehicle: ConnectVehicle,
    ending: str,
    version: int,
) -> None:
    broker = fresh_broker(BARE)
    fields = session(version)
    fleet = [vehicle(f"v{number}", of=broker, **fields) for number in range(3)]
    clean = vehicle("clean", of=broker, version=version)
    platform = connect(of=broker)
    for request_id in ("r1", "r2"):
        platform.request(request_id, "v0", "v1", "v2", "clean")
    for one in (*fleet, clean):
        assert requests([one.hold()]) == ["r1"]
    getattr(broker, ending)()
    broker.restart()
    assert Fanout(broker).remaining() == 8
    for number in range(3):
        again = vehicle(f"v{number}", of=broker, listening=False, **fields)
        again.heartbeat()
        held = again.hold_all()
        assert requests(held) == ["r1"]
        again.ack(*held)
        assert requests(again.drain()) == ["r2"]
    clean = vehicle("clean", of=broker, version=version)
    clean.heartbeat()
    assert requests(clean.drain()) == ["r1", "r2"]
    wait_until(lambda: Fanout(broker).remaining() == 0)


def resumed_after_a_kill(broker: BrokerProcess, vehicle: ConnectVehicle, vin: str) -> Any:
    """The vehicle holds a message; the broker is killed; the vehicle is back."""
    vehicle(vin, of=broker, **SESSION).hold()
    broker.kill()
    broker.restart()
    return vehicle(vin, of=broker, listening=False, **SESSION)


@pytest.mark.rule("S19", "S20")
def test_an_acknowledgement_nobody_remembers_removes_the_row_it_names(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    """The oldest row of the vehicle is another one, whose data is missing."""
    broker = fresh_broker(BARE)
    platform = connect(of=broker)
    platform.trigger([vin], "oldest", "missing")
    platform.request("r1", vin)
    platform.request("r2", vin)
    device = resumed_after_a_kill(broker, vehicle, vin)
    assert requests(device.drain()) == ["r1", "r2"]
    assert Fanout(broker).pending(vin) == ["oldest"]


@pytest.mark.rule("S19", "S10")
def test_an_acknowledgement_nobody_remembers_removes_the_oldest_of_its_request(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    broker = fresh_broker(BARE)
    platform = connect(of=broker)
    for text in ("1", "2", "3"):
        platform.request("same", vin, payload=text)
    device = resumed_after_a_kill(broker, vehicle, vin)
    assert [one.payload for one in device.drain()] == ["1", "2", "3"]


@pytest.mark.rule("S19")
def test_an_acknowledgement_of_a_row_which_is_gone_removes_nothing(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    broker = fresh_broker(BARE)
    platform = connect(of=broker)
    for request_id in ("r1", "r2", "r3"):
        platform.request(request_id, vin)
    vehicle(vin, of=broker, **SESSION).hold()
    broker.kill()
    broker.restart()
    Fanout(broker).cancel("r1", vin)
    device = vehicle(vin, of=broker, listening=False, **SESSION)
    received = requests(device.drain())
    assert received in (["r1", "r2", "r3"], ["r2", "r3"])
