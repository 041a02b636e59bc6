"""Starting a job of the pipeline: a form for each kind, made from what that kind may be given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from queuelake.admin.console import widgets
from queuelake.admin.console.visit import Visit
from queuelake.admin.job_starting import KINDS, Argument, JobWanted
from queuelake.admin.services import Services

WORDS = {
    "archive": "Write what is new in archived queues to the lake",
    "compact": "Keep last values and tidy the files of the lake",
    "retain": "Delete by age, or erase keys, from the lake",
    "reprocess": "Try again what waits in quarantine",
    "replay": "Send rows of the lake to a queue again",
    "redrive": "Send dead letters back",
    "fanout": "Send a payload to the vehicles of a table",
    "report": "Write a page about what happened",
    "run": "Run the pipelines of a file",
}

# Labels of options whose name says too little.
LABELS = {
    "once": "Once, then stop",
    "queue": "Queue, or a pattern with *",
    "interval": "Seconds between batches",
    "rows-max": "Rows in a batch, at most",
    "adopt": "Take a new lake instead of the old one",
    "wait": "Seconds to wait for another job",
    "file-size": "Size of files, such as 128MiB",
    "keep": "Keep old versions for, such as 7d",
    "older-than": "Older than, such as 90d",
    "erase-key": "Keys to erase",
    "to": "To this queue",
    "where": "Which rows, as SQL",
    "order-by": "In the order of, as SQL",
    "rate": "Rows per second, at most",
    "dry-run": "Count only",
    "set-payload": "New payload, as SQL",
    "request": "Request id",
    "from": "Ids from this file or folder",
    "sql": "Ids from this query",
    "table": "Tables for the query, name=path",
    "id-column": "Column with the ids",
    "data": "File with the payload",
    "data-id": "Id of the payload",
    "cancel": "Cancel the request for these ids",
    "watch": "Follow it to the end",
    "out": "Write the page to this file",
    "since": "Since, such as 24h",
    "until": "Until",
    "title": "Title",
    "file": "File with pipelines",
    "only": "Only these pipelines",
    "check": "Check only",
}


def job_form(visit: Visit, then: Callable[[], Awaitable[None]]) -> None:
    """Ask for a kind and its options; what stays empty is not given."""
    fields: dict[str, Any] = {}
    with widgets.form(
        "Start a job", "It runs on the machine of the broker, as its user."
    ) as dialog:
        kind = ui.select(list(KINDS), value="archive", label="Kind").classes("full-width")
        kind.props("autofocus")
        words = ui.label().classes("ql-note")
        options = ui.element("div").classes("ql-options")

        def show_options() -> None:
            words.set_text(WORDS[kind.value])
            options.clear()
            fields.clear()
            with options:
                for name, type_ in KINDS[kind.value].items():
                    fields[name] = _field(name, type_)

        async def start() -> None:
            arguments = {
                name: value
                for name, field in fields.items()
                if (value := _value(field.value, KINDS[kind.value][name])) is not None
            }
            job = await visit.do(Services.start_job, JobWanted(kind.value, arguments))
            dialog.close()
            widgets.say(f"{job.id} was started")
            await then()

        kind.on_value_change(show_options)
        show_options()
        with ui.row().classes("ql-buttons"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Start", on_click=start).props("no-caps unelevated")


def _field(name: str, type_: type) -> Any:
    label = LABELS.get(name, name)
    if type_ is bool:
        return ui.checkbox(label, value=name == "once")
    if type_ in (int, float):
        return ui.number(label).props("dense outlined")
    if type_ is list:
        label = f"{label}, one on each line"
    if type_ is list or name in ("where", "sql"):
        return ui.textarea(label).props("dense outlined autogrow rows=1 input-class=ql-mono")
    return ui.input(label).props("dense outlined")


def _value(value: Any, type_: type) -> Argument | None:
    """What a field says as an argument; None: nothing."""
    if type_ is list:
        lines = [line.strip() for line in str(value or "").splitlines() if line.strip()]
        return lines or None
    if value in (None, "", False):
        return None
    return int(value) if type_ is int else value
