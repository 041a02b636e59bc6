"""The console without a mouse."""

from __future__ import annotations

import uuid

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.api.queue_rest import Rest
from tests.console.browser import Console

TABS_MAX = 60  # presses of the key, on any page
HAS_FOCUS = "one => one.contains(document.activeElement)"
# Between the last control and the first one the focus is the browser's, on no control of ours.
LOST_FOCUS = f"one => document.activeElement !== document.body && !({HAS_FOCUS})(one)"
FOCUSED = "() => document.activeElement.innerText || document.activeElement.ariaLabel"


@pytest.fixture
def name(rest: Rest) -> str:
    """A queue with one message."""
    made = f"keys/{uuid.uuid4().hex[:10]}"
    assert rest.put(made, partitions=1).status == 201
    assert rest.queue(made, "/messages", method="POST", body=b'{"payload":"x"}').status == 202
    return made


def test_log_in_and_go_to_a_page(console: Console) -> None:
    page = console.blank()
    page.goto(f"{console.url}/login")
    key, _, secret = console.key("viewer").partition(":")
    page.keyboard.type(key)  # the field has the focus
    page.keyboard.press("Tab")
    page.keyboard.type(secret)
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.get_by_role("heading", name="Overview").wait_for()
    tab_to(page, page.locator('.ql-nav[data-path="/clients"]'))
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Clients").wait_for()
    tab_to(page, page.get_by_role("button", name="Account"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Log out")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("menuitem", name="Log out")).to_have_count(0)


def test_a_dialog_keeps_the_focus_and_gives_it_back(console: Console, name: str) -> None:
    page = console("operator", f"/queue?name={name}")
    publish = page.get_by_role("button", name="Publish")
    tab_to(page, publish)
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Payload")).to_be_focused()
    for key in ["Tab"] * 8 + ["Shift+Tab"] * 12:
        page.keyboard.press(key)
        assert not dialog.evaluate(LOST_FOCUS), page.evaluate(FOCUSED)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(publish).to_be_focused()


def test_a_queue_is_looked_into_and_purged(console: Console, rest: Rest, name: str) -> None:
    page = console("operator", f"/queue?name={name}")
    tab_to(page, page.get_by_role("tab", name="State"))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    message = page.get_by_role("button", name="0:1")
    message.wait_for()
    tab_to(page, message)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Message 0:1")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    tab_to(page, page.get_by_role("button", name="More"))
    page.keyboard.press("Space")
    purge = page.get_by_role("menuitem", name="Purge")
    purge.wait_for()
    tab_to(page, purge)
    page.keyboard.press("Enter")
    expect(page.get_by_label(f"Type {name} to go on")).to_be_focused()
    page.keyboard.type(name)
    tab_to(page, page.get_by_role("dialog").get_by_role("button", name="Purge"))
    page.keyboard.press("Space")
    expect(page.get_by_text("1 messages are deleted")).to_be_visible()
    assert rest.queue(name, "/stats").json["depth"] == 0


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until `wanted` has the focus."""
    wanted.wait_for()
    passed = []
    for _ in range(TABS_MAX):
        page.keyboard.press("Tab")
        if wanted.evaluate(HAS_FOCUS):
            return
        passed.append(page.evaluate(FOCUSED))
    raise AssertionError(f"Tab does not lead to {wanted}, but to {passed}")
