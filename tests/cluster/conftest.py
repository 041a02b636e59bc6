"""A cluster for a whole module, and clients of any of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from tests.harness.cluster import Cluster
from tests.queues.client import QueueClient

ConnectTo = Callable[..., QueueClient]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def connect_to(cluster: Cluster) -> Iterator[ConnectTo]:
    """`connect_to(1, "worker", clean=False)`: a client of node 1."""
    opened: list[QueueClient] = []
    numbers = count()

    def open_client(node: int, client_id: str = "", **fields: Any) -> QueueClient:
        name = client_id or f"client-{next(numbers)}"
        client = QueueClient(cluster.nodes[node].client(), name)
        client.wire.connect(name, **fields)
        opened.append(client)
        return client

    yield open_client
    for client in opened:
        client.wire.close()
