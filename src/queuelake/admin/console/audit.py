"""The audit: who changed what, with what was before and after."""

from __future__ import annotations

from nicegui import ui

from queuelake.admin.console import human, widgets
from queuelake.admin.console.differences import Difference, differences, flattened, value_text
from queuelake.admin.console.listing import ROWS_PER_PAGE, Listing, Nothing, Row, search_box
from queuelake.admin.console.shell import page
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services
from queuelake.control_audit import AuditEntry

DETAIL_CHARACTERS_MAX = 120


@page("/audit", "Audit", icon="history", section="Administration", role="admin")
async def audit(visit: Visit, caller: str = "", operation: str = "", target: str = "") -> None:
    shown: dict[int, AuditEntry] = {}

    async def fetch(cursor: str) -> tuple[list[Row], str | None]:
        wanted = {name: box.value.strip() for name, box in boxes.items() if box.value}
        found = await visit.look(Services.audit, ROWS_PER_PAGE, cursor, **wanted)
        shown.clear()
        shown.update({one.id: one for one in found.entries})
        return [_row(one) for one in found.entries], found.next

    async def search_again() -> None:
        await listing.restart()

    widgets.title("Audit", "Every change, over REST, gRPC, the command line and here")
    with ui.row().classes("ql-filters"):
        boxes = {
            "caller": search_box("Who, exactly", caller, search_again),
            "operation": search_box("What, such as queue_purge", operation, search_again),
            "target": search_box("Which, exactly", target, search_again),
        }
    listing = Listing(
        [
            Column("when", "When", exact="when_exact"),
            Column("caller", "Who"),
            Column("operation", "What"),
            Column("target", "Which"),
            Column("detail", "Asked for", minor=True),
            Column("outcome", "Outcome", minor=True),
        ],
        fetch,
        Nothing("history", "No such change", "Nothing was changed which fits these words."),
        key="id",
        on_row=lambda row: _show(shown[row["id"]]),
    )
    await listing.restart()


def _row(one: AuditEntry) -> Row:
    asked = ", ".join(f"{key} = {value_text(v)}" for key, v in flattened(one.arguments).items())
    return {
        "id": one.id,
        "when": human.ago(one.at_ms),
        "when_exact": human.moment(one.at_ms),
        "caller": one.caller,
        "operation": one.operation,
        "target": one.target,
        "detail": asked[:DETAIL_CHARACTERS_MAX],
        "outcome": "refused" if one.refused else "done",
        "outcome_class": f"ql-chip ql-chip-{'bad' if one.refused else 'good'}",
    }


def _show(entry: AuditEntry) -> None:
    note = f"{entry.caller}, {human.moment(entry.at_ms)}"
    with widgets.form(f"{entry.operation} {entry.target}".strip(), note) as dialog:
        if entry.refused:
            widgets.chip("refused", "bad")
            ui.label(entry.refused)
        if entry.arguments:
            _heading("Asked for")
            asked = flattened(entry.arguments).items()
            widgets.facts([(key, value_text(value)) for key, value in asked])
        changed = changes(entry)
        if changed:
            _heading("Changed")
            _show_differences(changed)
        elif entry.after is not None:
            _heading("Answered")
            answered = flattened(entry.after) or {"answer": entry.after}
            widgets.facts([(key, value_text(value)) for key, value in answered.items()])
        with ui.row().classes("ql-buttons"):
            ui.button("Close", on_click=dialog.close).props("flat no-caps")


def changes(entry: AuditEntry) -> list[Difference]:
    """What is not as it was. Of what was deleted: all that was there."""
    before, after = entry.before, entry.after
    if entry.refused or before is None:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        # An answer may hold what was changed under a name: {"created": ..., "queue": {...}}.
        inner = [one for one in after.values() if isinstance(one, dict) and set(one) == set(before)]
        return differences(before, inner[0] if inner else after)
    return differences(before, {}) if after is None else []


def _show_differences(changed: list[Difference]) -> None:
    with ui.element("div").classes("ql-diff"):
        for key, before, after in changed:
            ui.label(key).classes("ql-diff-key")
            if before is not None:
                ui.label(f"- {before}").classes("ql-diff-before")
            if after is not None:
                ui.label(f"+ {after}").classes("ql-diff-after")


def _heading(text: str) -> None:
    ui.label(text).classes("ql-h3").props('role="heading" aria-level="3"')
