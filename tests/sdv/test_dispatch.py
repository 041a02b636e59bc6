"""When a vehicle gets its next message, and in which order (S8-S10, S12-S15, S17-S21)."""

from __future__ import annotations

import pytest

from tests.conftest import BrokerFactory
from tests.ecq.client import SUCCESS, Device
from tests.ecq.conftest import BARE, VERSIONS
from tests.harness import packets as p
from tests.queues.client import wait_until
from tests.sdv.client import Platform, Vehicle, requests
from tests.sdv.conftest import ConnectPlatform, ConnectVehicle
from tests.sdv.control import Fanout


@pytest.mark.rule("S13", "S15", "T2")
@VERSIONS
def test_a_vehicle_which_comes_later_gets_what_waits(
    platform: Platform, vehicle: ConnectVehicle, vin: str, version: int
) -> None:
    platform.request("r", vin)
    device = vehicle(vin, version=version)
    device.heartbeat()
    assert requests(device.drain()) == ["r"]


@pytest.mark.rule("S12", "S18", "T6")
@VERSIONS
def test_the_second_waits_for_the_acknowledgement_of_the_first(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str, version: int
) -> None:
    device = vehicle(vin, version=version)
    for request_id in ("task_b_1", "task_a_1", "task_c_1"):
        platform.request(request_id, vin)
    seen = []
    for _ in range(3):
        held = device.hold()
        seen.append(held)
        device.heartbeat()
        device.expect_silence(0.2)
        assert fanout.inspect(vin)["in_flight"]["request_id"] == requests([held])[0]
        device.ack(held)
    assert requests(seen) == ["task_b_1", "task_a_1", "task_c_1"]
    device.expect_silence(0.2)
    wait_until(lambda: fanout.pending(vin) == [])


@pytest.mark.rule("S8", "S9")
def test_triggers_keep_their_order_within_a_millisecond(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str
) -> None:
    """All in one write: many of them have the same time of arrival."""
    platform.data(f"d{vin}", "x")
    expected = [f"task_{9 - number % 10}_{number}" for number in range(40)]
    sent = b""
    for number, request_id in enumerate(expected, 1):
        body = f'{{"ids":["{vin}"],"request_id":"{request_id}","data_id":"d{vin}"}}'
        sent += p.publish("$SDV-FANOUT/trigger", body, qos=1, packet_id=number)
    platform.wire.send(sent)
    for _ in expected:
        assert platform.wire.expect(p.PUBACK).reason_code == SUCCESS
    rows = fanout.inspect(vin)["pending"]
    assert [one["request_id"] for one in rows] == expected
    assert len({one["ts"] for one in rows}) == len(rows)
    assert requests(vehicle(vin).drain()) == expected


@pytest.mark.rule("S8")
def test_all_rows_of_a_trigger_have_one_time(platform: Platform, fanout: Fanout, vin: str) -> None:
    fleet = [f"{vin}-{number}" for number in range(20)]
    platform.request("r", *fleet)
    assert len({fanout.inspect(one)["pending"][0]["ts"] for one in fleet}) == 1


