"""Chromium, and pages of the console in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from queuelake.apikey import Role, add_key, read_api_key, read_further_keys
from tests.harness.broker import BrokerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

Browsing = Any  # a Browser; Playwright is imported only where there is Chromium
TIMEOUT_MS = 20_000


@contextmanager
def launched() -> Iterator[Browser]:
    """Debian's Chromium, or a skipped test."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("needs chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        # Chromium has no sandbox for root.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = play.chromium.launch(executable_path=executable, args=arguments)
        yield browser
        browser.close()


class Console:
    """The console of one broker, for somebody with a role."""

    def __init__(self, browser: Browser, broker: BrokerProcess) -> None:
        self.broker = broker
        self.url = f"http://127.0.0.1:{broker.http_port}/console"
        self.mistakes: list[str] = []
        self.forgiven: tuple[str, ...] = ()
        self._browser = browser
        self._contexts: list[BrowserContext] = []

    def __call__(self, role: Role = "admin", path: str = "/", **options: Any) -> Page:
        """A page, logged in; `options` are those of a browser context, such as `viewport`."""
        page = self.blank(**options)
        self.log_in(page, self.key(role))
        page.goto(self.url + path)
        page.wait_for_selector(".ql-content > *")
        return page

    def blank(self, **options: Any) -> Page:
        """A page of a browser which nobody has used."""
        context = self._browser.new_context(**options)
        self._contexts.append(context)
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        page.on("console", self._on_message)
        page.on("pageerror", lambda error: self.mistakes.append(f"script: {error}"))
        page.on("request", lambda request: self._on_request(request.url))
        return page

    def log_in(self, page: Page, key: str) -> None:
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
        for context in self._contexts:
            context.close()
        found = [one for one in self.mistakes if not any(part in one for part in self.forgiven)]
        assert not found, found

    def _on_message(self, message: Any) -> None:
        if message.type == "error":
            self.mistakes.append(f"console: {message.text}")

    def _on_request(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and parts.hostname != "127.0.0.1":
            self.mistakes.append(f"foreign request: {url}")
