"""Users made in the console, against a broker which asks for them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.api.queue_rest import Rest
from tests.console.browser import Browsing, Console
from tests.harness.broker import BrokerProcess

BAD_PASSWORD = 0x86
PASSWORD = "secret of the test"


@pytest.fixture(scope="module")
def console_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("users")
    (directory / "users").touch()
    process = BrokerProcess(directory, {"auth.password_file": str(directory / "users")})
    process.start()
    yield process
    process.stop()


@pytest.fixture
def console(browsing: Browsing, console_broker: BrokerProcess) -> Iterator[Console]:
    opened = Console(browsing, console_broker)
    yield opened
    opened.close()


def test_a_user_made_here_can_connect_and_log_in_and_the_audit_says_who_made_it(
    console: Console, console_broker: BrokerProcess
) -> None:
    page = console("admin", "/users")
    page.get_by_text("No users").wait_for()
    page.get_by_role("button", name="Add a user").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Name").fill("anna")
    form.get_by_label("Password").fill(PASSWORD)
    form.get_by_label("Console").click()
    page.get_by_role("option", name="viewer: may look").click()
    form.get_by_role("button", name="Save").click()
    page.get_by_role("cell", name="anna").wait_for()
    with console_broker.client() as client:
        client.connect("c1", username="anna", password=PASSWORD.encode())
    with console_broker.client() as client:
        client.connect("c2", username="anna", password=b"wrong", expect_code=BAD_PASSWORD)
    page.goto(f"{console.url}/audit?target=anna")
    row = page.get_by_role("row", name="anna")
    row.get_by_text("user_add").wait_for()
    row.get_by_text(console.key("admin").partition(":")[0]).wait_for()
    row.click()
    page.get_by_role("dialog").get_by_text("Asked for").wait_for()
    assert PASSWORD not in page.content()
    theirs = console.blank()
    console.log_in(theirs, f"anna:{PASSWORD}")
    theirs.get_by_role("heading", name="Overview").wait_for()
    assert theirs.locator('.ql-nav[data-path="/users"]').count() == 0


def test_another_password_ends_the_sessions_of_a_user(
    console: Console, console_broker: BrokerProcess
) -> None:
    rest, path = Rest(console_broker), "/api/v1/users/bea"
    made = json.dumps({"password": PASSWORD, "role": "viewer"}).encode()
    assert rest.fetch(path, method="PUT", body=made).status == 201
    page = console.blank()
    console.log_in(page, f"bea:{PASSWORD}")
    page.get_by_role("heading", name="Overview").wait_for()
    changed = json.dumps({"password": "another secret of the test"}).encode()
    assert rest.fetch(path, method="PATCH", body=changed).status == 200
    page.get_by_role("button", name="Log in").wait_for()
