"""Fixtures of the conformance tests: unique names, and raw clients which are closed at the end."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.harness.broker import Broker
from tests.harness.wire import Wire

Clients = Callable[..., Wire]


@pytest.fixture
def name() -> str:
    """A string nobody else uses: the first topic level, or a client identifier."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def dial(broker: Broker) -> Iterator[Clients]:
    """Open raw clients which have not sent CONNECT: `dial(version=4)`, `dial(of=other_broker)`."""
    opened: list[Wire] = []

    def open_client(*, of: Broker = broker, version: int = 5, **fields: Any) -> Wire:
        client = of.client(version, **fields)
        opened.append(client)
        return client

    yield open_client
    for client in opened:
        client.close()


@pytest.fixture
def clients(dial: Clients) -> Clients:
    """Connected raw clients: `clients("id", clean=False, properties={...}, version=5)`.

    Without an identifier a fresh one is made. The CONNACK is in `client.connack`.
    """

    def connected(
        client_id: str | None = None, *, version: int = 5, of: Broker | None = None, **fields: Any
    ) -> Wire:
        client = dial(version=version) if of is None else dial(of=of, version=version)
        client.connect(f"c{uuid.uuid4().hex[:10]}" if client_id is None else client_id, **fields)
        return client

    return connected
