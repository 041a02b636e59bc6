"""Fixtures of the durable queue tests: connected clients and queues of one's own.

Most tests share the default broker and use a fresh queue name, configured over its control socket.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queuelake.control_client import call
from queuelake.control_queues import QUEUE_CONFIGURE
from tests.harness.broker import Broker, BrokerProcess
from tests.queues.client import QueueClient

Connect = Callable[..., QueueClient]
MakeQueue = Callable[..., str]

CONTROL_TIMEOUT_S = 15.0


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "rule(*ids): the rules (D13), sections (section 8) and acceptance tests shown"
    )


@pytest.fixture
def queue() -> str:
    """A queue name of two levels which nobody else uses."""
    return f"t/{uuid.uuid4().hex[:10]}"


@pytest.fixture
def connect(broker: Broker) -> Iterator[Connect]:
    """Connected clients: `connect("worker-1", version=4, of=other_broker, keepalive=5)`."""
    opened: list[QueueClient] = []

    def open_client(
        client_id: str | None = None, *, of: Broker = broker, version: int = 5, **fields: Any
    ) -> QueueClient:
        name = f"c{uuid.uuid4().hex[:10]}" if client_id is None else client_id
        client = QueueClient(of.client(version), name)
        client.wire.connect(name, **fields)
        opened.append(client)
        return client

    yield open_client
    for client in opened:
        client.wire.close()


@pytest.fixture
def make_queue(broker: Broker) -> MakeQueue:
    """Create a configured queue: `make_queue(partitions=1, limits={"message_ttl": "1s"})`."""

    def make(name: str | None = None, *, of: Broker = broker, **settings: Any) -> str:
        queue = f"t/{uuid.uuid4().hex[:10]}" if name is None else name
        assert isinstance(of, BrokerProcess), "needs the data directory of the broker"
        arguments = {"name": queue, "changes": json.dumps(settings).encode()}
        call(of.data_dir, QUEUE_CONFIGURE, arguments, CONTROL_TIMEOUT_S)
        return queue

    return make
