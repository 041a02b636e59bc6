"""Who may trigger and who may listen (section 8), by the shipped rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.v5.test_access import add_user
from tests.conftest import BrokerFactory
from tests.ecq.client import NOT_AUTHORIZED, SUCCESS
from tests.ecq.conftest import BARE
from tests.harness.broker import BrokerProcess
from tests.sdv.client import TRIGGER, requests
from tests.sdv.conftest import ConnectPlatform, ConnectVehicle
from tests.sdv.control import Fanout

OPS = {"username": "ops", "password": "secret"}
CAR = {"username": "car", "password": "secret"}


@pytest.fixture
def guarded(fresh_broker: BrokerFactory, tmp_path: Path) -> BrokerProcess:
    """A broker with users, of whom one is of the platform; vehicles may send heartbeats."""
    for name in ("car", "ops"):
        users = add_user(tmp_path, name, "secret")
    settings = {"auth.password_file": str(users), "auth.platform_users": ["ops"]}
    config = '[[acl]]\npermission = "allow"\naction = "publish"\ntopics = ["ecp/${clientid}/+"]\n'
    return fresh_broker(BARE | settings, config=config)


@pytest.mark.rule("section 8", "S1")
def test_only_the_platform_triggers(
    guarded: BrokerProcess, connect: ConnectPlatform, vehicle: ConnectVehicle
) -> None:
    car = vehicle("v1", of=guarded, **CAR)
    body = '{"ids":["v2"],"request_id":"r","data_id":"d"}'
    assert car.publish(TRIGGER, body) == NOT_AUTHORIZED
    assert car.publish("$SDV-FANOUT/data/d", "x") == NOT_AUTHORIZED
    assert Fanout(guarded).remaining() == 0
    ops = connect(of=guarded, **OPS)
    ops.request("r1", "v1")
    car.heartbeat()
    assert requests(car.drain()) == ["r1"]


@pytest.mark.rule("section 8")
@pytest.mark.parametrize(
    "topic_filter", ["$SDV-FANOUT/#", "$SDV-FANOUT/trigger", "$share/g/$SDV-FANOUT/#"]
)
def test_nobody_listens_to_triggers(
    guarded: BrokerProcess, connect: ConnectPlatform, vehicle: ConnectVehicle, topic_filter: str
) -> None:
    for client in (connect(of=guarded, **OPS), vehicle("v1", of=guarded, listening=False, **CAR)):
        assert client.subscribe(topic_filter) == NOT_AUTHORIZED


@pytest.mark.rule("section 8")
@pytest.mark.parametrize(
    "topic_filter",
    [
        "agent/v2/proxy/request/+",
        "agent/+/proxy/request/+",
        "agent/v2/#",
        "agent/#",
        "#",
        "+/+/proxy/request/+",
        "$share/g/agent/v2/proxy/request/+",
    ],
)
def test_a_vehicle_listens_to_its_own_prefix_only(
    guarded: BrokerProcess, connect: ConnectPlatform, vehicle: ConnectVehicle, topic_filter: str
) -> None:
    car = vehicle("v1", of=guarded, **CAR)
    assert car.subscribe(topic_filter) == NOT_AUTHORIZED
    other = vehicle("v2", of=guarded, **CAR)
    connect(of=guarded, **OPS).request("r1", "v2")
    assert requests([other.take()]) == ["r1"]
    car.expect_silence(0.2)


@pytest.mark.rule("section 8", "S13")
def test_the_message_of_one_vehicle_reaches_no_other_subscriber(
    connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    """In anonymous mode anybody may subscribe; what is sent goes to the vehicle all the same."""
    watcher, device = connect(), vehicle(vin)
    watcher.subscribe("#")
    watcher.subscribe(f"agent/{vin}/proxy/request/+")
    platform = connect()
    assert platform.data(f"d{vin}", "x") == SUCCESS
    platform.trigger([vin], "r1", f"d{vin}")
    assert requests([device.take()]) == ["r1"]
    watcher.expect_silence(0.2)
