"""How long rows and data live, and who takes them away (S11, S24-S26, T8, T9)."""

from __future__ import annotations

import time

import pytest

from tests.conftest import BrokerFactory
from tests.ecq.conftest import BARE
from tests.ecq.tables import row_counts
from tests.harness.broker import BrokerProcess
from tests.queues.client import wait_until
from tests.sdv.client import requests
from tests.sdv.conftest import ConnectPlatform, ConnectVehicle
from tests.sdv.control import Fanout

TABLES = ("sdv_fanout_ids", "sdv_fanout_data", "sdv_fanout_meta")


def wait_for_empty_tables(broker: BrokerProcess) -> None:
    wait_until(lambda: row_counts(broker, *TABLES) == [0, 0, 0])


@pytest.mark.rule("S24", "S26", "T9")
def test_what_is_too_old_is_neither_sent_nor_kept(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    broker = fresh_broker(BARE | {"sdv.data_retention": "1s"})
    fanout, platform = Fanout(broker), connect(of=broker)
    platform.request("r1", vin, f"{vin}-2")
    assert row_counts(broker, *TABLES) == [2, 1, 1]
    time.sleep(1.1)
    device = vehicle(vin, of=broker)
    device.heartbeat()
    device.expect_silence()
    assert fanout.collect() is True
    wait_for_empty_tables(broker)
    status = fanout.status()
    assert (status["remaining_messages"], status["unique_payloads"]) == (0, 0)
    assert status["memory_usage"] == {"index": 0, "data": {"payload": 0, "meta": 0}}
    platform.request("r2", vin)
    assert requests(device.drain()) == ["r2"]


@pytest.mark.rule("S24", "section 6")
def test_collection_runs_by_itself(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vin: str
) -> None:
    broker = fresh_broker(BARE | {"sdv.data_retention": "300", "sdv.gc_interval": "200ms"})
    connect(of=broker).request("r1", vin)
    wait_for_empty_tables(broker)


@pytest.mark.rule("S24")
def test_collection_takes_more_than_a_slice_and_spares_the_young(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle
) -> None:
    """2,500 rows are more than two slices."""
    broker = fresh_broker(BARE | {"sdv.data_retention": "3s"})
    platform = connect(of=broker)
    platform.request("old", *(f"v{number}" for number in range(2500)))
    old_until = time.monotonic() + 3.1
    time.sleep(1.5)
    platform.request("young", "v7", "v2000")
    time.sleep(max(0.0, old_until - time.monotonic()))
    Fanout(broker).collect()
    platform.subscribe("plain")
    platform.publish("plain", "goes on")
    assert platform.take().payload == "goes on"
    wait_until(lambda: row_counts(broker, "sdv_fanout_ids")[0] <= 2)


@pytest.mark.rule("S7", "T8", "S24")
def test_data_published_again_lives_longer(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    broker = fresh_broker(BARE | {"sdv.data_retention": "2s"})
    platform, fanout = connect(of=broker), Fanout(broker)
    platform.data("d", "first")
    platform.data("other", "x")
    time.sleep(1.3)
    platform.data("d", "second")
    time.sleep(0.9)
    fanout.collect()
    wait_until(lambda: row_counts(broker, *TABLES) == [0, 1, 1])
    device = vehicle(vin, of=broker)
    platform.trigger([vin], "r", "d")
    assert device.take().payload == "first"


@pytest.mark.rule("S11", "section 6")
def test_data_is_kept_as_long_as_a_row_waits_for_it(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    broker = fresh_broker(BARE | {"sdv.data_retention": "2s"})
    platform, fanout = connect(of=broker), Fanout(broker)
    platform.data("d", "kept")
    time.sleep(1.5)
    platform.trigger([vin], "r", "d")
    time.sleep(0.7)
    fanout.collect()
    wait_until(fanout.collect)
    device = vehicle(vin, of=broker)
    assert device.take().payload == "kept"
    wait_until(lambda: fanout.collect() and row_counts(broker, *TABLES) == [0, 0, 0])


@pytest.mark.rule("S11", "section 6")
def test_data_can_go_before_its_rows(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    settings = {"sdv.data_retention": "2s", "sdv.keep_referenced": False}
    broker = fresh_broker(BARE | settings)
    platform, fanout = connect(of=broker), Fanout(broker)
    platform.data("d", "gone")
    time.sleep(1.5)
    platform.trigger([vin], "r", "d")
    time.sleep(0.7)
    fanout.collect()
    wait_until(lambda: row_counts(broker, "sdv_fanout_data", "sdv_fanout_meta") == [0, 0])


@pytest.mark.rule("S25")
def test_another_interval_starts_a_run(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vin: str
) -> None:
    broker = fresh_broker(BARE | {"sdv.data_retention": "300ms"})
    connect(of=broker).request("r1", vin)
    time.sleep(0.4)
    assert row_counts(broker, *TABLES) == [1, 1, 1]
    Fanout(broker).configure(gc_interval="2h")
    wait_for_empty_tables(broker)


@pytest.mark.rule("S25", "S24")
def test_a_second_request_during_a_run_is_ignored_with_a_warning(
    fresh_broker: BrokerFactory, connect: ConnectPlatform
) -> None:
    broker = fresh_broker(BARE | {"sdv.data_retention": "300ms"})
    fanout = Fanout(broker)
    connect(of=broker).request("r", *(f"v{number}" for number in range(3000)))
    time.sleep(0.4)
    assert [fanout.collect() for _ in range(2)] == [True, False]
    wait_for_empty_tables(broker)
    wait_until(fanout.collect)
    assert "warning" in broker.stderr_tail().lower()


@pytest.mark.rule("S26", "S18")
def test_the_next_row_is_not_sent_when_it_is_too_old(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    broker = fresh_broker(BARE | {"sdv.data_retention": "1s"})
    platform, device = connect(of=broker), vehicle(vin, of=broker)
    platform.request("r1", vin)
    held = device.hold()
    platform.request("r2", vin)
    time.sleep(1.1)
    device.ack(held)
    device.expect_silence()
    platform.request("r3", vin)
    assert requests(device.drain()) == ["r3"]


@pytest.mark.rule("section 7", "S24")
def test_what_expired_can_be_asked_after_a_collection(
    fresh_broker: BrokerFactory, connect: ConnectPlatform
) -> None:
    broker = fresh_broker(BARE | {"sdv.data_retention": "1s"})
    fanout = Fanout(broker)
    connect(of=broker).request("r1", "v1", "v2")
    time.sleep(1.1)
    fanout.collect()
    wait_until(lambda: fanout.remaining() == 0)
    wait_until(fanout.collect)  # the run is over
    assert fanout.request("r1")["expired"] == 2
