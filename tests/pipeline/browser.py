"""A page in Chromium, for tests which look at what people see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.console.browser import launched

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def browser_page() -> Iterator[Page]:
    with launched() as browsing:
        yield browsing.tab(viewport={"width": 1280, "height": 900})
