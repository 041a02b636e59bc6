"""Fixtures of the MQTT 3.1.1 tests: every test runs at level 4 and, unchanged, at level 3.

`raw()` opens a network connection, `client(name)` also connects with a client id of this test's
own; both are closed at the end. Topics start with `name`, so that tests share one broker.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.harness.broker import Broker
from tests.harness.wire import Wire

Raw = Callable[[], Wire]
Client = Callable[..., Wire]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "conforms311(*ids): the normative statements of MQTT 3.1.1 this test shows"
    )


@pytest.fixture(params=[4, 3], ids=["3.1.1", "3.1"])
def level(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def name() -> str:
    """Twelve letters and digits nobody else uses: a client id, and the first topic level."""
    return uuid.uuid4().hex[:12]


@pytest.fixture
def raw(broker: Broker, level: int) -> Iterator[Raw]:
    opened: list[Wire] = []

    def open_connection() -> Wire:
        opened.append(broker.client(level))
        return opened[-1]

    yield open_connection
    for wire in opened:
        wire.close()


@pytest.fixture
def client(raw: Raw, name: str) -> Client:
    def connect(role: str = "", **fields: Any) -> Wire:
        wire = raw()
        wire.connect(f"{name}{role}", **fields)
        return wire

    return connect
