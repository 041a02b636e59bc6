"""One Spark session for all tests of a process; tests which use it are marked `spark`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2


@pytest.hookimpl(tryfirst=True)  # before they are spread over processes by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


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
    session = build_session("tests", f"local[{CORES}]", conf=conf)
    yield session
    session.stop()
