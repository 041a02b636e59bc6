"""Every page on a phone: nothing is cut off, everything can be reached and has a name."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page

from tests.api.queue_rest import Rest
from tests.console.browser import Console
from tests.console.fleet import Fleet
from tests.console.test_pages import ADMIN_PAGES, PAGES
from tests.harness.broker import BrokerProcess

PHONE = {"width": 375, "height": 700}
LONG = "a-name-which-nobody-would-type-on-a-phone-" + uuid.uuid4().hex
ONE_THING = [
    *("/queue?name={}", "/queue?name={}&tab=messages", "/queue?name={}&tab=settings"),
    *("/message-queue?name=m{}", "/client?id={}", "/mailbox?owner={}", "/vehicle?vin={}"),
]

# What is wider than the screen, unless it can be scrolled by itself (a row of tabs, a payload).
TOO_WIDE = """() => {
  const isShown = one => one.checkVisibility({visibilityProperty: true});
  const width = document.documentElement.clientWidth;
  const wide = document.scrollingElement.scrollWidth > width
    ? [`the page is ${document.scrollingElement.scrollWidth} wide`] : [];
  for (const one of document.querySelectorAll('.ql-page button, .ql-page a, .ql-page input')) {
    const box = one.getBoundingClientRect();
    if (isShown(one) && box.width && (box.right > width + 1 || box.left < -1)
        && !one.closest('.q-tabs'))
      wide.push(`${one.tagName} ${one.innerText || one.ariaLabel} ends at ${box.right}`);
  }
  return wide;
}"""
# What can be clicked but not reached with Tab, or has no name to be read out.
UNREACHABLE = """() => {
  const isShown = one => one.checkVisibility({visibilityProperty: true});
  const found = [];
  for (const one of document.querySelectorAll(
      'a, button, input, textarea, [role=button], [role=combobox]')) {
    if (one.role === 'tab') continue;  // reached by arrows
    if (!isShown(one) || one.disabled || one.closest('[aria-hidden=true], [inert]')
        || one.getAttribute('aria-disabled') === 'true' || one.type === 'hidden') continue;
    const words = one.innerText?.trim() || one.ariaLabel || one.title || one.placeholder
      || [...(one.labels || [])].map(label => label.innerText).join('');
    if (one.tabIndex < 0) found.push(`not with Tab: ${one.outerHTML.slice(0, 200)}`);
    if (!words) found.push(`no name: ${one.outerHTML.slice(0, 200)}`);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def fleet(console_broker: BrokerProcess) -> Iterator[Fleet]:
    """Something on each page, with names which are too long for a phone."""
    fleet, rest = Fleet(console_broker), Rest(console_broker)
    fleet.add_trucks(1)
    client = fleet.connect(LONG)
    client.wire.subscribe(f"fleet/{LONG}/+/command", qos=1)
    client.wire.publish(f"fleet/{LONG}/status", b"on the way", qos=1, retain=True)
    fleet.write_mailbox(LONG, LONG)
    fleet.trigger(LONG, [LONG])
    fleet.add_jobs()
    assert rest.put(LONG, partitions=2).status == 201
    client.publish(LONG, json.dumps({"text": LONG}))
    body = json.dumps({"name": f"m{LONG}", "topic_filter": f"{LONG}/#", "is_lastvalue": False})
    rest.fetch("/api/v5/message_queues/queues", method="POST", body=body.encode())
    client.publish_topic(f"{LONG}/door", json.dumps({"text": LONG}))
    rest.fetch(f"/api/v1/bans/clientid/x{LONG}", method="PUT")
    yield fleet
    rest.fetch(f"/api/v1/bans/clientid/x{LONG}", method="DELETE")
    fleet.close()


def test_the_navigation_leads_to_pages_which_fit(console: Console, fleet: Fleet) -> None:
    page = console("admin", viewport=PHONE, has_touch=True)
    expected = {"/": "Overview", "/queues": "Queues", **PAGES, **ADMIN_PAGES}
    faults = []
    for path, title in expected.items():
        page.get_by_role("button", name="Navigation").tap()
        page.locator(f'.ql-nav[data-path="{path}"]').tap()
        page.get_by_role("heading", name=title, exact=True).wait_for()
        faults += faults_of(page)
    assert not faults, "\n".join(faults)


def test_the_page_of_one_thing_fits(console: Console, fleet: Fleet) -> None:
    page = console("admin", viewport=PHONE, has_touch=True)
    faults = []
    for path in ONE_THING:
        page.goto(console.url + path.format(quote(LONG)))
        page.get_by_role("heading", name=LONG).first.wait_for()
        faults += faults_of(page)
    assert not faults, "\n".join(faults)


def test_the_login_fits(console: Console) -> None:
    page = console.blank(viewport=PHONE)
    page.goto(f"{console.url}/login")
    faults = faults_of(page)
    assert not faults, "\n".join(faults)


def faults_of(page: Page) -> list[str]:
    content = page.locator(".ql-content, form").locator(".q-card, .ql-table, .ql-empty, button")
    content.locator("visible=true").first.wait_for()
    where = page.url.rpartition("/")[2][:20]
    return [f"{where}: {one}" for one in [*page.evaluate(TOO_WIDE), *page.evaluate(UNREACHABLE)]]
