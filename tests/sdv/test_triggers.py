"""Data and triggers: what is taken, what is refused and how (S1-S3, S6-S8, S11, T1, T7, T8)."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.conftest import BrokerFactory
from tests.ecq.client import CLOSED, NOT_AUTHORIZED, PAYLOAD_INVALID, SUCCESS, UNSPECIFIED
from tests.ecq.conftest import BARE, VERSIONS
from tests.ecq.tables import row_counts
from tests.sdv.client import TRIGGER, Platform, requests
from tests.sdv.conftest import ConnectPlatform, ConnectVehicle
from tests.sdv.control import Fanout

WRONG_TRIGGERS = [
    b"",
    b"not JSON",
    b"\xff\xfe",
    b"[]",
    b'"ids"',
    b"null",
    b"{}",
    b'{"ids":["{vin}"]}',
    b'{"ids":["{vin}"],"request_id":"r"}',
    b'{"ids":["{vin}"],"data_id":"d"}',
    b'{"request_id":"r","data_id":"d"}',
    b'{"ids":"{vin}","request_id":"r","data_id":"d"}',
    b'{"ids":["{vin}",1],"request_id":"r","data_id":"d"}',
    b'{"ids":["{vin}",null],"request_id":"r","data_id":"d"}',
    b'{"ids":["{vin}",""],"request_id":"r","data_id":"d"}',
    b'{"ids":["{vin}","a/b"],"request_id":"r","data_id":"d"}',
    b'{"ids":["{vin}","+"],"request_id":"r","data_id":"d"}',
    b'{"ids":["{vin}","a#"],"request_id":"r","data_id":"d"}',
    b'{"ids":["{vin}"],"request_id":1,"data_id":"d"}',
    b'{"ids":["{vin}"],"request_id":"r","data_id":["d"]}',
    b'{"ids":["{vin}"],"request_id":"r","data_id":"d"',
    b"[" * 10_000,
]


@pytest.mark.rule("S2", "S8", "S14", "T1")
@VERSIONS
def test_each_vehicle_gets_its_message_once(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str, version: int
) -> None:
    fleet = [vehicle(f"{vin}-{number}", version=version) for number in range(10)]
    assert platform.data(f"d{vin}", b"\x00\xff") == SUCCESS
    assert platform.trigger([one.client_id for one in fleet], f"task_a_{vin}", f"d{vin}") == SUCCESS
    for one in fleet:
        packet = one.take().packet
        assert packet.topic == f"agent/{one.client_id}/proxy/request/task_a_{vin}"
        assert (packet.payload, packet.qos) == (b"\x00\xff", 1)
        assert (packet.retain, packet.dup) == (False, False)
    for one in fleet:
        one.expect_silence(0.1)
    found = fanout.request(f"task_a_{vin}")
    assert (found["acked"], found["pending"], found["in_flight"]) == (10, 0, 0)


@pytest.mark.rule("S1")
def test_data_and_triggers_are_hidden(
    connect: ConnectPlatform, platform: Platform, vin: str
) -> None:
    watcher = connect()
    for topic_filter in ("#", "+/#", "+/+", "+/+/+", "$share/g/#", "$q/#"):
        watcher.subscribe(topic_filter)
    for topic_filter in ("$SDV-FANOUT/#", "$SDV-FANOUT/trigger", "$SDV-FANOUT/+/+"):
        assert watcher.subscribe(topic_filter) == NOT_AUTHORIZED
    assert platform.data(f"d{vin}", "x", retain=True) == SUCCESS
    assert platform.trigger([vin], "r", f"d{vin}") == SUCCESS
    watcher.expect_silence()
    late = connect()
    late.subscribe("#")
    late.expect_silence(0.2)


@pytest.mark.rule("S1", "section 2")
@pytest.mark.parametrize("topic", ["$SDV-FANOUT/data", "$SDV-FANOUT/data/", "$SDV-FANOUT/x"])
def test_other_topics_of_the_family_are_refused(platform: Platform, topic: str) -> None:
    assert platform.publish(topic, "x") >= UNSPECIFIED


@pytest.mark.rule("S2")
@pytest.mark.parametrize("qos", [0, 1, 2])
@VERSIONS
def test_data_and_triggers_of_every_qos(
    connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str, version: int, qos: int
) -> None:
    old = connect(version=version)
    device = vehicle(vin, version=version)
    assert old.data(f"d{vin}", "x", qos=qos) == SUCCESS
    assert old.trigger([vin], "r", f"d{vin}", qos=qos) == SUCCESS
    assert device.take().payload == "x"


@pytest.mark.rule("S3", "T7")
@pytest.mark.parametrize("body", WRONG_TRIGGERS)
@pytest.mark.parametrize("qos", [1, 2])
def test_a_wrong_trigger_is_refused_as_a_whole(
    platform: Platform, fanout: Fanout, vin: str, body: bytes, qos: int
) -> None:
    packet = platform.wire.publish(TRIGGER, body.replace(b"{vin}", vin.encode()), qos=qos)
    assert packet.reason_code == PAYLOAD_INVALID
    assert packet.properties["reason_string"]
    assert fanout.pending(vin) == []
    platform.request("r", vin)
    assert fanout.pending(vin) == ["r"]


@pytest.mark.rule("S3", "T7")
def test_an_old_client_is_disconnected_for_a_wrong_trigger(
    connect: ConnectPlatform, fanout: Fanout, vin: str
) -> None:
    for body in (b"not JSON", json.dumps({"ids": [vin]}).encode()):
        assert connect(version=4).publish(TRIGGER, body) == CLOSED
    assert fanout.pending(vin) == []


@pytest.mark.rule("S3", "T7", "section 6")
@VERSIONS
def test_a_wrong_trigger_can_disconnect(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, version: int
) -> None:
    broker = fresh_broker(BARE | {"sdv.on_invalid": "disconnect"})
    for body in (b"not JSON", b'{"ids":["v"]}'):
        assert connect(of=broker, version=version).publish(TRIGGER, body) == CLOSED
    connect(of=broker).request("r", "v")
    assert Fanout(broker).remaining() == 1


@pytest.mark.rule("S3", "section 2")
def test_members_nobody_knows_are_ignored(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    device = vehicle(vin)
    platform.data(f"d{vin}", "x")
    assert platform.trigger([vin], "r", f"d{vin}", more=1, priority={"a": []}) == SUCCESS
    assert device.take().payload == "x"


@pytest.mark.rule("S6")
def test_an_id_which_is_named_twice_counts_once(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str
) -> None:
    platform.data(f"d{vin}", "x")
    assert platform.trigger([vin, f"{vin}-2", vin, vin], "r", f"d{vin}") == SUCCESS
    assert fanout.pending(vin) == ["r"]
    device = vehicle(vin)
    assert requests(device.drain()) == ["r"]
    assert fanout.pending(f"{vin}-2") == ["r"]


@pytest.mark.rule("S6", "section 2")
def test_a_trigger_for_nobody_is_taken(platform: Platform, vin: str) -> None:
    assert platform.trigger([], f"r{vin}", f"d{vin}") == SUCCESS


@pytest.mark.rule("S6", "S15", "S20")
def test_a_trigger_may_come_before_its_data(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str
) -> None:
    device = vehicle(vin)
    assert platform.trigger([vin], "r", f"d{vin}") == SUCCESS
    device.expect_silence(0.2)
    assert fanout.pending(vin) == ["r"]
    assert platform.data(f"d{vin}", "late") == SUCCESS
    assert device.take().payload == "late"


@pytest.mark.rule("S7", "T8")
def test_the_first_bytes_of_a_data_id_stay(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    device = vehicle(vin)
    assert platform.data(f"d{vin}", "first") == SUCCESS
    assert platform.data(f"d{vin}", "second, and longer") == SUCCESS
    platform.trigger([vin], "r", f"d{vin}")
    assert device.take().payload == "first"


@pytest.mark.rule("S7", "S11", "section 3")
def test_a_payload_is_stored_once(fresh_broker: BrokerFactory, connect: ConnectPlatform) -> None:
    broker = fresh_broker(BARE)
    platform = connect(of=broker)
    for number in range(3):
        platform.data("d", bytes(5000))
        platform.trigger([f"v{number}", "v"], f"r{number}", "d")
    status = Fanout(broker).status()
    assert (status["remaining_messages"], status["unique_payloads"]) == (6, 1)
    assert 5000 <= status["memory_usage"]["data"]["payload"] < 10_000
    tables = ("sdv_fanout_data", "sdv_fanout_meta", "sdv_fanout_ids")
    assert row_counts(broker, *tables) == [1, 1, 6]


@pytest.mark.rule("S7", "section 6")
def test_data_can_be_checked_against_its_id(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    broker = fresh_broker(BARE | {"sdv.verify_sha1": True})
    platform, device = connect(of=broker), vehicle(vin, of=broker)
    digest = hashlib.sha1(b"right").hexdigest()
    assert platform.data(digest, "wrong") >= UNSPECIFIED
    assert Fanout(broker).status()["unique_payloads"] == 0
    assert platform.data(digest, "right") == SUCCESS
    platform.trigger([vin], "r", digest)
    assert device.take().payload == "right"


@pytest.mark.rule("S2", "section 2")
@pytest.mark.parametrize("size", [0, 1, 40_000, 1_000_000])
def test_data_of_any_size(platform: Platform, vehicle: ConnectVehicle, vin: str, size: int) -> None:
    device, payload = vehicle(vin), bytes(index % 251 for index in range(size))
    assert platform.data(f"d{vin}", payload) == SUCCESS
    platform.trigger([vin], "r", f"d{vin}")
    assert device.take().packet.payload == payload
