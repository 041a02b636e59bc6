"""Fixtures of the fan-out tests: a broker of their own, a platform, vehicles nobody else is.

What needs another configuration starts a `fresh_broker`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.ecq.client import Device
from tests.ecq.conftest import BARE
from tests.harness.broker import EXTERNAL_VARIABLE, BrokerProcess
from tests.sdv.client import Platform, Vehicle
from tests.sdv.control import Fanout

D = TypeVar("D", bound=Device)
ConnectPlatform = Callable[..., Platform]
ConnectVehicle = Callable[..., Vehicle]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "rule(*ids): the rules (S13), sections (section 7) and acceptance tests shown"
    )


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker with default settings for the tests of this folder; use your own vehicles."""
    if os.environ.get(EXTERNAL_VARIABLE):
        pytest.skip(f"needs its own broker; {EXTERNAL_VARIABLE} points to another one")
    process = BrokerProcess(tmp_path_factory.mktemp("sdv"), BARE).start()
    yield process
    process.stop()


class Garage:
    """Opens clients of any broker, and closes them all."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._opened: list[Device] = []

    def open(
        self,
        kind: type[D],
        client_id: str,
        *,
        of: BrokerProcess | None = None,
        version: int = 5,
        **fields: object,
    ) -> D:
        device = kind((of or self._broker).client(version, timeout=15.0), client_id)
        device.wire.connect(client_id, **fields)  # type: ignore[arg-type]
        self._opened.append(device)
        return device

    def close(self) -> None:
        for device in self._opened:
            device.wire.close()


@pytest.fixture
def garage(broker: BrokerProcess) -> Iterator[Garage]:
    opened = Garage(broker)
    yield opened
    opened.close()


@pytest.fixture
def connect(garage: Garage) -> ConnectPlatform:
    """A connected platform: `connect(version=4, of=other_broker)`."""

    def open_platform(client_id: str | None = None, **fields: object) -> Platform:
        name = client_id or f"p{uuid.uuid4().hex[:10]}"
        return garage.open(Platform, name, **fields)  # type: ignore[arg-type]

    return open_platform


@pytest.fixture
def platform(connect: ConnectPlatform) -> Platform:
    return connect()


@pytest.fixture
def vehicle(garage: Garage) -> ConnectVehicle:
    """A connected vehicle, which has subscribed unless told otherwise."""

    def open_vehicle(vin: str, *, listening: bool = True, **fields: object) -> Vehicle:
        device = garage.open(Vehicle, vin, **fields)  # type: ignore[arg-type]
        if listening:
            assert device.listen() == 1
        return device

    return open_vehicle


@pytest.fixture
def vin() -> str:
    """A vehicle nobody else is."""
    return f"V{uuid.uuid4().hex[:10]}"


@pytest.fixture
def fanout(broker: BrokerProcess) -> Fanout:
    return Fanout(broker)
