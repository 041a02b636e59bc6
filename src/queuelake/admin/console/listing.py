"""A list which the broker gives page by page: a table, where to go on, what to do with a row.

Whoever uses it says how a page is fetched; paging, the state without rows and the refresh are
here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from nicegui import events, ui

from queuelake.admin.console import widgets
from queuelake.admin.console.widgets import Column
from queuelake.errors import BrokerDownError

ROWS_PER_PAGE = 50
SEARCH_DELAY_MS = 300

Row = dict[str, Any]
Fetch = Callable[[str], Awaitable[tuple[list[Row], str | None]]]


class Action(NamedTuple):
    """A button in each row; `offered` names a field of the row which says whether it is there."""

    name: str
    label: str
    do: Callable[[Row], Awaitable[None]]
    danger: bool = False
    offered: str = ""


class Nothing(NamedTuple):
    """What is said instead of an empty table."""

    icon: str
    heading: str
    hint: str = ""


class Listing:
    """`fetch(cursor)` returns the rows of a page and the cursor of the next, or None."""

    def __init__(
        self,
        columns: Sequence[Column],
        fetch: Fetch,
        nothing: Nothing,
        *,
        key: str,
        actions: Sequence[Action] = (),
        on_row: Callable[[Row], Awaitable[None] | None] | None = None,
    ) -> None:
        self._fetch = fetch
        self._key = key
        self._actions = {action.name: action for action in actions}
        self._cursors = [""]
        self._next: str | None = None
        with ui.element("div").classes("ql-sheet"):
            self._build([*columns, Column("actions", "")] if actions else columns, nothing, on_row)
        if actions:
            self._table.add_slot("body-cell-actions", _buttons(actions))
            self._table.on("act", self._act)

    def _build(
        self,
        columns: Sequence[Column],
        nothing: Nothing,
        on_row: Callable[[Row], Awaitable[None] | None] | None,
    ) -> None:
        whole: dict[str, Any] = {"rowsPerPage": 0}
        self._table = widgets.table(columns, [], self._key, pagination=whole, on_open=on_row)
        self._table.props("hide-pagination")
        self._table.set_visibility(False)
        self._nothing = widgets.empty(*nothing)
        self._nothing.set_visibility(False)
        with ui.row().classes("ql-pager") as self._pager:
            self._back = ui.button("Back", icon="chevron_left", on_click=self._to_former)
            self._on = ui.button("More", on_click=self._to_next).props("icon-right=chevron_right")
            for button in (self._back, self._on):
                button.props("flat dense no-caps")
        self._pager.set_visibility(False)

    def add_cell(self, column: str, template: str) -> None:
        """Show a column by a template of Vue; what came from clients stays in its {{ }}."""
        self._table.add_slot(f"body-cell-{column}", template)

    async def restart(self) -> None:
        """Show the first page, as after another search."""
        self._cursors = [""]
        await self.refresh()

    async def refresh(self) -> None:
        rows, self._next = await self._fetch(self._cursors[-1])
        if not rows and len(self._cursors) > 1:  # the last row of the last page is gone
            self._cursors.pop()
            rows, self._next = await self._fetch(self._cursors[-1])
        if self._table.rows != rows:
            self._table.rows = rows
        self._table.set_visibility(bool(rows))
        self._nothing.set_visibility(not rows)
        self._pager.set_visibility(len(self._cursors) > 1 or self._next is not None)
        self._back.set_enabled(len(self._cursors) > 1)
        self._on.set_enabled(self._next is not None)

    async def _to_former(self) -> None:
        self._cursors.pop()
        await self.refresh()

    async def _to_next(self) -> None:
        if self._next is not None:
            self._cursors.append(self._next)
            await self.refresh()

    async def _act(self, event: events.GenericEventArguments) -> None:
        name, key = event.args
        # Whatever a browser names has to be a row which it was shown.
        for row in self._table.rows:
            if row[self._key] == key and name in self._actions:
                await self._actions[name].do(row)


def keep_fresh(seconds: float, refresh: Callable[[], Awaitable[None]]) -> None:
    """Repeat it while the page is open. That the broker does not answer is said by the banner."""

    async def refresh_quietly() -> None:
        with contextlib.suppress(BrokerDownError):
            await refresh()

    ui.timer(seconds, refresh_quietly, immediate=False)


def search_box(label: str, value: str, on_change: Callable[[], Awaitable[None]]) -> ui.input:
    """Searches a moment after the last key."""
    box = ui.input(placeholder=label, value=value, on_change=on_change)
    box.props(f'dense outlined clearable debounce={SEARCH_DELAY_MS} aria-label="{label}"')
    box.classes("ql-search")
    with box.add_slot("prepend"):
        ui.icon("search")
    return box


def _buttons(actions: Sequence[Action]) -> str:
    """The cell with the buttons of a row; labels are ours, the key never leaves its binding."""
    buttons = "".join(
        f"""<q-btn flat dense no-caps label="{action.label}"
            {f'v-if="props.row.{action.offered}"' if action.offered else ""}
            color="{"negative" if action.danger else "primary"}"
            @click.stop="$parent.$emit('act', ['{action.name}', props.key])" />"""
        for action in actions
    )
    return f'<q-td :props="props" class="ql-actions">{buttons}</q-td>'
