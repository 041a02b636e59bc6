"""Vehicles, requests and data may have odd and long names (section 2)."""

from __future__ import annotations

import json

import pytest

from tests.ecq.client import PAYLOAD_INVALID, SUCCESS, UNSPECIFIED
from tests.sdv.client import TRIGGER, Platform, requests
from tests.sdv.conftest import ConnectVehicle
from tests.sdv.control import Fanout

ODD = [" ", "a b", "%2F", "$SYS", "Ω-äöü", "日本語", "🚗", "{VIN}", "${clientid}", "..", "'\"\\"]
NAME_BYTES_MAX = 1024


@pytest.mark.rule("section 2", "section 1")
@pytest.mark.parametrize("name", ODD)
def test_odd_names_of_vehicles_requests_and_data(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str, name: str
) -> None:
    odd = f"{name}{vin}"
    assert platform.data(odd, "x") == SUCCESS
    assert platform.trigger([odd], odd, odd) == SUCCESS
    assert platform.trigger([odd], f"{odd}-2", odd) == SUCCESS
    assert fanout.pending(odd) == [odd, f"{odd}-2"]
    received = vehicle(odd).drain()
    assert [one.topic for one in received] == [
        f"agent/{odd}/proxy/request/{odd}",
        f"agent/{odd}/proxy/request/{odd}-2",
    ]
    assert [one.payload for one in received] == ["x", "x"]
    assert fanout.request(odd)["acked"] == 1


@pytest.mark.rule("section 2")
def test_a_data_id_may_have_levels(platform: Platform, vehicle: ConnectVehicle, vin: str) -> None:
    device = vehicle(vin)
    if platform.data(f"a/b/{vin}", "x") == SUCCESS:
        platform.trigger([vin], "r", f"a/b/{vin}")
        assert device.take().payload == "x"


@pytest.mark.rule("section 2", "S3")
@pytest.mark.parametrize("request_id", ["", "a/b", "+", "#", "a\u0000b"])
def test_a_request_which_makes_no_topic_is_refused_or_sent_as_it_is(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str, request_id: str
) -> None:
    """A vehicle may never be stuck behind a message which no topic can carry."""
    device = vehicle(vin)
    platform.data(f"d{vin}", "x")
    code = platform.trigger([vin], request_id, f"d{vin}")
    assert code >= UNSPECIFIED or request_id == "a/b"
    platform.trigger([vin], "next", f"d{vin}")
    assert requests(device.drain())[-1:] == ["next"]


@pytest.mark.rule("section 2")
@pytest.mark.parametrize("length", [400, 512, NAME_BYTES_MAX])
def test_long_names(
    platform: Platform, vehicle: ConnectVehicle, fanout: Fanout, vin: str, length: int
) -> None:
    car, data_id, request_id = (vin + letter * (length - len(vin)) for letter in "vdr")
    others = [name[:-1] + "x" for name in (request_id, data_id)]
    assert platform.data(data_id, "x") == SUCCESS
    assert platform.data(others[1], "y") == SUCCESS
    assert platform.trigger([car], request_id, data_id) == SUCCESS
    assert platform.trigger([car], *others) == SUCCESS
    received = vehicle(car).drain()
    assert requests(received) == [request_id, others[0]]
    assert [one.payload for one in received] == ["x", "y"]
    assert fanout.pending(car) == []


@pytest.mark.rule("section 2", "S3")
def test_longer_names_are_refused_with_the_limit(
    platform: Platform, fanout: Fanout, vin: str
) -> None:
    long = "x" * (NAME_BYTES_MAX + 1)
    assert platform.data(long, "x") >= UNSPECIFIED
    for trigger in (([vin, long], "r", "d"), ([vin], long, "d"), ([vin], "r", long)):
        body = dict(zip(("ids", "request_id", "data_id"), trigger, strict=True))
        answer = platform.wire.publish(TRIGGER, json.dumps(body), qos=1)
        assert answer.reason_code == PAYLOAD_INVALID
        assert str(NAME_BYTES_MAX) in answer.properties["reason_string"]
    assert fanout.pending(vin) == []


@pytest.mark.rule("section 2", "S3")
def test_a_topic_which_would_be_too_long_blocks_nobody(
    platform: Platform, vehicle: ConnectVehicle, vin: str
) -> None:
    device = vehicle(vin)
    platform.data(f"d{vin}", "x")
    body = {"ids": [vin], "request_id": "r" * 65_530, "data_id": f"d{vin}"}
    assert platform.publish(TRIGGER, json.dumps(body)) >= UNSPECIFIED
    platform.trigger([vin], "next", f"d{vin}")
    assert requests(device.drain()) == ["next"]
