"""What strangers wrote is shown and never run; and a broker which is away is said to be."""

from __future__ import annotations

import os
import signal
import socket
import uuid
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.api.queue_rest import Rest
from tests.console.browser import Browsing, Console
from tests.harness.broker import BrokerProcess
from tests.queues.client import SUCCESS, QueueClient

IMAGE = "<img src=x onerror=window.hacked=1>"
SCRIPT = "<script>window.hacked=1<\\script>"  # a queue's name has no slash within a level
BRACES = "{{constructor.constructor('window.hacked=1')()}}"


def assert_not_run(page: Page) -> None:
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src='x']").count() == 0


def close_dialog(page: Page) -> None:
    """Until it is gone: for a moment there would be two."""
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_names_and_payloads_are_text(
    console: Console, console_broker: BrokerProcess, rest: Rest
) -> None:
    mark = uuid.uuid4().hex[:6]
    name = f"{mark}{IMAGE}/{SCRIPT}{BRACES}"
    client_id = f"{mark}{IMAGE}"
    client = QueueClient(console_broker.client(), client_id)
    client.wire.connect(client_id)
    assert client.subscribe(name, group=IMAGE) < 0x80
    user = {IMAGE: SCRIPT}
    assert client.publish(name, IMAGE + BRACES, user=user) == SUCCESS
    assert client.reject(client.receive(), reason=IMAGE) == SUCCESS
    assert client.publish(name, f"[{IMAGE}]{BRACES}", user=user) == SUCCESS

    page = console("operator", "/queues")
    page.get_by_label("Search").fill(mark)
    link = page.get_by_role("link", name=f"$queue/{name}")
    expect(link).to_be_visible()
    link.click()
    page.get_by_role("heading", name=f"$queue/{name}").wait_for()
    expect(page.get_by_role("row").filter(has_text=client_id).first).to_be_visible()
    page.get_by_role("tab", name="Messages").click()
    page.get_by_role("row").filter(has_text=f"[{IMAGE}]").get_by_role("button").click()
    expect(page.locator(".ql-payload")).to_have_text(f"[{IMAGE}]{BRACES}")
    expect(page.get_by_role("dialog")).to_contain_text(SCRIPT)
    close_dialog(page)
    page.get_by_role("tab", name="Dead letters").click()
    page.get_by_role("row").filter(has_text=IMAGE).get_by_role("button").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"In words{IMAGE}")
    assert_not_run(page)
    close_dialog(page)
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text(name)
    assert_not_run(page)
    client.disconnect()


def test_a_refused_name_is_text_too(console: Console) -> None:
    page = console("viewer", "/queue?name=" + "%3Cimg+src%3Dx+onerror%3Dwindow.hacked%3D1%3E%23")
    expect(page.get_by_text("holds a wildcard")).to_be_visible()
    assert_not_run(page)


def test_a_broker_which_does_not_answer_is_said_and_comes_back(
    console: Console, console_broker: BrokerProcess
) -> None:
    page = console("viewer")
    banner = page.get_by_role("alert").filter(has_text="The broker does not answer")
    expect(banner).to_have_count(0)
    os.kill(console_broker.pid, signal.SIGSTOP)
    try:
        expect(banner).to_be_visible(timeout=30_000)
    finally:
        os.kill(console_broker.pid, signal.SIGCONT)
    expect(banner).to_be_hidden()
    page.get_by_role("link", name="Queues").click()
    page.get_by_role("heading", name="Queues").wait_for()


def test_an_open_page_survives_a_restart(browsing: Browsing, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = BrokerProcess(tmp_path, {"http.port": port}).start()
    console = Console(browsing, process)
    console.forgiven = ("ERR_CONNECTION_REFUSED", "WebSocket", "ERR_EMPTY", "ERR_CONNECTION_RESET")
    try:
        page = console("viewer", "/queues")
        page.get_by_role("heading", name="Queues").wait_for()
        process.stop()
        expect(page.get_by_text("Connection lost")).to_be_visible()
        process.start()
        expect(page.get_by_text("Connection lost")).to_be_hidden(timeout=60_000)
        page.get_by_role("link", name="Overview").click()
        page.get_by_role("heading", name="Overview").wait_for()
    finally:
        console.close()
        process.close()