@pytest.mark.rule("S10")
def test_the_same_request_again_is_queued_again(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    for text in ("1", "2", "3"):
        platform.request("task_a_1", vin, payload=text)
    received = vehicle(vin).drain()
    assert [one.payload for one in received] == ["1", "2", "3"]


@pytest.mark.rule("S10", "T13", "section 6")
def test_the_same_request_can_replace_what_was_not_sent(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    broker = fresh_broker(BARE | {"sdv.same_request": "replace"})
    platform, device = connect(of=broker), vehicle(vin, of=broker)
    platform.request("r1", vin, payload="in flight")
    held = device.hold()
    platform.request("r1", vin, payload="replaced")
    platform.request("r2", vin, payload="other")
    platform.request("r1", vin, payload="newest")
    assert Fanout(broker).pending(vin) == ["r1", "r2", "r1"]
    device.ack(held)
    assert [held.payload, *(one.payload for one in device.drain())] == [
        "in flight",
        "other",
        "newest",
    ]


@pytest.mark.rule("S10", "section 6")
def test_the_same_request_can_be_ignored(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    broker = fresh_broker(BARE | {"sdv.same_request": "ignore"})
    platform = connect(of=broker)
    platform.request("r1", vin, payload="1")
    platform.request("r2", vin, payload="2")
    platform.request("r1", vin, payload="3")
    device = vehicle(vin, of=broker)
    assert [one.payload for one in device.drain()] == ["1", "2"]
    platform.request("r1", vin, payload="4")
    assert [one.payload for one in device.drain()] == ["4"]


@pytest.mark.rule("S13", "S15", "T11")
@VERSIONS
def test_nothing_is_sent_before_the_vehicle_subscribes(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str, version: int
) -> None:
    device = vehicle(vin, listening=False, version=version)
    platform.request("r1", vin)
    device.online()
    device.heartbeat()
    device.expect_silence()
    found = fanout.inspect(vin)
    assert (found["connected"], found["subscribed"], found["in_flight"]) == (True, False, None)
    device.listen()
    assert requests(device.drain()) == ["r1"]
    device.unsubscribe(device.filter)
    platform.request("r2", vin)
    device.expect_silence(0.2)
    device.listen()
    assert requests(device.drain()) == ["r2"]


@pytest.mark.rule("S13", "section 2")
@pytest.mark.parametrize(
    "topic_filter",
    [
        "agent/{vin}/proxy/request/#",
        "agent/{vin}/#",
        "agent/{vin}/proxy/+/+",
        "agent/{vin}/proxy/request/+",
    ],
)
def test_a_broader_filter_will_do(
    platform: Platform, vehicle: ConnectVehicle, vin: str, topic_filter: str
) -> None:
    device = vehicle(vin, listening=False)
    assert device.subscribe(topic_filter.format(vin=vin)) == 1
    platform.request("r1", vin)
    platform.request("r2", vin)
    assert requests(device.drain()) == ["r1", "r2"]


@pytest.mark.rule("S13")
@pytest.mark.parametrize(
    "topic_filter", ["agent/{vin}/proxy/request/r1", "agent/{vin}/proxy/request", "agent/{vin}/+"]
)
def test_a_narrower_filter_will_not_do(
    platform: Platform, vehicle: ConnectVehicle, vin: str, topic_filter: str
) -> None:
    device = vehicle(vin, listening=False)
    device.subscribe(topic_filter.format(vin=vin))
    platform.request("r1", vin)
    device.heartbeat()
    device.expect_silence()


@pytest.mark.rule("S13")
def test_two_filters_bring_one_message(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    device = vehicle(vin)
    device.subscribe(f"agent/{vin}/#")
    platform.request("r1", vin)
    platform.request("r2", vin)
    assert requests(device.drain()) == ["r1", "r2"]


@pytest.mark.rule("S15", "section 2")
def test_heartbeats_are_ordinary_messages_too(
    connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    watcher, device = connect(), vehicle(vin)
    watcher.subscribe(f"ecp/{vin}/+")
    device.online()
    device.heartbeat()
    assert [watcher.take().payload for _ in range(2)] == ["on", "beat"]


@pytest.mark.rule("S17")
def test_somebody_elses_heartbeat_passes_as_an_ordinary_message(
    connect: ConnectPlatform, platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    watcher, device = connect(), vehicle(vin)
    other = vehicle(f"{vin}-2")
    watcher.subscribe("ecp/+/heartbeat")
    platform.request("r1", vin)
    held = device.hold()
    other.heartbeat(vin)
    assert watcher.take().topic == f"ecp/{vin}/heartbeat"
    device.expect_silence(0.2)
    other.expect_silence(0.1)
    device.ack(held)


@pytest.mark.rule("S18")
def test_many_rows_come_one_after_the_other(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str
) -> None:
    expected = [f"task_a_{number}" for number in range(30)]
    for request_id in expected:
        platform.request(request_id, vin, payload="x")
    device = vehicle(vin)
    assert requests(device.drain()) == expected
    wait_until(lambda: fanout.pending(vin) == [])
    device.heartbeat()
    device.expect_silence(0.2)


@pytest.mark.rule("S20", "S15", "T12")
def test_a_row_without_data_blocks_nobody(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str
) -> None:
    device = vehicle(vin)
    platform.trigger([vin], "r1", f"late{vin}")
    platform.request("r2", vin)
    platform.trigger([vin], "r3", f"later{vin}")
    platform.request("r4", vin)
    assert requests(device.drain()) == ["r2", "r4"]
    assert fanout.pending(vin) == ["r1", "r3"]
    device.heartbeat()
    device.expect_silence(0.2)
    platform.data(f"late{vin}", "late")
    assert device.take().payload == "late"
    platform.data(f"later{vin}", "later")
    assert device.take().payload == "later"


@pytest.mark.rule("S20", "S15")
def test_data_reaches_every_vehicle_which_waits_for_it(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    fleet = [vehicle(f"{vin}-{number}") for number in range(8)]
    platform.trigger([one.client_id for one in fleet], "r", f"d{vin}")
    fleet[0].expect_silence(0.2)
    platform.data(f"d{vin}", "here")
    assert [one.take().payload for one in fleet] == ["here"] * 8


@pytest.mark.rule("S21")
@pytest.mark.parametrize("code", [0x80, 0x87, 0x99])
def test_a_rejected_message_is_done_by_default(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str, code: int
) -> None:
    device = vehicle(vin)
    platform.request(f"r1{vin}", vin)
    platform.request("r2", vin)
    device.ack(device.hold(), code=code)
    assert requests(device.drain()) == ["r2"]
    wait_until(lambda: fanout.pending(vin) == [])
    assert fanout.request(f"r1{vin}")["rejected"] == 1


@pytest.mark.rule("S21", "section 6")
def test_a_rejected_message_can_come_again(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    broker = fresh_broker(BARE | {"sdv.on_reject": "retry"})
    device = vehicle(vin, of=broker)
    connect(of=broker).request("r1", vin)
    device.ack(device.hold(), code=0x80)
    assert requests([device.take()]) == ["r1"]
    device.expect_silence()
    wait_until(lambda: Fanout(broker).pending(vin) == [])


@pytest.mark.rule("S21", "section 6")
def test_a_rejected_message_can_become_a_dead_letter(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    broker = fresh_broker(BARE | {"sdv.on_reject": "dlq"})
    platform, device = connect(of=broker), vehicle(vin, of=broker)
    undertaker: Device = connect(of=broker)
    undertaker.subscribe("$queue/dlq/sdv-fanout")
    platform.data("d1", "payload")
    platform.trigger([vin], "r1", "d1")
    device.ack(device.hold(), code=0x97)
    packet = undertaker.take().packet
    told = f"{packet.payload!r} {packet.user_properties}"
    for word in (vin, "r1", "d1"):
        assert word in told
    assert any(code in told.lower() for code in ("0x97", "151"))
    device.heartbeat()
    device.expect_silence(0.2)
    assert Fanout(broker).pending(vin) == []


@pytest.mark.rule("S24a")
def test_a_vehicle_which_does_not_acknowledge_gets_no_second_copy(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    device = vehicle(vin)
    platform.request("r1", vin)
    device.hold()
    platform.request("r2", vin)
    for _ in range(3):
        device.heartbeat()
        device.online()
        device.listen()
    device.expect_silence(1.0)


@pytest.mark.rule("section 6", "S18")
def test_rows_over_the_limit_push_out_the_oldest_of_their_kind(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    broker = fresh_broker(BARE | {"sdv.max_pending_per_vehicle": 3})
    platform = connect(of=broker)
    for request_id in ("task_a_1", "task_b_1", "task_b_2", "task_b_3", "task_a_2"):
        platform.request(request_id, vin)
    assert Fanout(broker).pending(vin) == ["task_b_2", "task_b_3", "task_a_2"]
    device: Vehicle = vehicle(vin, of=broker)
    assert requests(device.drain()) == ["task_b_2", "task_b_3", "task_a_2"]
