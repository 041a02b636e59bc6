"""The pieces pages are made of. What clients wrote (names, topics, payloads) is always text here:
labels, cells and tooltips escape it, and nothing below takes HTML.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from nicegui import ui

from queuelake.admin.console import human

ROWS_PER_PAGE = 25


class Banner:
    """Says at the top of every page what is wrong with the broker; hidden while nothing is."""

    def __init__(self) -> None:
        self._shown: tuple[str, ...] = ()
        self._frame = ui.row().classes("ql-banner").props('role="alert"')
        self._frame.set_visibility(False)

    def show(self, title: str, reasons: Sequence[str]) -> None:
        if self._shown == (title, *reasons):
            return
        self._shown = (title, *reasons)
        self._frame.clear()
        with self._frame:
            ui.icon("error_outline")
            with ui.column().classes("ql-tight"):
                ui.label(title).classes("ql-strong")
                for reason in reasons:
                    ui.label(reason)
        self._frame.set_visibility(True)

    def hide(self) -> None:
        if self._shown:
            self._shown = ()
            self._frame.set_visibility(False)


def say(text: str) -> None:
    """Something was done."""
    ui.notify(text, type="positive", position="bottom", multi_line=len(text) > 60)


def say_refused(text: str) -> None:
    """Something was not done, and why."""
    ui.notify(
        text, type="negative", position="bottom", timeout=8000, close_button="OK", multi_line=True
    )


def title(text: str, note: str = "") -> ui.row:
    """The heading of a page; a `with` block puts buttons beside it."""
    with ui.row().classes("ql-title") as row, ui.column().classes("ql-title-words"):
        ui.label(text).classes("ql-h1").props('role="heading" aria-level="1"')
        if note:
            ui.label(note).classes("ql-note")
    return row


@contextmanager
def card(heading: str = "", note: str = "") -> Iterator[ui.card]:
    with ui.card().classes("ql-card") as made:
        if heading:
            with ui.row().classes("ql-card-head"):
                ui.label(heading).classes("ql-h2").props('role="heading" aria-level="2"')
                if note:
                    ui.label(note).classes("ql-note")
        yield made


def empty(icon: str, heading: str, hint: str = "") -> ui.column:
    """Where there is nothing to see: say so, and what to do about it."""
    with ui.column().classes("ql-empty") as made:
        ui.icon(icon)
        ui.label(heading).classes("ql-strong")
        if hint:
            ui.label(hint).classes("ql-note")
    return made


def menu_item(text: str, on_click: Callable[[], object]) -> ui.menu_item:
    return ui.menu_item(text, on_click).props('role="menuitem"')


class Tile:
    """One figure with its name; the exact value is its tooltip. With `link` its name is one."""

    def __init__(
        self, name: str, value: str = human.NONE, exact: str = "", *, link: str = ""
    ) -> None:
        with ui.column().classes("ql-tile"):
            made = ui.link(name, link) if link else ui.label(name)
            made.classes("ql-tile-name")
            self._value = ui.label(value).classes("ql-tile-value")
            self._note = ui.label("").classes("ql-note")
        self.set(value, exact)

    def set(self, value: str, exact: str = "", note: str = "") -> None:
        self._value.set_text(value)
        self._note.set_text(note)
        if self._value.props.get("title") != exact:
            self._value.props["title"] = exact


def when(ms: int, none: str = "never") -> ui.label:
    """A time as people say it, exactly on hover."""
    label = ui.label(human.ago(ms) or none)
    label.props["title"] = human.moment(ms)
    return label


def chip(text: str, kind: str = "plain") -> ui.label:
    """A word about something's state: kind `good`, `bad`, `warn`, `info` or `plain`."""
    return ui.label(text).classes(f"ql-chip ql-chip-{kind}")


def facts(pairs: Sequence[tuple[str, object]]) -> None:
    """Names and values, one below the other."""
    with ui.element("dl").classes("ql-facts"):
        for name, value in pairs:
            with ui.element("dt"):
                ui.label(name)
            with ui.element("dd"):
                ui.label(worded(value))


