"""Users: who may connect with a password, and what they may do in the console."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from queuelake.admin.console import widgets
from queuelake.admin.console.listing import ROWS_PER_PAGE, Action, Listing, Nothing, Row
from queuelake.admin.console.shell import page
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services
from queuelake.control_access import NewUser, UserChange, UserInfo

ROLES = {
    "none": "none: MQTT only",
    "viewer": "viewer: may look",
    "operator": "operator: may change",
    "admin": "admin: may do everything",
}
NOT_ENFORCED = (
    "Clients may connect without a user: auth.password_file is not set. These users can log in to"
    " this console if they have a role."
)


@page("/users", "Users", icon="group", section="Access", role="admin")
async def users(visit: Visit) -> None:
    async def fetch(cursor: str) -> tuple[list[Row], str | None]:
        found = await visit.look(Services.users, ROWS_PER_PAGE, cursor)
        note.set_visibility(not found.enforced)
        return [_row(one) for one in found.users], found.next

    async def changed() -> None:
        await listing.refresh()

    async def delete(row: Row) -> None:
        name = row["name"]
        words = (
            "The user cannot connect nor log in any more, and connections which use this name"
            " are closed. What its clients subscribed to stays in their sessions."
        )
        if await widgets.confirm(f"Delete the user {name}?", words, action="Delete"):
            await visit.do(Services.delete_user, name)
            widgets.say(f"The user {name} is deleted")
            await listing.refresh()

    async def edit(row: Row) -> None:
        _form(visit, await visit.do(Services.user, row["name"]), changed)

    with widgets.title("Users", "Names and passwords of clients; with a role, of people here too"):
        ui.space()
        add = ui.button("Add a user", icon="person_add")
        add.on_click(lambda: _form(visit, None, changed)).props("no-caps unelevated")
    note = ui.label(NOT_ENFORCED).classes("ql-note")
    listing = Listing(
        [
            Column("name", "Name"),
            Column("role", "Role in the console"),
            Column("platform", "Platform account", minor=True),
        ],
        fetch,
        Nothing("group", "No users", "Add one, or use queuelake users add."),
        key="name",
        actions=[Action("edit", "Change", edit), Action("delete", "Delete", delete, danger=True)],
    )
    await listing.restart()


def _row(one: UserInfo) -> Row:
    platform = "yes" if one.platform else ""
    return {
        "name": one.name,
        "role": one.role,
        "role_class": "ql-chip" if one.role == "none" else "ql-chip ql-chip-info",
        "platform": f"{platform}, by the configuration" if one.configured_platform else platform,
    }


def _form(visit: Visit, user: UserInfo | None, then: Callable[[], Awaitable[None]]) -> None:
    """A new user, or another password, role or kind of one who is there."""
    heading = "Add a user" if user is None else f"Change {user.name}"
    with widgets.form(heading) as dialog:
        name = ui.input("Name", value="" if user is None else user.name).classes("full-width")
        name.props("autocomplete=off autofocus").set_enabled(user is None)
        label = "Password" if user is None else "New password; empty: as it is"
        password = ui.input(label, password=True).classes("full-width")
        password.props("autocomplete=new-password")
        role = ui.select(ROLES, value="none" if user is None else user.role, label="Console")
        role.classes("full-width")
        platform = ui.checkbox("Platform account", value=user is not None and user.platform)
        platform.tooltip("May write to mailboxes and trigger fan-out")
        platform.set_enabled(user is None or not user.configured_platform)

        async def save() -> None:
            if user is None:
                new = NewUser(password.value or None, None, role.value, platform.value)
                await visit.do(Services.add_user, name.value.strip(), new)
            else:
                wanted = platform.value if platform.value != user.platform else None
                change = UserChange(password.value or None, None, role.value, wanted)
                await visit.do(Services.change_user, user.name, change)
            dialog.close()
            widgets.say(f"The user {name.value.strip()} is saved")
            await then()

        with ui.row().classes("ql-buttons"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Save", on_click=save).props("no-caps unelevated")
