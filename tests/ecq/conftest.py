"""Fixtures of the mailbox tests: a broker of their own, devices, and an owner nobody else is.

What needs another configuration starts a `fresh_broker`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.ecq.client import Device
from tests.ecq.control import Mailboxes
from tests.harness.broker import EXTERNAL_VARIABLE, Broker, BrokerProcess

Connect = Callable[..., Device]

# The admin process costs a second of start-up; only metrics need it.
BARE = {"http.enabled": False}
VERSIONS = pytest.mark.parametrize("version", [4, 5], ids=["3.1.1", "5.0"])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "rule(*ids): the rules (E13), sections (section 9) and acceptance tests shown"
    )


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker with default settings for the tests of this folder; use your own owner."""
    if os.environ.get(EXTERNAL_VARIABLE):
        pytest.skip(f"needs its own broker; {EXTERNAL_VARIABLE} points to another one")
    process = BrokerProcess(tmp_path_factory.mktemp("ecq"), BARE).start()
    yield process
    process.stop()


@pytest.fixture
def owner() -> str:
    """A client id nobody else uses."""
    return f"o{uuid.uuid4().hex[:10]}"


@pytest.fixture
def mailboxes(broker: BrokerProcess) -> Mailboxes:
    return Mailboxes(broker)


@pytest.fixture
def connect(broker: Broker) -> Iterator[Connect]:
    """Connected devices: `connect("o1", version=4, of=other_broker, clean=False)`."""
    opened: list[Device] = []

    def open_device(
        client_id: str | None = None, *, of: Broker = broker, version: int = 5, **fields: object
    ) -> Device:
        name = f"c{uuid.uuid4().hex[:10]}" if client_id is None else client_id
        device = Device(of.client(version, timeout=15.0), name)
        device.wire.connect(name, **fields)  # type: ignore[arg-type]
        opened.append(device)
        return device

    yield open_device
    for device in opened:
        device.wire.close()
