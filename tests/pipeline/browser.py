"""A page in Chromium, for tests which look at what people see."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="module")
def browser_page() -> Iterator[Page]:
    if not CHROMIUM.exists():
        pytest.skip(f"needs {CHROMIUM}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        # Chromium has no sandbox for root.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=arguments)
        yield browser.new_page(viewport={"width": 1280, "height": 900})
        browser.close()
