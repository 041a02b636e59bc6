"""Chromium, and pages of the console in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import pytest

from queuelake.apikey import Role, add_key, read_api_key, read_further_keys
from tests.api.live import Answer, fetch
from tests.harness.broker import BrokerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request

TIMEOUT_MS = 20_000
FLAGS = ("--disable-gpu", "--disable-software-rasterizer")  # nor one which is emulated
FLAGS_OF_ROOT = ("--no-sandbox",)  # Chromium has none for root


@contextmanager
def launched() -> Iterator[Browsing]:
    """Debian's Chromium, or a skipped test."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("needs chromium: apt-get install chromium")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=TIMEOUT_MS)  # its own 5 s are little on a busy machine
    with sync_playwright() as play:
        arguments = [*FLAGS, *(FLAGS_OF_ROOT if os.geteuid() == 0 else ())]
        browser = play.chromium.launch(executable_path=executable, args=arguments)
        yield Browsing(browser)
        browser.close()


class Browsing:
    """A browser with one tab for each shape of a window, which keeps what it loaded once.

    A tab of its own for each test costs three times as much: all scripts are fetched and compiled
    again, in new processes.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._tabs: dict[str, Page] = {}

    def tab(self, **options: Any) -> Page:
        """The tab of a browser context with these options, such as `viewport`; without cookies."""
        shape = repr(sorted(options.items()))
        if shape not in self._tabs:
            context = self._browser.new_context(reduced_motion="reduce", **options)
            context.set_default_timeout(TIMEOUT_MS)
            self._tabs[shape] = context.new_page()
        self._tabs[shape].context.clear_cookies()
        return self._tabs[shape]


class Console:
    """The console of one broker, for somebody with a role. One page at a time."""

    def __init__(self, browsing: Browsing, broker: BrokerProcess) -> None:
        self.broker = broker
        self.url = f"http://127.0.0.1:{broker.http_port}/console"
        self.mistakes: list[str] = []
        self.forgiven: tuple[str, ...] = ()
        self._browsing = browsing
        self._pages: list[Page] = []

    def __call__(self, role: Role = "admin", path: str = "/", **options: Any) -> Page:
        """A page, logged in; `options` are those of a browser context, such as `viewport`."""
        page = self.blank(**options)
        name, _, value = session_cookie(self.broker.http_port, self.key(role)).partition("=")
        page.context.add_cookies([{"name": name, "value": value, "url": f"{self.url}/"}])
        page.goto(self.url + path)
        page.wait_for_selector(".ql-content > *")
        return page

    def blank(self, **options: Any) -> Page:
        """A page of a browser in which nobody is logged in."""
        page = self._browsing.tab(**options)
        if page not in self._pages:
            self._pages.append(page)
            page.on("console", self._on_message)
            page.on("pageerror", self._on_error)
            page.on("request", self._on_request)
        return page

    def log_in(self, page: Page, key: str) -> None:
        """With the form; a page of `__call__` has a session already."""
        name, _, secret = key.partition(":")
        page.goto(f"{self.url}/login")
        page.get_by_label("API key or user").fill(name)
        page.get_by_label("Secret or password").fill(secret)
        page.get_by_role("button", name="Log in").click()

    def key(self, role: Role) -> str:
        """A key of this role, made once for a broker."""
        if role == "admin":
            return read_api_key(self.broker.data_dir)
        kept = self.broker.directory / f"key-{role}"
        if not kept.exists():
            assert role not in {key.name for key in read_further_keys(self.broker.data_dir)}
            kept.write_text(add_key(self.broker.data_dir, role, role))
        return kept.read_text()

    def close(self) -> None:
        for page in self._pages:
            page.context.clear_cookies()
            page.goto(f"{self.url}/login")  # small, and of this site: the process stays
            page.remove_listener("console", self._on_message)
            page.remove_listener("pageerror", self._on_error)
            page.remove_listener("request", self._on_request)
        found = [one for one in self.mistakes if not any(part in one for part in self.forgiven)]
        assert not found, found

    def _on_message(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.mistakes.append(f"console: {message.text}")

    def _on_error(self, error: Error) -> None:
        self.mistakes.append(f"script: {error}")

    def _on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.hostname != "127.0.0.1":
            self.mistakes.append(f"foreign request: {request.url}")


def log_in(port: int, key: str, **headers: str) -> Answer:
    """What the form of the login sends, and its answer."""
    name, _, secret = key.partition(":")
    body = urlencode({"name": name, "secret": secret}).encode()
    origin = {"Origin": f"http://127.0.0.1:{port}"} | headers
    return fetch(port, "/console/login", method="POST", headers=origin, body=body)


def session_cookie(port: int, key: str) -> str:
    """Of somebody who has just logged in: NAME=VALUE."""
    answer = log_in(port, key)
    assert answer.status == 303, answer.body
    return answer.headers["set-cookie"].partition(";")[0]
