"""Fan-out over SIGKILL and a store which fails (S4, T15).

QUEUELAKE_TEST_KILLS=200 makes it long.
"""

from __future__ import annotations

import os
import random
import sys

import pytest

from tests.conftest import BrokerFactory
from tests.crash.test_store_failures import RESUME_S_MAX, writes_fail
from tests.ecq.client import CLOSED, SUCCESS, UNSPECIFIED, Device
from tests.ecq.conftest import BARE, VERSIONS
from tests.ecq.tables import row_counts
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess
from tests.harness.packets import WireError
from tests.queues.client import wait_until
from tests.sdv.client import TRIGGER, Platform, requests
from tests.sdv.conftest import ConnectPlatform, ConnectVehicle
from tests.sdv.control import Fanout
from tests.sdv.crash import Crashes

KILLS = int(os.environ.get("QUEUELAKE_TEST_KILLS", "4"))
IDS = 20_000
NEEDS_PRLIMIT = pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit")


@pytest.mark.timeout(60 + 20 * KILLS)
@pytest.mark.rule("T15", "T16", "S2", "S12", "S18", "S22", "S23")
def test_promises_are_kept_when_the_broker_is_killed(fresh_broker: BrokerFactory) -> None:
    crashes = Crashes(fresh_broker(BARE), seed=1)
    crashes.run(KILLS)
    delivered = sum(story.delivered for story in crashes.stories)
    assert delivered > 5, "too little happened to mean anything"


@pytest.mark.timeout(60 + 20 * KILLS)
@pytest.mark.rule("T15", "S5")
@pytest.mark.parametrize("seed", range(max(1, KILLS // 4)))
def test_a_kill_while_a_large_trigger_is_stored(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, seed: int
) -> None:
    """Killed as soon as the first rows are there, or some more: all are, or nothing was said."""
    broker = fresh_broker(BARE)
    platform = connect(of=broker)
    platform.data("d", "x")
    ids = ",".join(f'"v{number}"' for number in range(IDS))
    body = f'{{"ids":[{ids}],"request_id":"r","data_id":"d"}}'
    platform.wire.send_publish(TRIGGER, body, qos=1)
    moment = random.Random(seed).randrange(1, IDS)
    wait_until(lambda: row_counts(broker, "sdv_fanout_ids")[0] >= min(moment, IDS))
    broker.kill()
    answered = _was_answered(platform)
    broker.restart()
    fanout = Fanout(broker)
    left = fanout.remaining()
    assert left == IDS if answered else left <= IDS
    wait_until(lambda: row_counts(broker, "sdv_fanout_ids") == [left])
    again = connect(of=broker)
    again.wire.timeout = 60.0
    assert again.publish(TRIGGER, body) == SUCCESS
    assert fanout.remaining() == left + IDS
    assert fanout.pending("v0")
    assert fanout.pending(f"v{IDS - 1}")


def _was_answered(device: Device) -> bool:
    """Whether the PUBACK was on its way when the broker died."""
    try:
        return device.wire.expect(p.PUBACK).reason_code == SUCCESS
    except WireError:
        return False


@NEEDS_PRLIMIT
@pytest.mark.rule("S4")
@VERSIONS
def test_a_store_which_fails_never_confirms(
    fresh_broker: BrokerFactory,
    connect: ConnectPlatform,
    vehicle: ConnectVehicle,
    vin: str,
    version: int,
) -> None:
    broker = fresh_broker(BARE)
    device = vehicle(vin, of=broker)
    connect(of=broker).data("d", "x")
    body = f'{{"ids":["{vin}"],"request_id":"refused","data_id":"d"}}'
    with writes_fail(broker):
        for topic, payload in ((TRIGGER, body), ("$SDV-FANOUT/data/other", "x")):
            platform = connect(of=broker, version=version)
            platform.wire.send_publish(topic, payload, qos=1)
            if version == 5:
                platform.wire.expect_disconnect(UNSPECIFIED)
            else:
                platform.wire.expect_closed()
    platform = connect(of=broker)
    wait_until(lambda: _triggered(connect, broker, vin), RESUME_S_MAX)
    received = requests(device.drain(1.0))
    assert "refused" not in received
    assert received[-1:] == ["taken"]
    broker.kill()
    broker.restart()
    assert "refused" not in Fanout(broker).pending(vin)


def _triggered(connect: ConnectPlatform, broker: BrokerProcess, vin: str) -> bool:
    platform: Platform = connect(of=broker)
    code = platform.trigger([vin], "taken", "d")
    assert code in (SUCCESS, CLOSED)
    return code == SUCCESS


@NEEDS_PRLIMIT
@pytest.mark.rule("S4", "S18", "S22")
def test_an_acknowledgement_the_store_lost_is_no_harm(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    broker = fresh_broker(BARE)
    platform, device = connect(of=broker), vehicle(vin, of=broker)
    platform.data("d", "x")
    for request_id in ("r1", "r2"):
        platform.request(request_id, vin)
    held = device.hold()
    with writes_fail(broker):
        device.ack(held)
        assert connect(of=broker).data("other", "x") == CLOSED
    wait_until(lambda: _triggered(connect, broker, vin), RESUME_S_MAX)
    device.heartbeat()
    received = requests(device.drain(1.5))
    assert received in (["r2", "taken"], ["r1", "r2", "taken"])
    wait_until(lambda: Fanout(broker).pending(vin) == [])
