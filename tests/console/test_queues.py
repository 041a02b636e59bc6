"""Queues in a real browser: made, filled by a real client, looked into, emptied."""

from __future__ import annotations

import uuid

import pytest
from playwright.sync_api import Page, expect

from tests.api.queue_rest import Rest, reject_one
from tests.console.browser import Console
from tests.harness.broker import BrokerProcess
from tests.queues.client import SUCCESS, QueueClient


@pytest.fixture
def name() -> str:
    return f"shop/{uuid.uuid4().hex[:8]}"


def tile(page: Page, label: str) -> str:
    """The selector of the figure with this label."""
    return f".ql-tile:has(.ql-tile-name:text-is('{label}')) .ql-tile-value"


def test_an_operator_makes_a_queue(console: Console, rest: Rest, name: str) -> None:
    page = console("operator", "/queues")
    page.get_by_role("button", name="New queue").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("partitions").fill("3")
    page.get_by_label("max retries").fill("1")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("heading", name=f"$queue/{name}").wait_for()
    made = rest.queue(name).json
    assert made["configured"] == {"partitions": 3, "retry_policy": {"max_retries": 1}}


def test_what_is_wrong_with_a_new_queue_is_said_in_the_form(
    console: Console, rest: Rest, name: str
) -> None:
    page = console("operator", "/queues")
    page.get_by_role("button", name="New queue").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("partitions").fill("100000")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert").filter(has_text="partitions = 100000")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert rest.queue(name).status == 404


def test_the_depth_moves_while_a_client_publishes(
    console: Console, console_broker: BrokerProcess, name: str
) -> None:
    client = QueueClient(console_broker.client(), "publisher")
    client.wire.connect("publisher")
    assert client.publish(name, "0") == SUCCESS
    page = console("viewer", f"/queue?name={name}")
    depth = page.locator(tile(page, "Waiting"))
    expect(depth).to_have_text("1")
    for number in range(1, 8):
        assert client.publish(name, str(number)) == SUCCESS
    expect(depth).to_have_text("8")
    page.get_by_role("link", name="Queues").click()
    page.get_by_label("Search").fill(name)
    row = page.get_by_role("row").filter(has_text=name)
    expect(row).to_contain_text("8")
    client.disconnect()


def test_a_message_is_looked_at_and_stays(
    console: Console, console_broker: BrokerProcess, rest: Rest, name: str
) -> None:
    client = QueueClient(console_broker.client(), "writer")
    client.wire.connect("writer")
    assert client.publish(name, '{"photo": 7}', user={"shade": "red"}) == SUCCESS
    page = console("viewer", f"/queue?name={name}&tab=messages")
    page.get_by_role("row").filter(has_text="photo").get_by_role("button").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".ql-payload")).to_have_text('{\n  "photo": 7\n}')
    expect(dialog).to_contain_text("shade")
    dialog.get_by_role("button", name="Hex").click()
    expect(dialog.locator(".ql-payload")).to_contain_text("7b 22 70 68")
    assert rest.queue(name, "/stats").json["depth"] == 1
    client.disconnect()


def test_a_message_is_published_by_hand(console: Console, rest: Rest, name: str) -> None:
    assert rest.put(name, partitions=1).status == 201
    page = console("operator", f"/queue?name={name}")
    page.get_by_role("button", name="Publish").click()
    page.get_by_label("Payload").fill("hello")
    page.get_by_label("User properties").fill("colour=blue")
    page.get_by_role("dialog").get_by_role("button", name="Publish").click()
    expect(page.get_by_text(f"Published to $queue/{name}")).to_be_visible()
    [message] = rest.queue(name, "/messages").json["messages"]
    assert message["properties"] == [["colour", "blue"]]


def test_a_dead_letter_is_sent_back(
    console: Console, console_broker: BrokerProcess, rest: Rest, name: str
) -> None:
    reject_one(connector(console_broker), name, "broken")
    page = console("operator", f"/queue?name={name}&tab=letters")
    page.get_by_role("row").filter(has_text="broken").get_by_role("button").click()
    expect(page.get_by_role("dialog")).to_contain_text("no good")
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    expect(page.get_by_text("It is back in")).to_be_visible()
    expect(page.get_by_text("No dead letters")).to_be_visible()
    assert rest.queue(name, "/dlq").json["messages"] == []
    assert rest.queue(name, "/stats").json["depth"] == 1


