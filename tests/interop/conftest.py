"""Fixtures of the interoperability tests."""

from __future__ import annotations

import uuid

import pytest

from tests.harness.broker import Broker
from tests.interop.witness import Endpoint


@pytest.fixture
def prefix() -> str:
    """The first part of topics and client ids of this test."""
    return f"interop{uuid.uuid4().hex[:8]}"


@pytest.fixture
def tcp(broker: Broker) -> Endpoint:
    return Endpoint(broker.host, broker.mqtt_port)
