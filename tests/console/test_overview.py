"""The first page, in a real browser."""

from __future__ import annotations

from tests.console.browser import Console


def test_the_overview_shows_figures_which_move(console: Console) -> None:
    page = console("viewer")
    page.get_by_role("heading", name="Overview").wait_for()
    tile = page.locator(".ql-tile", has_text="Memory")
    tile.get_by_text("MiB").wait_for()
