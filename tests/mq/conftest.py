"""Fixtures of the message queue tests: a broker of their own, clients, and queues.

Tests share one broker without a limit of queues, and use a fresh topic level each. What needs
another configuration starts a `fresh_broker`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.broker import EXTERNAL_VARIABLE, Broker, BrokerProcess
from tests.mq.client import MqClient
from tests.mq.rest import MqRest, Queue

Connect = Callable[..., MqClient]
MakeQueue = Callable[..., Queue]

MANUAL = {"mq.auto_create.lastvalue.enable": False}
RETRY = {"mq.find_queue_retry_interval": "200ms"}
KEY = "message.headers.properties.User-Property.mq-key"


@pytest.fixture
def admin_process() -> bool:
    return True


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "rule(*ids): the rules (M13), sections (section 8) and acceptance tests shown"
    )


def started(directory: Path, settings: dict[str, Any]) -> BrokerProcess:
    if os.environ.get(EXTERNAL_VARIABLE):
        pytest.skip(f"needs its own broker; {EXTERNAL_VARIABLE} points to another one")
    return BrokerProcess(directory, settings).start()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for the tests of this folder; `$q/...` creates last-value queues."""
    process = started(tmp_path_factory.mktemp("mq"), RETRY | {"mq.max_queue_count": 0})
    yield process
    process.stop()


@pytest.fixture(scope="session")
def manual_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """As `broker`, but no subscription creates a queue."""
    directory = tmp_path_factory.mktemp("mq-manual")
    process = started(directory, RETRY | MANUAL | {"mq.max_queue_count": 0})
    yield process
    process.stop()


@pytest.fixture
def root() -> str:
    """A topic nobody else uses; also a name which a queue may have."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def rest(broker: BrokerProcess) -> MqRest:
    return MqRest(broker)


@pytest.fixture
def connect(broker: Broker) -> Iterator[Connect]:
    """Connected clients: `connect("worker-1", version=4, of=other_broker, keepalive=5)`."""
    opened: list[MqClient] = []

    def open_client(
        client_id: str | None = None, *, of: Broker = broker, version: int = 5, **fields: Any
    ) -> MqClient:
        name = f"c{uuid.uuid4().hex[:10]}" if client_id is None else client_id
        client = MqClient(of.client(version, timeout=15.0), name)
        client.wire.connect(name, **fields)
        opened.append(client)
        return client

    yield open_client
    for client in opened:
        client.wire.close()


@pytest.fixture
def regular(broker: BrokerProcess) -> MakeQueue:
    """A regular queue of a filter of its own: `regular(dispatch_strategy="round_robin")`."""

    def make(of: BrokerProcess = broker, **settings: Any) -> Queue:
        name = f"q{uuid.uuid4().hex[:10]}"
        body = {"name": name, "is_lastvalue": False, **settings}
        return MqRest(of).create(f"t{name}/#", **body)

    return make


@pytest.fixture
def last_value(broker: BrokerProcess) -> MakeQueue:
    """A last-value queue whose key is the user property `mq-key`, unless told otherwise."""

    def make(of: BrokerProcess = broker, **settings: Any) -> Queue:
        name = f"q{uuid.uuid4().hex[:10]}"
        body = {"name": name, "is_lastvalue": True, "key_expression": KEY, **settings}
        return MqRest(of).create(f"t{name}/#", **body)

    return make
