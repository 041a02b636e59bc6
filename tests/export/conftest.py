from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.export.reading import FLIGHT, Flight
from tests.harness.broker import BrokerProcess
from tests.queues.client import QueueClient

Connect = Callable[..., QueueClient]


@pytest.fixture(scope="session")
def exporting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for the tests of this folder; use queues of your own."""
    process = BrokerProcess(tmp_path_factory.mktemp("export"), FLIGHT).start()
    yield process
    process.stop()


@pytest.fixture
def flight(exporting: BrokerProcess) -> Iterator[Flight]:
    with Flight(exporting) as one:
        yield one


@pytest.fixture
def name() -> str:
    """A queue, a topic or a device which nobody else uses."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def connect(exporting: BrokerProcess) -> Iterator[Connect]:
    """Connected clients: `connect("worker-1", of=other_broker)`."""
    opened: list[QueueClient] = []

    def open_client(
        client_id: str | None = None, of: BrokerProcess = exporting, version: int = 5
    ) -> QueueClient:
        client = QueueClient(of.client(version), client_id or f"c{uuid.uuid4().hex[:10]}")
        client.wire.connect(client.client_id)
        opened.append(client)
        return client

    yield open_client
    for client in opened:
        client.wire.close()
