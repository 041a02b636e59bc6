"""Permissions: may this client do that? The rules, and an editor for those kept here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from nicegui import ui

from queuelake.admin.console import widgets
from queuelake.admin.console.listing import Action, Listing, Nothing, Row
from queuelake.admin.console.shell import page
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services
from queuelake.settings import AclRule

ACTIONS = {"publish": "publish to", "subscribe": "subscribe to"}
WHAT = {"all": "publish and subscribe", "publish": "publish", "subscribe": "subscribe"}
PERMISSIONS = {"allow": "allow", "deny": "deny"}
PLATFORM = {"any": "any client", "yes": "platform accounts", "no": "others than platform accounts"}
MATCHERS = {
    "clientid": "Client id",
    "clientid_re": "Client id, a regular expression",
    "username": "User",
    "username_re": "User, a regular expression",
    "ip": "Address or network",
}
WHO = {
    "clientid": "client id",
    "clientid_re": "client id like",
    "username": "user",
    "username_re": "user like",
    "ip": "address",
}
COLUMNS = [
    Column("permission", "Permission"),
    Column("action", "To", minor=True),
    Column("topics", "Topics"),
    Column("who", "Who"),
]


@page("/permissions", "Permissions", icon="policy", section="Access", role="admin")
async def permissions(visit: Visit) -> None:
    widgets.title("Permissions", "The first rule which fits decides, from the top")
    _tester(visit)
    editor = _Editor(visit)
    await editor.load()


def _tester(visit: Visit) -> None:
    """May client X publish to Y?"""
    with widgets.card("May this client ...?"):
        with ui.row().classes("ql-filters"):
            client = ui.input("Client id").props("dense outlined")
            user = ui.input("User").props("dense outlined")
            address = ui.input("Address", placeholder="127.0.0.1").props("dense outlined")
            action = ui.select(ACTIONS, value="publish").props("dense outlined")
            action.props('aria-label="Action"')
            topic = ui.input("Topic").props("dense outlined").classes("ql-grow")
            test = ui.button("Test").props("no-caps unelevated")
        with ui.row().classes("ql-answer").props('role="status"') as answer:
            pass

        async def ask() -> None:
            who = {"client_id": client.value, "username": user.value, "ip": address.value}
            found = await visit.do(Services.test_acl, action.value, topic.value, **who)
            answer.clear()
            with answer:
                widgets.chip(*(("allowed", "good") if found.allowed else ("denied", "bad")))
                name = client.value or "such a client"
                may = "may" if found.allowed else "may not"
                ui.label(f"{name} {may} {ACTIONS[action.value]} {topic.value}")
                if found.platform:
                    ui.label("It counts as a platform account.").classes("ql-note")

        test.on_click(ask)
        topic.on("keydown.enter", ask)


class _Editor:
    """The rules which the broker keeps, changed here until they are saved as a whole."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._version = ""
        self._saved: list[AclRule] = []
        self._rules: list[AclRule] = []
        with widgets.card("Rules kept by the broker", "asked first"):
            self._kept = Listing(
                COLUMNS,
                self._fetch,
                Nothing("policy", "No rule", "Those below decide alone."),
                key="key",
                actions=[
                    Action("up", "Up", self._up, offered="has_former"),
                    Action("edit", "Change", self._edit),
                    Action("delete", "Remove", self._remove, danger=True),
                ],
            )
            with ui.row().classes("ql-buttons"):
                self._note = ui.label("").classes("ql-note")
                ui.button("Add a rule", icon="add", on_click=self._add).props("flat no-caps")
                self._undo = ui.button("Undo all", on_click=self.load).props("flat no-caps")
                self._save_button = ui.button("Save", on_click=self._save)
                self._save_button.props("no-caps unelevated")
        self._others = ui.column().classes("ql-content")

    async def load(self) -> None:
        """What is in force; what was changed here and not saved is forgotten."""
        in_force = await self._visit.do(Services.acl)
        self._version = in_force.version
        self._saved, self._rules = list(in_force.rules), list(in_force.rules)
        await self._show()
        self._others.clear()
        with self._others:
            _fixed("Rules of the configuration", "[[acl]]; asked next", in_force.configured)
            _fixed("Shipped rules", "asked last", in_force.shipped)

    async def _show(self) -> None:
        await self._kept.refresh()
        changed = self._rules != self._saved
        self._note.set_text("Not saved yet" if changed else "")
        self._undo.set_enabled(changed)
        self._save_button.set_enabled(changed)

    async def _fetch(self, _cursor: str) -> tuple[list[Row], str | None]:
        return [
            rule_row(rule, number) | {"has_former": number > 0}
            for number, rule in enumerate(self._rules)
        ], None

    async def _up(self, row: Row) -> None:
        at = row["key"]
        self._rules[at - 1 : at + 1] = self._rules[at - 1 : at + 1][::-1]
        await self._show()

    async def _remove(self, row: Row) -> None:
        del self._rules[row["key"]]
        await self._show()

    async def _add(self) -> None:
        async def add(rule: AclRule) -> None:
            self._rules.append(rule)
            await self._show()

        rule_form(AclRule("allow", []), add)

    async def _edit(self, row: Row) -> None:
        async def change(rule: AclRule) -> None:
            self._rules[row["key"]] = rule
            await self._show()

        rule_form(self._rules[row["key"]], change)

    async def _save(self) -> None:
        words = (
            f"{len(self._saved)} rules become {len(self._rules)}, for every client at once.\n"
            "Subscriptions which are not allowed any more end."
        )
        if not await widgets.confirm("Save these rules?", words, action="Save"):
            return
        await self._visit.do(Services.replace_acl, as_json(self._rules), self._version)
        widgets.say("The rules are in force")
        await self.load()


