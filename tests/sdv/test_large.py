"""A hundred thousand vehicles in one trigger (S5, T14)."""

from __future__ import annotations

import threading

import pytest

from tests.conftest import BrokerFactory
from tests.ecq.client import SUCCESS
from tests.ecq.conftest import BARE
from tests.ecq.tables import row_counts
from tests.harness.broker import BrokerProcess
from tests.harness.packets import WireError
from tests.queues.client import wait_until
from tests.sdv.client import requests
from tests.sdv.conftest import ConnectPlatform, ConnectVehicle
from tests.sdv.control import Fanout

IDS = 100_000
ONLINE = 1000
TIMEOUT_S = 100.0


class Traffic:
    """Round trips of somebody else, in a thread of their own; `trips` counts them."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.trips = 0
        self.error = ""
        self._stopping = threading.Event()
        self._wire = broker.client(timeout=TIMEOUT_S)
        self._wire.connect("traffic")
        self._wire.subscribe("traffic", qos=1)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(TIMEOUT_S)
        self._wire.close()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._wire.publish("traffic", b"x", qos=1)
                self._wire.expect_publish("traffic")
                self.trips += 1
        except (WireError, OSError) as error:
            self.error = str(error)


@pytest.mark.timeout(300)
@pytest.mark.rule("S5", "T14")
def test_a_hundred_thousand_vehicles_in_one_trigger(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle
) -> None:
    broker = fresh_broker(BARE)
    fleet = [vehicle(f"VIN{number:014}", of=broker) for number in range(0, IDS, IDS // ONLINE)]
    platform, fanout = connect(of=broker), Fanout(broker)
    platform.wire.timeout = TIMEOUT_S
    platform.data("d", "x")
    ids = [f"VIN{number:014}" for number in range(IDS)]
    with Traffic(broker) as traffic:
        before = traffic.trips
        assert platform.trigger(ids, "r", "d") == SUCCESS
        during = traffic.trips - before
        for one in fleet:
            assert requests([one.take(timeout=TIMEOUT_S)]) == ["r"]
    assert traffic.error == ""
    assert during > 3, "nobody else was served while the trigger was stored"
    left = IDS - ONLINE
    tables = ("sdv_fanout_ids", "sdv_fanout_recent")  # what was acknowledged is in neither
    wait_until(lambda: row_counts(broker, *tables) == [left, 0], TIMEOUT_S)
    assert fanout.remaining() == left
    found = fanout.request("r")
    assert (found["triggered"], found["acked"]) == (IDS, ONLINE)
    broker.kill()
    broker.restart()
    assert Fanout(broker).remaining() == left
    late = vehicle(ids[-1], of=broker)
    assert requests([late.take()]) == ["r"]