def test_dead_letters_are_discarded_by_filter(
    console: Console, console_broker: BrokerProcess, rest: Rest, name: str
) -> None:
    connect = connector(console_broker)
    reject_one(connect, name, "one")
    reject_one(connect, name, "two")
    page = console("operator", f"/queue?name={name}&tab=letters")
    page.get_by_label("Reason").fill("nothing like it")
    discard(page, name)
    expect(page.get_by_text("0 dead letters are deleted")).to_be_visible()
    page.get_by_label("Reason").fill("rejected")
    discard(page, name)
    expect(page.get_by_text("2 dead letters are deleted")).to_be_visible()
    assert rest.queue(name, "/dlq").json["messages"] == []


def discard(page: Page, name: str) -> None:
    page.get_by_role("button", name="Discard …").click()
    page.get_by_label(f"Type {name} to go on").fill(name)
    page.get_by_role("dialog").get_by_role("button", name="Discard").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_purge_asks_for_the_name_first(console: Console, rest: Rest, name: str) -> None:
    assert rest.put(name, partitions=1).status == 201
    assert rest.queue(name, "/messages", method="POST", body=b'{"payload":"x"}').status == 202
    page = console("operator", f"/queue?name={name}")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Purge").click()
    sure = page.get_by_role("dialog").get_by_role("button", name="Purge")
    expect(sure).to_be_disabled()
    page.get_by_label(f"Type {name} to go on").fill(name)
    sure.click()
    expect(page.get_by_text("1 messages are deleted")).to_be_visible()
    assert rest.queue(name, "/stats").json["depth"] == 0
    [entry] = rest.fetch(f"/api/v1/audit?operation=queue_purge&target={name}").json["entries"]
    assert entry["caller"] == "operator"


def test_settings_are_changed_and_a_queue_is_deleted(
    console: Console, rest: Rest, name: str
) -> None:
    assert rest.put(name, partitions=2).status == 201
    page = console("operator", f"/queue?name={name}")
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("max queue depth").fill("123")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert rest.queue(name).json["settings"]["limits"]["max_queue_depth"] == 123
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_label(f"Type {name} to go on").fill(name)
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.get_by_role("heading", name="Queues").wait_for()
    assert rest.queue(name).status == 404


def test_a_message_queue_is_made_and_looked_into(
    console: Console, console_broker: BrokerProcess, name: str
) -> None:
    mq = name.replace("/", "-")
    page = console("operator", "/queues")
    page.get_by_role("button", name="New queue").click()
    page.get_by_role("dialog").get_by_label("Kind").click()
    page.get_by_role("option").filter(has_text="Message queue").click()
    page.get_by_label("Name", exact=True).fill(mq)
    page.get_by_label("Topic filter").fill(f"{name}/#")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("heading", name=mq).wait_for()
    expect(page.locator(tile(page, "Messages"))).to_have_text("0")
    connector(console_broker)().publish_topic(f"{name}/door", '{"open":true}')
    expect(page.locator(tile(page, "Messages"))).to_have_text("1")
    page.get_by_role("button", name="Look").click()
    expect(page.get_by_role("row").filter(has_text=f"{name}/door")).to_contain_text("open")
    page.get_by_role("button", name="0:1").click()
    expect(page.get_by_role("dialog")).to_contain_text('"open": true')
    page.get_by_role("button", name="Close").click()
    page.get_by_role("link", name="Queues").click()
    page.get_by_label("Search").fill(mq)
    expect(page.get_by_role("row").filter(has_text=mq)).to_contain_text("message queue")


def connector(broker: BrokerProcess):  # type: ignore[no-untyped-def]
    """Clients of this broker, for helpers of other tests."""

    def connect() -> QueueClient:
        client = QueueClient(broker.client(), f"c{uuid.uuid4().hex[:10]}")
        client.wire.connect(client.client_id)
        return client

    return connect
