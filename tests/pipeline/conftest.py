"""One Spark session for all tests of a process; tests which use it are marked `spark`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from queuelake.apikey import read_api_key
from tests.harness.broker import BrokerProcess
from tests.pipeline.browser import browser_page
from tests.queues.client import QueueClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["browser_page"]

CORES = 2
FAILURES_MAX = 2  # of one task, so that there is a second attempt as on a cluster
TIMEOUT_S = 600


@pytest.fixture
def admin_process() -> bool:
    return True


@pytest.hookimpl(tryfirst=True)  # before they are spread over processes by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            # The first one waits for the session; an interrupted call into the JVM spoils the rest.
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session every test shares: leave it as it was, stop the streams you start."""
    from queuelake.pipeline.session import build_session

    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        # A query which is stopped between two triggers does not wait for the next one.
        "spark.sql.streaming.pollingDelay": "10ms",
    }
    session = build_session("tests", f"local[{CORES},{FAILURES_MAX}]", conf=conf)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def lake_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with its Flight service, for all tests of this process; use queues of your own."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), {"flight.enabled": True})
    process.start()
    yield process
    process.stop()


@pytest.fixture
def connect_options(lake_broker: BrokerProcess) -> dict[str, str]:
    """What source and sink need to find the broker."""
    return options_of(lake_broker)


@pytest.fixture
def producer(lake_broker: BrokerProcess) -> Iterator[QueueClient]:
    client = QueueClient(lake_broker.client(), f"producer-{uuid.uuid4().hex[:8]}")
    client.wire.connect(client.client_id)
    yield client
    client.wire.close()


@pytest.fixture
def queue_name() -> str:
    """A durable queue nobody else uses, without `$queue/`."""
    return f"spark/{uuid.uuid4().hex[:10]}"


def options_of(broker: BrokerProcess) -> dict[str, str]:
    return {
        "uri": f"grpc://127.0.0.1:{broker.flight_port}",
        "token": read_api_key(broker.data_dir),
        "retry_s": "30",
    }
