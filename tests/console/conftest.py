"""One broker and one browser for all tests of the console.

`console("viewer")` is a page, logged in with a key of that role; its tab is the one the test before
had. What a test does not forgive by name makes it fail: an error in the browser's console, a script
which failed, a request to another host.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.queue_rest import Rest
from tests.console.browser import Browsing, Console, launched
from tests.harness.broker import BrokerProcess


@pytest.fixture(scope="package")
def browsing() -> Iterator[Browsing]:
    """While it is open Playwright's loop is in the way of asynchronous tests: none are here."""
    with launched() as browsing:
        yield browsing


@pytest.fixture(scope="session")
def console_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker of all these tests; use queues and clients of your own."""
    process = BrokerProcess(tmp_path_factory.mktemp("console"))
    process.start()
    yield process
    process.stop()


@pytest.fixture
def rest(console_broker: BrokerProcess) -> Rest:
    return Rest(console_broker)


@pytest.fixture
def console(browsing: Browsing, console_broker: BrokerProcess) -> Iterator[Console]:
    """Pages of the console: `console("operator", "/queues")`."""
    opened = Console(browsing, console_broker)
    yield opened
    opened.close()
