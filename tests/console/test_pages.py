"""Every page other than overview and queues, in a real browser, and what can be done there."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

from queuelake.apikey import Role
from tests.api.live import wait_until
from tests.api.queue_rest import Rest
from tests.console.browser import Console
from tests.console.fleet import Fleet
from tests.harness.broker import BrokerProcess

PAGES = {
    "/clients": "Clients",
    "/subscriptions": "Subscriptions",
    "/retained": "Retained messages",
    "/mailboxes": "Device mailboxes",
    "/fanout": "Vehicle fan-out",
    "/pipeline": "Pipeline",
    "/settings": "Settings in force",
    "/try": "Try it",
}
ADMIN_PAGES = {
    "/bans": "Bans",
    "/users": "Users",
    "/permissions": "Permissions",
    "/audit": "Audit",
    "/backups": "Backups",
}
BANNED = 0x8A
SCRIPT = "<img src=x onerror=\"document.title='run'\">"


@pytest.fixture(scope="module")
def fleet(console_broker: BrokerProcess) -> Iterator[Fleet]:
    fleet = Fleet(console_broker)
    fleet.add_trucks(3)
    yield fleet
    fleet.close()


@pytest.fixture
def name() -> str:
    """Of a client, user or request which nobody else has."""
    return f"n{uuid.uuid4().hex[:10]}"


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_each_page_opens_without_an_error(console: Console, fleet: Fleet, role: Role) -> None:
    page = console(role, "/clients")
    for path, title in {**PAGES, **ADMIN_PAGES}.items():
        entry = page.locator(f'.ql-nav[data-path="{path}"]')
        if path in ADMIN_PAGES and role != "admin":
            assert entry.count() == 0
            continue
        entry.click()
        page.get_by_role("heading", name=title, exact=True).wait_for()
        content = page.locator(".ql-content").locator(".q-card, .ql-table, .ql-empty")
        content.locator("visible=true").first.wait_for()
        assert "cannot be shown" not in page.content()


def test_a_single_node_has_no_page_about_a_cluster(console: Console) -> None:
    page = console("admin", "/settings")
    page.get_by_role("heading", name=PAGES["/settings"]).wait_for()
    assert not page.locator('.ql-nav[data-path="/cluster"]').is_visible()
    page.goto(f"{console.url}/cluster")
    page.get_by_text("this broker is not part of a cluster").wait_for()


def test_pages_for_admins_are_refused_to_others(console: Console) -> None:
    page = console("operator")
    for path in ADMIN_PAGES:
        page.goto(console.url + path)
        page.get_by_text("This page needs the role admin").wait_for()


def test_a_client_is_found_and_disconnected(
    console: Console, fleet: Fleet, rest: Rest, name: str
) -> None:
    client = fleet.connect(name)
    client.wire.subscribe("some/+/topic", qos=1)
    page = console("operator", "/clients")
    page.get_by_label("Client id, user or address").fill(name[2:].upper())
    page.get_by_role("link", name=name).click()
    page.get_by_role("heading", name=name).wait_for()
    page.get_by_text("some/+/topic").wait_for()
    assert page.get_by_role("button", name="Ban").count() == 0  # takes an admin
    page.get_by_role("button", name="Disconnect").click()
    page.get_by_text("may connect again at once").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Disconnect").click()
    client.wire.expect_disconnect()
    wait_until(lambda: rest.fetch(f"/api/v1/clients/{name}").status == 404)


def test_a_viewer_is_offered_no_change(console: Console, fleet: Fleet) -> None:
    page = console("viewer", "/client?id=dispatch-platform")
    page.get_by_role("heading", name="dispatch-platform").wait_for()
    assert page.get_by_role("button", name="Disconnect").count() == 0
    page.goto(f"{console.url}/mailbox?owner=truck-leipzig-001")
    page.get_by_role("cell", name="tachograph").wait_for()
    assert page.get_by_role("button", name="Rewind").count() == 0


def test_a_client_is_banned_and_the_ban_is_lifted(
    console: Console, fleet: Fleet, console_broker: BrokerProcess, name: str
) -> None:
    client = fleet.connect(name)
    page = console("admin", f"/client?id={name}")
    page.get_by_role("button", name="Ban").click()
    page.get_by_role("dialog").get_by_role("button", name="Ban").click()
    client.wire.expect_disconnect()
    with console_broker.client() as again:
        assert again.connect(name, expect_code=BANNED).reason_code == BANNED
    page.goto(f"{console.url}/bans")
    row = page.get_by_role("row", name=name)
    row.get_by_role("button", name="Lift").click()
    page.get_by_role("dialog").get_by_role("button", name="Lift").click()
    row.wait_for(state="detached")
    fleet.connect(name)


def test_who_gets_a_message_is_answered(console: Console, fleet: Fleet) -> None:
    page = console("viewer", "/subscriptions")
    box = page.get_by_label("Who gets a message to this topic?")
    box.fill("fleet/truck-ulm-002/command")
    page.get_by_role("cell", name="fleet/truck-ulm-002/command").wait_for()
    page.get_by_role("cell", name="fleet/+/alert").first.wait_for(state="detached")
    box.fill("no/such/topic")
    page.get_by_text("No subscription gets a message").wait_for()


def test_a_retained_message_is_read_and_deleted(
    console: Console, fleet: Fleet, rest: Rest, name: str
) -> None:
    fleet.platform.wire.publish(f"kept/{name}", b'{"a":1}', qos=1, retain=True)
    page = console("operator", "/retained?filter=kept/%23")
    page.get_by_role("cell", name=f"kept/{name}").click()
    page.get_by_text('"a": 1').wait_for()
    page.get_by_role("button", name="Hex").click()
    page.get_by_text("7b 22 61").wait_for()
    page.get_by_role("button", name="Delete").click()
    sure = page.get_by_role("dialog").filter(has_text="New subscribers do not get it")
    sure.get_by_role("button", name="Delete").click()
    page.get_by_text("Nothing is retained").wait_for()
    assert rest.fetch(f"/api/v1/retained/kept%2F{name}").status == 404


def test_a_mailbox_is_found_and_rewound(
    console: Console, fleet: Fleet, rest: Rest, name: str
) -> None:
    fleet.write_mailbox(name, "route", "radio")
    device = fleet.connect(name)
    device.wire.subscribe(f"$ECQ/{name}/#", qos=1)
    device.receive_payloads(2)
    wait_until(lambda: rest.fetch(f"/api/v1/ecq/{name}/entries").json["acked"] == 2)
    page = console("operator", "/mailboxes")
    page.get_by_label("Find a device by its client id").fill(name)
    page.get_by_role("button", name="Go").click()
    page.get_by_role("cell", name="radio").click()
    page.get_by_text('"version": 2').wait_for()
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Rewind").click()
    page.get_by_role("dialog").get_by_role("button", name="Rewind").click()
    assert len(device.receive_payloads(2)) == 2


def test_a_request_is_followed_and_cancelled(
    console: Console, fleet: Fleet, rest: Rest, name: str
) -> None:
    fleet.trigger(name, [f"{name}-{number}" for number in range(3)])
    page = console("operator", "/fanout")
    row = page.get_by_role("row", name=name)
    row.get_by_role("img", name="3 pending").wait_for()
    row.get_by_role("button", name="Cancel").click()
    page.get_by_text("3 vehicles which wait for it will not get it").wait_for()
    page.get_by_role("button", name="Cancel the request").click()
    page.get_by_text("is cancelled for 3 vehicles").wait_for()
    assert rest.fetch(f"/api/v1/sdv/requests/{name}").json["cancelled"] == 3
    page.get_by_label("Find a vehicle by its VIN").fill(f"{name}-1")
    page.get_by_label("Find a vehicle by its VIN").press("Enter")
    page.get_by_text("Nothing waits").wait_for()


def test_jobs_are_shown_and_stopped_and_a_wrong_one_is_refused(
    console: Console, fleet: Fleet
) -> None:
    fleet.add_jobs()  # one which is silent for a minute counts as lost
    page = console("admin", "/pipeline")
    row = page.get_by_role("row", name="replay-b7d90f2c4411")
    row.get_by_text("184,220 of 500,000 rows").wait_for()
    row.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    page.get_by_text("was told to stop").wait_for()
    page.get_by_role("button", name="Start a job").click()
    page.get_by_role("dialog").get_by_role("button", name="Start").click()
    page.get_by_text("flight.enabled").wait_for()  # this broker has none


def test_settings_say_where_they_come_from(console: Console) -> None:
    page = console("viewer", "/settings")
    page.get_by_label("Key or value").fill("listeners.ws.port")
    row = page.get_by_role("row", name="listeners.ws.port")
    row.get_by_text("--set").wait_for()
    row.get_by_text("8083").wait_for()


def test_permissions_are_tested_and_changed(console: Console, name: str) -> None:
    page = console("admin", "/permissions")
    page.get_by_label("Client id", exact=True).fill(name)
    page.get_by_label("Topic", exact=True).fill(f"only/{name}")
    page.get_by_role("button", name="Test").click()
    page.get_by_text(f"{name} may publish to only/{name}").wait_for()
    page.get_by_role("button", name="Add a rule").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Permission").click()
    page.get_by_role("option", name="deny").click()
    form.get_by_label("Topic filters, one on each line").fill(f"only/{name}")
    form.get_by_role("button", name="Keep").click()
    page.get_by_text("Not saved yet").wait_for()
    page.get_by_role("button", name="Save").click()
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    page.get_by_text("The rules are in force").wait_for()
    page.get_by_role("button", name="Test").click()
    page.get_by_text(f"{name} may not publish to only/{name}").wait_for()


def test_what_clients_wrote_is_text_everywhere(console: Console, fleet: Fleet) -> None:
    client = fleet.connect(SCRIPT)
    client.wire.subscribe(f"x/{SCRIPT}", qos=1)
    client.wire.publish(f"evil/{SCRIPT}", SCRIPT.encode(), qos=1, retain=True)
    fleet.platform.publish_topic("$ECQ/w/evil/key", SCRIPT)
    page = console("admin", "/clients?search=onerror")
    page.get_by_role("link", name=SCRIPT).click()
    page.get_by_role("heading", name=SCRIPT).wait_for()
    page.get_by_role("button", name="Disconnect").click()
    page.get_by_role("dialog").get_by_text(SCRIPT).wait_for()
    page.goto(f"{console.url}/subscriptions?topic=x/{SCRIPT}")
    page.get_by_role("cell", name=f"x/{SCRIPT}").wait_for()
    page.goto(f"{console.url}/retained?filter=evil/%23")
    page.get_by_role("cell", name=f"evil/{SCRIPT}").click()
    page.get_by_role("dialog").get_by_text(SCRIPT).last.wait_for()
    page.goto(f"{console.url}/mailbox?owner=evil")
    page.get_by_role("cell", name="key").click()
    page.get_by_role("dialog").get_by_text(SCRIPT).wait_for()
    assert page.locator('img[src="x"]').count() == 0
    assert page.title() != "run"


def test_a_message_goes_both_ways_from_the_browser(
    console: Console, fleet: Fleet, name: str
) -> None:
    other = fleet.connect(f"{name}-other")
    other.wire.subscribe(f"try/{name}/up", qos=1)
    page = console("viewer", "/clients")
    page.locator('.ql-nav[data-path="/try"]').click()
    page.get_by_role("button", name="Connect", exact=True).click()
    page.get_by_text("connected", exact=True).wait_for()
    page.get_by_label("Topic filter").fill(f"try/{name}/#")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    page.get_by_text(f"try/{name}/# · QoS 1").wait_for()
    page.get_by_label("Topic", exact=True).fill(f"try/{name}/up")
    page.get_by_label("Payload", exact=True).fill(SCRIPT)
    page.get_by_label("User properties, name=value on each line").fill("colour=blue=sky")
    page.get_by_role("button", name="Publish", exact=True).click()
    got = other.receive()
    assert (got.payload, got.properties["colour"]) == (SCRIPT, "blue=sky")
    body = json.dumps({"text": SCRIPT})
    other.wire.publish(
        f"try/{name}/down/{SCRIPT}", body, qos=1, properties={"user_property": [("k", SCRIPT)]}
    )
    page.get_by_text(f"k = {SCRIPT}").wait_for()
    page.get_by_text(f"try/{name}/down/{SCRIPT}").wait_for()
    assert page.locator('img[src="x"]').count() == 0
    page.get_by_role("button", name="Disconnect").click()
    page.get_by_text("disconnected", exact=True).wait_for()