def worded(value: object) -> str:
    """A value as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(str(one) for one in value) or human.NONE
    return human.NONE if value in (None, "") else str(value)


class Column(NamedTuple):
    """`field` of the row is shown; `link` and `exact` name fields with an address and a tooltip.

    A `minor` column is hidden on a phone. A `number` is right-aligned. A cell of a column which
    `opens` is a button: `on_open` of the table gets the row.
    """

    field: str
    label: str
    number: bool = False
    sortable: bool = False
    link: str = ""
    exact: str = ""
    minor: bool = False
    opens: bool = False


def table(
    columns: Sequence[Column],
    rows: list[dict[str, Any]],
    key: str,
    *,
    pagination: int | dict[str, Any] = ROWS_PER_PAGE,
    on_open: Callable[[dict[str, Any]], Awaitable[None] | None] | None = None,
) -> ui.table:
    """Rows as text; `<field>_class` of a row is the class of that cell.

    Where no column `opens`, the first one does, and so does the rest of the row for a mouse.
    """
    is_whole = on_open is not None and not any(one.opens for one in columns)
    if is_whole:
        columns = [columns[0]._replace(opens=True), *columns[1:]]
    made = ui.table(
        columns=[_quasar_column(one) for one in columns],
        rows=rows,
        row_key=key,
        pagination=pagination,
    )
    made.classes("ql-table").props('flat :rows-per-page-options="[10,25,50,100]"')
    if isinstance(pagination, int) and len(rows) <= pagination:
        made.props("hide-pagination")
    made.add_slot("body-cell", _CELL)
    if on_open is not None:
        made.on("open", lambda event: on_open(event.args))
        if is_whole:
            made.classes("ql-rows-open")
            made.on("rowClick", lambda event: on_open(event.args[1]), js_handler=_ROW_CLICK)
    return made


def show_rows(made: ui.table, rows: list[dict[str, Any]]) -> None:
    """New rows, sent only when they are others; the controls for pages appear when needed."""
    if made.rows == rows:
        return
    made.rows = rows
    per_page = made.props["pagination"]
    if isinstance(per_page, dict):
        per_page = per_page.get("rowsPerPage", 0)
    made.props["hide-pagination"] = not per_page or len(rows) <= per_page


def _quasar_column(column: Column) -> dict[str, Any]:
    hidden = "gt-xs" if column.minor else ""
    return {
        "name": column.field,
        "field": column.field,
        "label": column.label,
        "align": "right" if column.number else "left",
        "sortable": column.sortable,
        "link": column.link,
        "exact": column.exact,
        "opens": column.opens,
        "classes": hidden,
        "headerClasses": hidden,
    }


# {{ }} is text to Vue; addresses are made by `link_to`, never by a client.
_CELL = """
<q-td :props="props">
  <a v-if="props.col.link && props.row[props.col.link]" class="ql-link"
     :href="'/console' + props.row[props.col.link]">{{ props.value }}</a>
  <button v-else-if="props.col.opens" type="button" class="ql-link"
     @click.stop="() => $parent.$emit('open', props.row)">{{ props.value }}</button>
  <span v-else :title="props.col.exact ? props.row[props.col.exact] : null"
        :class="props.row[props.col.name + '_class']">{{ props.value }}</span>
</q-td>
"""
_ROW_CLICK = "(event, row) => emit(null, row)"


async def confirm(heading: str, text: str, *, action: str, type_first: str = "") -> bool:
    """Ask before something is lost: `text` says what. With `type_first` it has to be typed."""
    with ui.dialog() as dialog, ui.card().classes("ql-dialog"):
        ui.label(heading).classes("ql-h2").props('role="heading" aria-level="2"')
        for line in text.splitlines():
            ui.label(line)
        typed = None
        if type_first:
            typed = ui.input(f"Type {type_first} to go on").classes("full-width").props("autofocus")
        with ui.row().classes("ql-buttons"):
            cancel = ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
            sure = ui.button(action, color="negative", on_click=lambda: dialog.submit(True))
        if typed is None:
            cancel.props("autofocus")
        else:
            sure.bind_enabled_from(typed, "value", lambda value: value == type_first)
    answer = bool(await dialog)
    if typed is not None and typed.value != type_first:
        answer = False
    if not dialog.is_deleted:  # the page may have been left meanwhile
        dialog.delete()
    return answer


@contextmanager
def form(heading: str, note: str = "") -> Iterator[ui.dialog]:
    """A dialog for input; Escape closes it. Close it yourself when the work is done."""
    with ui.dialog() as dialog, ui.card().classes("ql-dialog ql-form"):
        ui.label(heading).classes("ql-h2").props('role="heading" aria-level="2"')
        if note:
            ui.label(note).classes("ql-note")
        yield dialog
    dialog.on("hide", dialog.delete)
    dialog.open()


def payload_view(data: bytes, whole_bytes: int | None = None) -> None:
    """A payload as text, JSON or hex, whichever fits first; it can be changed."""
    best = human.best_view(data)
    note = human.size(len(data) if whole_bytes is None else whole_bytes)
    if whole_bytes is not None and whole_bytes > len(data):
        note += f", the first {human.size(len(data))} of it are shown"
    with ui.row().classes("ql-payload-head"):
        choice = ui.toggle({"text": "Text", "json": "JSON", "hex": "Hex"}, value=best)
        choice.props('no-caps unelevated size=sm toggle-color=primary aria-label="Shown as"')
        ui.label(note).classes("ql-note")
    shown = ui.label(human.payload(data, best)).classes("ql-payload").props("tabindex=0")
    choice.on_value_change(lambda: shown.set_text(human.payload(data, choice.value)))