def _fixed(heading: str, note: str, rules: Sequence[AclRule]) -> None:
    with widgets.card(heading, note):
        if rules:
            widgets.table(COLUMNS, [rule_row(one, at) for at, one in enumerate(rules)], "key")
        else:
            ui.label("None").classes("ql-note")


def rule_row(rule: AclRule, key: int) -> Row:
    return {
        "key": key,
        "permission": rule.permission,
        "permission_class": f"ql-chip ql-chip-{'good' if rule.permission == 'allow' else 'bad'}",
        "action": WHAT[rule.action],
        "topics": ", ".join(rule.topics),
        "who": who(rule),
    }


def who(rule: AclRule) -> str:
    """To whom a rule applies, in words."""
    parts = [f"{words} {getattr(rule, name)}" for name, words in WHO.items() if getattr(rule, name)]
    if rule.platform is not None:
        parts.append(PLATFORM["yes" if rule.platform else "no"])
    return " and ".join(parts) or "everybody"


def as_json(rules: Sequence[AclRule]) -> bytes:
    """Rules as a request says them: what is not set is left out, as in a configuration."""
    trees: list[dict[str, object]] = msgspec.to_builtins(rules)
    said = [{k: v for k, v in tree.items() if v not in (None, "")} for tree in trees]
    return msgspec.json.encode({"rules": said})


def rule_form(rule: AclRule, then: Callable[[AclRule], Awaitable[None]]) -> None:
    """Ask for one rule; whether it is a good one is said when the rules are saved."""
    with widgets.form("Rule", "${clientid} and ${username} stand for the client's own.") as dialog:
        with ui.row().classes("ql-filters"):
            permission = ui.select(PERMISSIONS, value=rule.permission, label="Permission")
            action = ui.select(WHAT, value=rule.action, label="To")
        topics = ui.textarea("Topic filters, one on each line", value="\n".join(rule.topics))
        topics.classes("full-width").props("outlined autogrow rows=2 autofocus input-class=ql-mono")
        matchers = {
            name: ui.input(label, value=getattr(rule, name)).classes("full-width").props("dense")
            for name, label in MATCHERS.items()
        }
        kept = "any" if rule.platform is None else "yes" if rule.platform else "no"
        platform = ui.select(PLATFORM, value=kept, label="Clients").classes("full-width")

        async def keep() -> None:
            lines = [line.strip() for line in topics.value.splitlines() if line.strip()]
            if not lines:
                widgets.say_refused("A rule has at least one topic filter")
                return
            fields = {name: field.value.strip() for name, field in matchers.items()}
            wanted = {"any": None, "yes": True, "no": False}[platform.value]
            dialog.close()
            await then(AclRule(permission.value, lines, action.value, platform=wanted, **fields))

        with ui.row().classes("ql-buttons"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Keep", on_click=keep).props("no-caps unelevated")
