"""Dead letters of a queue: why each was given up; sent back or discarded one by one, or many."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from queuelake import names
from queuelake.admin.console import human, widgets
from queuelake.admin.console.peek import message_details, preview
from queuelake.admin.console.queue_forms import json_bytes
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services
from queuelake.control_queues import LETTERS_AT_ONCE_MAX, DeadLetter

LETTERS_PER_PAGE = 25
COLUMNS = [
    Column("id", "Letter", opens=True),
    Column("reason", "Why"),
    Column("preview", "Payload", minor=True),
    Column("group", "Group", minor=True),
    Column("tries", "Tries", number=True, minor=True),
    Column("moved", "Given up", exact="moved_exact"),
]


def letters(visit: Visit, name: str) -> None:
    """The tab: a page of letters, and what can be done with those which fit a filter."""
    with widgets.card("Dead letters", "the oldest first"):
        shown = Letters(visit, name)
    ui.timer(0, shown.first, once=True)


class Letters:
    """Pages of dead letters; the filter is for what is done with many."""

    def __init__(self, visit: Visit, name: str) -> None:
        self._visit = visit
        self._name = name
        self._shown: dict[str, DeadLetter] = {}
        self._next: str | None = None
        with ui.row().classes("ql-filters"):
            self._reason = ui.input("Reason").classes("ql-kind")
            self._group = ui.input("Group").classes("ql-kind")
            self._key = ui.input("Key").classes("ql-kind")
            for control in (self._reason, self._group, self._key):
                control.props("outlined dense clearable")
            if visit.may(Services.retry_dead_letters):
                ui.button("Retry …", icon="replay", on_click=self._retry_many)
                ui.button("Discard …", icon="delete", on_click=self._discard_many).props("outline")
            ui.button(icon="refresh", on_click=self.first).props('flat round aria-label="Refresh"')
        self._table = widgets.table(COLUMNS, [], "key", pagination=0, on_open=self._open)
        hint = "What is rejected, or fails too often, comes here instead of being lost."
        self._empty = widgets.empty("mark_email_read", "No dead letters", hint)
        self._more = ui.button("Next letters", on_click=self._following).props("flat")

    async def first(self) -> None:
        await self._show("")

    async def _following(self) -> None:
        await self._show(self._next or "")

    async def _show(self, cursor: str) -> None:
        page = await self._visit.do(Services.dead_letters, self._name, LETTERS_PER_PAGE, cursor)
        self._next = page.next
        self._shown = {one.id: one for one in page.messages}
        widgets.show_rows(self._table, [_row(one) for one in page.messages])
        self._table.set_visibility(bool(page.messages))
        self._empty.set_visibility(not page.messages)
        self._more.set_visibility(page.next is not None)

    def _open(self, row: dict[str, Any]) -> None:
        found = self._shown.get(str(row["key"]))
        if found is None:
            return
        with widgets.form("Dead letter", found.id) as dialog:
            _story(found)
            message_details(found)
            with ui.row().classes("ql-buttons"):
                ui.button("Close", on_click=dialog.close).props("flat autofocus")
                if self._visit.may(Services.discard_dead_letter):
                    discard = ui.button("Discard", on_click=lambda: self._discard(found, dialog))
                    discard.props("outline color=negative")
                if self._visit.may(Services.retry_dead_letter):
                    ui.button("Retry", icon="replay", on_click=lambda: self._retry(found, dialog))

    async def _retry(self, letter: DeadLetter, dialog: ui.dialog) -> None:
        done = await self._visit.do(Services.retry_dead_letter, self._name, letter.id)
        dialog.close()
        widgets.say(f"It is back in {done.queue}, partition {done.partition}")
        await self.first()

    async def _discard(self, letter: DeadLetter, dialog: ui.dialog) -> None:
        text = "The letter and its payload are deleted. It cannot be undone."
        if await widgets.confirm("Discard this dead letter?", text, action="Discard"):
            await self._visit.do(Services.discard_dead_letter, self._name, letter.id)
            dialog.close()
            widgets.say("The dead letter is deleted")
            await self.first()

    async def _retry_many(self) -> None:
        text = (
            f"{self._meant()} go back to the end of {names.address(self._name)}, as new messages."
        )
        if await widgets.confirm("Retry dead letters?", text, action="Retry"):
            done = await self._visit.do(Services.retry_dead_letters, self._name, self._choice())
            widgets.say(f"{done.done:,} dead letters are back in the queue")
            await self.first()

    async def _discard_many(self) -> None:
        text = f"{self._meant()} are deleted with their payloads. It cannot be undone."
        asked = widgets.confirm(
            "Discard dead letters?", text, action="Discard", type_first=self._name
        )
        if await asked:
            done = await self._visit.do(Services.discard_dead_letters, self._name, self._choice())
            widgets.say(f"{done.done:,} dead letters are deleted")
            await self.first()

    def _filter(self) -> dict[str, str]:
        wanted = {"reason": self._reason, "group": self._group, "key": self._key}
        return {name: text for name, one in wanted.items() if (text := (one.value or "").strip())}

    def _choice(self) -> bytes:
        return json_bytes({**self._filter(), "limit": LETTERS_AT_ONCE_MAX})

    def _meant(self) -> str:
        """Which letters the filter means, in words."""
        parts = [f"{name} {text!r}" for name, text in self._filter().items()]
        return f"All dead letters with {' and '.join(parts)}" if parts else "All dead letters"


def _row(one: DeadLetter) -> dict[str, Any]:
    return {
        "key": one.id,
        "id": f"{one.partition}:{one.offset}",
        "reason": one.dlq_reason,
        "preview": preview(one.payload),
        "group": one.dlq_group,
        "tries": one.dlq_delivery_count,
        "moved": human.ago(human.milliseconds(one.dlq_moved_at)),
        "moved_exact": one.dlq_moved_at,
    }


def _story(one: DeadLetter) -> None:
    known: list[tuple[str, object]] = [
        ("Why", one.dlq_reason),
        ("In words", one.dlq_reason_text),
        ("Group", one.dlq_group),
        ("Tries", one.dlq_delivery_count),
        ("First try", one.dlq_first_attempt),
        ("Given up", one.dlq_moved_at),
        ("Was", one.dlq_original_id),
        ("Published to", one.dlq_original_topic),
    ]
    widgets.facts([(name, value) for name, value in known if value not in (None, "")])
