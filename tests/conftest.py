"""Fixtures of all tests: a shared broker, brokers of one's own, and stderr on failure."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.remote import Producer

from tests.harness.broker import (
    EXTERNAL_VARIABLE,
    SHARDS_VARIABLE,
    Broker,
    BrokerProcess,
    ExternalBroker,
    running,
)
from tests.harness.scheduling import GroupScheduling

BrokerFactory = Callable[..., BrokerProcess]

# No test is about speed, and a busy machine must not make one fail.
hypothesis.settings.register_profile("any-machine", deadline=None)
hypothesis.settings.load_profile("any-machine")


def pytest_configure(config: pytest.Config) -> None:
    for version, marker in (("5.0", "conforms"), ("3.1.1", "conforms311")):
        config.addinivalue_line(
            "markers", f"{marker}(*ids): the statements of MQTT {version} this test shows"
        )


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    return GroupScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        alone = item.get_closest_marker("one_broker")
        if alone is not None and SHARDS_VARIABLE in os.environ:
            item.add_marker(pytest.mark.skip(reason=f"not with shards: {alone.args[0]}"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker with default settings for all tests of this process; use your own topics."""
    address = os.environ.get(EXTERNAL_VARIABLE)
    if address:
        yield ExternalBroker(address)
        return
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.stop()


@pytest.fixture
def admin_process() -> bool:
    """Whether a fresh broker has one: it is half the cost of a start. Tests which ask it for
    something have a fixture of this name which says True."""
    return False


@pytest.fixture
def fresh_broker(tmp_path: Path, admin_process: bool) -> Iterator[BrokerFactory]:
    """Start brokers of one's own: `fresh_broker({"mqtt.receive_max": 5}, config="...")`."""
    if os.environ.get(EXTERNAL_VARIABLE):
        pytest.skip(f"needs its own broker; {EXTERNAL_VARIABLE} points to another one")
    started: list[BrokerProcess] = []

    def start(settings: dict[str, Any] | None = None, **fields: Any) -> BrokerProcess:
        directory = tmp_path / f"broker-{len(started)}"
        known = {"http.enabled": admin_process} | (settings or {})
        process = BrokerProcess(directory, known, **fields)
        started.append(process)
        return process.start()

    yield start
    for process in started:
        process.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for process in running:
            title = f"stderr of the broker in {process.directory.name}"
            report.sections.append((title, process.stderr_tail()))
    return report


@pytest.fixture(autouse=True)
def _revive_dead_brokers() -> Iterator[None]:
    """A broker which died fails the test which killed it, and is there again for the next."""
    yield
    for process in [one for one in running if not one.alive()]:
        running.remove(process)
        code = process.process.returncode
        tail = process.stderr_tail()
        process.start()
        pytest.fail(f"the broker died with {code} during this test:\n{tail}")
