"""From a document to the changes it asks for, in the order in which they are safe.

What clients need is there before they are let in; what is deleted goes last, and users after what
they may still be using. All that can be wrong is said before the first change.
"""

from __future__ import annotations

from queuelake.cli.applying import access, message_queues, queues, services
from queuelake.cli.applying.change import Change, Table
from queuelake.cli.rest import Rest
from queuelake.errors import ConfigError


def plan(rest: Rest, document: Table, prune: bool, passwords: bool) -> list[Change]:
    """Sections which are not in the document are not looked at.

    Raises:
        ConfigError: one line for each mistake.
    """
    mistakes: list[str] = []
    changes: list[Change] = []
    for section, planned in (
        ("queues", queues.plan_queues),
        ("mq", message_queues.plan_message_queues),
        ("ecq", services.plan_ecq),
        ("sdv", services.plan_sdv),
    ):
        table = document.get(section)
        if isinstance(table, dict):
            changes += planned(rest, table, prune, mistakes)
    users = document.get("users")
    if isinstance(users, dict):
        changes += access.plan_users(rest, users, prune, mistakes, passwords=passwords)
    if "acl" in document:
        changes += access.plan_rules(rest, document["acl"], mistakes)
    if mistakes:
        raise ConfigError(mistakes)
    return sorted(changes, key=lambda change: change.action == "delete")


def export(rest: Rest) -> Table:
    """The document of what there is; secrets of users are not in it."""
    return {
        "queues": queues.export_queues(rest),
        "mq": message_queues.export_message_queues(rest),
        "ecq": services.export_service(rest, "ecq"),
        "sdv": services.export_service(rest, "sdv"),
        "users": access.export_users(rest),
        "acl": access.export_rules(rest),
    }
