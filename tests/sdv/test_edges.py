"""Corners where rules of fan-out meet each other and the rest of MQTT."""

from __future__ import annotations

import json
import time

import pytest

from tests.conftest import BrokerFactory
from tests.ecq.client import SUCCESS
from tests.ecq.conftest import BARE, VERSIONS
from tests.harness import packets as p
from tests.queues.client import wait_until
from tests.sdv.client import SESSION, TRIGGER, Platform, Vehicle, requests
from tests.sdv.conftest import ConnectPlatform, ConnectVehicle, Garage
from tests.sdv.control import Fanout


@pytest.mark.rule("S12", "S18")
@pytest.mark.parametrize("fields", [{}, SESSION], ids=["clean", "session"])
def test_a_message_too_large_for_the_vehicle_blocks_nothing(
    platform: Platform, vehicle: ConnectVehicle, vin: str, fields: dict[str, object]
) -> None:
    """A server may not send it; the vehicle gets what comes after it."""
    properties = {"maximum_packet_size": 1000, "session_expiry_interval": 3600 if fields else 0}
    device = vehicle(vin, **(fields | {"properties": properties}))
    platform.request("r1", vin)
    platform.data(f"big{vin}", bytes(5000))
    platform.trigger([vin], "big", f"big{vin}")
    platform.request("r2", vin)
    received = requests(device.drain(1.0))
    device.heartbeat()
    received += requests(device.drain())
    assert received == ["r1", "r2"]


@pytest.mark.rule("S12", "S16")
def test_a_full_window_only_delays(platform: Platform, vehicle: ConnectVehicle, vin: str) -> None:
    properties = {"receive_maximum": 1, "session_expiry_interval": 3600}
    device = vehicle(vin, clean=False, properties=properties)
    device.subscribe(f"plain/{vin}")
    platform.publish(f"plain/{vin}", "plain")
    plain = device.hold()
    platform.request("r1", vin)
    platform.request("r2", vin)
    for _ in range(3):
        device.heartbeat()
    device.expect_silence(0.2)
    device.ack(plain)
    assert requests(device.drain(1.0)) == ["r1", "r2"]


