from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.live import LiveAdmin
from tests.api.queue_rest import Connect, Rest
from tests.harness.broker import Broker, BrokerProcess
from tests.queues.client import QueueClient


@pytest.fixture
def admin_process() -> bool:
    return True


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[LiveAdmin]:
    live = LiveAdmin(tmp_path)
    yield live
    live.close()


@pytest.fixture
def rest(broker: Broker) -> Rest:
    """The shared broker; use queues of your own."""
    if not isinstance(broker, BrokerProcess):
        pytest.skip("needs the data directory of the broker")
    return Rest(broker)


@pytest.fixture
def name() -> str:
    """A queue which nobody else uses."""
    return f"rest/{uuid.uuid4().hex[:10]}"


@pytest.fixture
def connect(broker: Broker) -> Iterator[Connect]:
    """Connected clients: `connect("worker-1", of=other_broker)`."""
    opened: list[QueueClient] = []

    def open_client(client_id: str | None = None, of: Broker = broker) -> QueueClient:
        client = QueueClient(of.client(), client_id or f"c{uuid.uuid4().hex[:10]}")
        client.wire.connect(client.client_id)
        opened.append(client)
        return client

    yield open_client
    for client in opened:
        client.wire.close()
