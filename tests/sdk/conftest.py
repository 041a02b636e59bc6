"""Fixtures of the SDK's tests."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from queuelake.client import Client
from tests.conftest import BrokerFactory
from tests.crash.ports import free_port
from tests.harness.broker import Broker, BrokerProcess


@pytest.fixture
def name() -> str:
    """A topic or queue of this test alone."""
    return f"sdk/{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    async with Client(broker.host, broker.mqtt_port) as opened:
        yield opened


@pytest.fixture
async def other(broker: Broker) -> AsyncIterator[Client]:
    """A second client of the same broker."""
    async with Client(broker.host, broker.mqtt_port) as opened:
        yield opened


@pytest.fixture
def crashing(fresh_broker: BrokerFactory) -> BrokerProcess:
    """A broker which keeps its port when it is started again."""
    return fresh_broker({"listeners.mqtt.port": free_port()})