@pytest.mark.rule("S16", "S22")
def test_what_waited_for_the_window_comes_once_after_a_resume(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    properties = {"receive_maximum": 1, "session_expiry_interval": 3600}
    device = vehicle(vin, clean=False, properties=properties)
    device.subscribe(f"plain/{vin}")
    platform.publish(f"plain/{vin}", "plain")
    device.hold()
    platform.request("r1", vin)
    device.expect_silence(0.2)
    device.abort()
    again = vehicle(vin, listening=False, clean=False, properties=properties)
    again.heartbeat()
    received = again.drain(1.0)
    assert [one.payload for one in received] == ["plain", "data of r1"]


@pytest.mark.rule("S16", "S22", "T5")
@VERSIONS
def test_a_vehicle_which_is_lost_again_and_again_gets_one_copy_each_time(
    platform: Platform, vehicle: ConnectVehicle, vin: str, version: int
) -> None:
    fields = SESSION if version == 5 else {"clean": False, "version": 4}
    device = vehicle(vin, **fields)
    platform.request("r1", vin)
    platform.request("r2", vin)
    device.hold()
    for _ in range(4):
        device.abort()
        device = vehicle(vin, listening=False, **fields)
        device.online()
        held = device.hold_all(0.3)
        assert requests(held) == ["r1"]
    device.ack(*held)
    assert requests(device.drain()) == ["r2"]


@pytest.mark.rule("S13", "S18")
def test_a_vehicle_which_unsubscribes_in_flight_gets_no_more(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str
) -> None:
    device = vehicle(vin)
    platform.request("r1", vin)
    platform.request("r2", vin)
    held = device.hold()
    device.unsubscribe(device.filter)
    device.ack(held)
    device.heartbeat()
    device.expect_silence(0.2)
    assert fanout.pending(vin) == ["r2"]
    device.listen()
    assert requests(device.drain()) == ["r2"]


@pytest.mark.rule("S13", "S14")
def test_a_vehicle_which_subscribed_with_qos_0_is_not_stuck(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    device = vehicle(vin, listening=False)
    device.listen(qos=0)
    platform.request("r1", vin)
    platform.request("r2", vin)
    early = device.drain()
    device.listen(qos=1)
    device.heartbeat()
    received = [*early, *device.drain()]
    assert requests(received) == ["r1", "r2"]


@pytest.mark.rule("S13", "S14")
def test_a_vehicle_may_subscribe_with_qos_2(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    device = vehicle(vin, listening=False)
    assert device.listen(qos=2) == 2
    platform.request("r1", vin)
    platform.request("r2", vin)
    received = device.drain()
    assert requests(received) == ["r1", "r2"]
    assert {one.packet.qos for one in received} == {1}


@pytest.mark.rule("S15")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_heartbeats_of_every_qos(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str, qos: int
) -> None:
    device = vehicle(vin)
    platform.trigger([vin], "r1", f"d{vin}")
    assert fanout.pending(vin) == ["r1"]
    assert device.publish(f"ecp/{vin}/heartbeat", "x", qos=qos) in (0, 0x10)
    device.expect_silence(0.1)
    platform.data(f"d{vin}", "x")
    assert requests(device.drain()) == ["r1"]


@pytest.mark.rule("S2")
def test_a_qos_2_trigger_sent_twice_counts_once(
    platform: Platform, fanout: Fanout, vin: str
) -> None:
    body = json.dumps({"ids": [vin], "request_id": "r", "data_id": "d"})
    for dup in (False, True):
        platform.wire.send_publish(TRIGGER, body, qos=2, packet_id=9, dup=dup)
        platform.wire.expect(p.PUBREC, packet_id=9, reason_code=SUCCESS)
    platform.wire.acknowledge(p.PUBREL, 9)
    platform.wire.expect(p.PUBCOMP, packet_id=9)
    assert fanout.pending(vin) == ["r"]


@pytest.mark.rule("S15", "section 1")
def test_a_vehicle_may_be_the_platform(garage: Garage, vin: str) -> None:
    both = garage.open(Vehicle, vin)
    both.listen()
    assert both.publish(f"$SDV-FANOUT/data/d{vin}", "x") == SUCCESS
    body = json.dumps({"ids": [vin], "request_id": "r", "data_id": f"d{vin}"})
    assert both.publish(TRIGGER, body) == SUCCESS
    assert requests(both.drain()) == ["r"]


@pytest.mark.rule("S26", "S22")
def test_a_row_which_expires_in_flight_is_no_harm(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    broker = fresh_broker(BARE | {"sdv.data_retention": "1s"})
    platform, device = connect(of=broker), vehicle(vin, of=broker)
    platform.request("r1", vin)
    held = device.hold()
    time.sleep(1.1)
    Fanout(broker).collect()
    device.ack(held)
    wait_until(lambda: Fanout(broker).remaining() == 0)
    platform.request("r2", vin)
    assert requests(device.drain()) == ["r2"]


@pytest.mark.rule("section 7", "S22")
def test_a_row_cancelled_while_the_vehicle_is_away_is_no_harm(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str
) -> None:
    device = vehicle(vin, **SESSION)
    platform.request(f"r1{vin}", vin)
    platform.request("r2", vin)
    device.hold()
    device.abort()
    wait_until(lambda: fanout.inspect(vin)["connected"] is False)
    fanout.cancel(f"r1{vin}")
    again = vehicle(vin, listening=False, **SESSION)
    again.heartbeat()
    received = requests(again.drain(1.0))
    assert received[-1] == "r2"
    assert received in ([f"r1{vin}", "r2"], ["r2"])


@pytest.mark.rule("S10", "S12", "S18")
def test_a_trigger_for_a_vehicle_with_one_in_flight_waits(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    device = vehicle(vin)
    platform.request("same", vin, payload="1")
    held = device.hold()
    platform.request("same", vin, payload="2")
    device.expect_silence(0.2)
    device.ack(held)
    second = device.hold()
    assert second.payload == "2"
    device.ack(second)
    device.expect_silence(0.2)


@pytest.mark.rule("S12", "S18")
def test_an_acknowledgement_sent_twice_counts_once(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str
) -> None:
    device = vehicle(vin)
    for request_id in ("r1", "r2", "r3"):
        platform.request(request_id, vin)
    held = device.hold()
    device.wire.acknowledge(p.PUBACK, held.packet.packet_id)
    second = device.hold()
    if second.packet.packet_id != held.packet.packet_id:
        device.ack(held)
        device.expect_silence(0.2)
    assert fanout.pending(vin) == ["r2", "r3"]
    device.ack(second)
    assert requests(device.drain()) == ["r3"]


@pytest.mark.rule("S1", "S13")
def test_ordinary_messages_below_the_prefix_are_ordinary(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str
) -> None:
    """Somebody publishes to the topic of a request: its PUBACK removes no row."""
    device = vehicle(vin)
    platform.trigger([vin], "r1", f"d{vin}")
    platform.publish(f"agent/{vin}/proxy/request/r1", "not of the broker")
    assert device.take().payload == "not of the broker"
    device.heartbeat()
    assert fanout.pending(vin) == ["r1"]
    platform.data(f"d{vin}", "x")
    assert device.take().payload == "x"
    wait_until(lambda: fanout.pending(vin) == [])


@pytest.mark.rule("S15", "S5")
def test_many_triggers_for_many_vehicles_without_a_pause(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    fleet = [vehicle(f"{vin}-{number}") for number in range(20)]
    ids = [one.client_id for one in fleet]
    platform.data(f"d{vin}", "x")
    expected = [f"task_a_{number}" for number in range(15)]
    for request_id in expected:
        body = json.dumps({"ids": ids, "request_id": request_id, "data_id": f"d{vin}"})
        platform.wire.send_publish(TRIGGER, body, qos=1)
    for _ in expected:
        assert platform.wire.expect(p.PUBACK).reason_code == SUCCESS
    for one in fleet:
        assert [requests([one.take()])[0] for _ in expected] == expected
