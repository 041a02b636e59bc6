"""Messages of a queue: looking at them changes nothing; and publishing one by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from queuelake import names
from queuelake.admin.console import human, widgets
from queuelake.admin.console.queue_forms import buttons, json_bytes
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services
from queuelake.control_queues import OFFSET_MAX, MessagePage, QueueMessage

MESSAGES_PER_PAGE = 25
PREVIEW_CHARACTERS_MAX = 80
COLUMNS = [
    Column("place", "Message", opens=True),
    Column("key", "Key", minor=True),
    Column("preview", "Payload"),
    Column("size", "Size", number=True, minor=True),
    Column("published", "Published", exact="published_exact", minor=True),
]
TOPIC = Column("topic", "Topic")

Fetch = Callable[[str], Awaitable[MessagePage]]


def messages(visit: Visit, name: str, partitions: int) -> None:
    """The tab of a durable queue: where to begin, and a page of messages."""

    async def fetch(cursor: str) -> MessagePage:
        wanted = None if partition.value == -1 else int(partition.value)
        begin = int(start.value or 0)
        return await visit.do(
            Services.queue_messages, name, begin, MESSAGES_PER_PAGE, wanted, cursor
        )

    hint = f"A message published to {names.address(name)} waits here until it is settled."
    browser = Messages(fetch, hint)
    with widgets.card("Messages in the queue", "looking changes nothing"):
        with ui.row().classes("ql-filters"):
            choices = {-1: "all partitions"} | {
                one: f"partition {one}" for one in range(partitions)
            }
            partition = ui.select(choices, value=-1, label="From")
            start = ui.number("Offset, from", value=0, min=0, max=OFFSET_MAX, precision=0)
            for control in (partition, start):
                control.props("outlined dense options-dense").classes("ql-kind")
            ui.button("Look", icon="search", on_click=browser.first).props("outline")
        browser.build(COLUMNS)


def queued_messages(visit: Visit, name: str, topic_filter: str) -> None:
    """The card of a message queue."""

    async def fetch(cursor: str) -> MessagePage:
        return await visit.do(Services.message_queue_messages, name, MESSAGES_PER_PAGE, cursor)

    hint = f"A message published to {topic_filter} waits here until a subscriber has it."
    browser = Messages(fetch, hint)
    with widgets.card("Messages in the queue", "looking changes nothing"):
        with ui.row().classes("ql-filters"):
            ui.button("Look", icon="search", on_click=browser.first).props("outline")
        browser.build([COLUMNS[0], TOPIC, *COLUMNS[1:]])


class Messages:
    """Pages of messages, one after the other."""

    def __init__(self, fetch: Fetch, hint: str) -> None:
        self._fetch = fetch
        self._hint = hint
        self._shown: dict[str, QueueMessage] = {}
        self._next: str | None = None

    def build(self, columns: list[Column]) -> None:
        self._table = widgets.table(columns, [], "place", pagination=0, on_open=self._open)
        self._empty = widgets.empty("drafts", "No message here", self._hint)
        self._more = ui.button("Next messages", on_click=self._following).props("flat")
        ui.timer(0, self.first, once=True)

    async def first(self) -> None:
        await self._show("")

    async def _following(self) -> None:
        await self._show(self._next or "")

    async def _show(self, cursor: str) -> None:
        page = await self._fetch(cursor)
        self._next = page.next
        self._shown = {f"{one.partition}:{one.offset}": one for one in page.messages}
        widgets.show_rows(self._table, [message_row(one) for one in page.messages])
        self._table.set_visibility(bool(page.messages))
        self._empty.set_visibility(not page.messages)
        self._more.set_visibility(page.next is not None)

    def _open(self, row: dict[str, Any]) -> None:
        found = self._shown.get(str(row["place"]))
        if found is not None:
            with widgets.form(f"Message {found.partition}:{found.offset}") as dialog:
                message_details(found)
                with ui.row().classes("ql-buttons"):
                    ui.button("Close", on_click=dialog.close).props("flat autofocus")


def message_row(one: QueueMessage) -> dict[str, Any]:
    return {
        "place": f"{one.partition}:{one.offset}",
        "topic": one.topic,
        "key": one.key,
        "preview": preview(one.payload),
        "size": human.size(one.payload_bytes or len(one.payload)),
        "published": human.ago(one.published_at_ms),
        "published_exact": human.moment(one.published_at_ms),
    }


def preview(payload: bytes) -> str:
    """The first words of a payload, on one line."""
    part = payload[: PREVIEW_CHARACTERS_MAX * 4]
    if human.best_view(part) == "hex":
        return payload[: PREVIEW_CHARACTERS_MAX // 3].hex(" ")
    text = " ".join(part.decode(errors="replace").split())
    cut = len(text) > PREVIEW_CHARACTERS_MAX or len(payload) > len(part)
    return text[:PREVIEW_CHARACTERS_MAX] + ("…" if cut else "")


def message_details(one: QueueMessage) -> None:
    """Everything about one message."""
    widgets.payload_view(one.payload, one.payload_bytes or None)
    known: list[tuple[str, object]] = [
        ("Id", one.id),
        ("Topic", one.topic),
        ("Key", one.key),
        ("Publisher", one.publisher),
        ("Published", human.moment(one.published_at_ms)),
        ("Expires", human.moment(one.expires_at_ms) or "never"),
        ("Priority", one.priority),
        ("Content type", one.content_type),
        ("Response topic", one.response_topic),
        ("Correlation data", one.correlation_data.hex(" ") if one.correlation_data else ""),
    ]
    widgets.facts([(name, value) for name, value in known if value not in (None, "")])
    if one.properties:
        ui.label("User properties").classes("ql-strong")
        widgets.facts(one.properties)


async def publish(visit: Visit, name: str) -> None:
    """A dialog for one message."""
    note = "It is stored, counted and delivered as any other."
    with widgets.form(f"Publish to {names.address(name)}", note) as dialog:
        payload = ui.textarea("Payload").props("outlined autofocus autogrow").classes("full-width")
        with ui.element("div").classes("ql-fields"):
            key = ui.input("Partition key").props("outlined dense")
            kind = ui.input("Content type", placeholder="application/json").props("outlined dense")
        extra = ui.textarea("User properties, a line name=value each").classes("full-width")
        extra.props("outlined autogrow")

        async def send() -> None:
            message = {
                "payload": payload.value or "",
                "key": key.value or "",
                "content_type": kind.value or "",
                "properties": _properties(extra.value or ""),
            }
            await visit.do(Services.publish_message, name, json_bytes(message))
            dialog.close()
            widgets.say(f"Published to {names.address(name)}")

        buttons("Publish", dialog, send)


def _properties(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if line.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}
