"""What the audit and the settings say in words, without a browser."""

from __future__ import annotations

import pytest

from queuelake.admin.console.differences import Difference, differences, flattened
from queuelake.control_admin import SettingsInForce
from queuelake.control_audit import AuditEntry
from queuelake.settings import Settings, shown_table

pytest.importorskip("nicegui")

from queuelake.admin.console.audit import changes
from queuelake.admin.console.settings_page import setting_rows


def test_a_tree_is_its_leaves_by_dotted_keys() -> None:
    tree = {"a": {"b": 1, "c": {}}, "d": [1, 2], "e": {"f.g": None}}
    assert flattened(tree) == {"a.b": 1, "a.c": {}, "d": [1, 2], 'e."f.g"': None}
    assert flattened("no tree") == {}


def test_only_what_is_not_the_same_is_a_difference() -> None:
    before = {"same": 1, "changed": {"x": True}, "gone": "a"}
    after = {"same": 1, "changed": {"x": False}, "new": [1]}
    assert differences(before, after) == [
        Difference("changed.x", "true", "false"),
        Difference("gone", '"a"', None),
        Difference("new", None, "[1]"),
    ]
    assert differences({"was": None}, {}) == [Difference("was", "null", None)]


def test_the_audit_compares_with_the_part_of_the_answer_which_was_changed() -> None:
    before = {"name": "q", "settings": {"partitions": 1}}
    after = {"created": False, "queue": {"name": "q", "settings": {"partitions": 4}}}
    entry = AuditEntry(1, 0, "me", "queue_configure", "q", {}, before, after)
    assert changes(entry) == [Difference("settings.partitions", "1", "4")]


def test_of_what_was_deleted_the_audit_shows_all_and_of_what_was_refused_nothing() -> None:
    deleted = AuditEntry(1, 0, "me", "queue_delete", "q", {}, {"name": "q"}, None)
    assert changes(deleted) == [Difference("name", '"q"', None)]
    refused = AuditEntry(1, 0, "me", "queue_delete", "q", {}, {"name": "q"}, None, "in use")
    assert changes(refused) == []


def test_settings_are_compared_with_their_defaults() -> None:
    table = shown_table(Settings(shutdown_timeout_s=3.0))
    rows = {
        row["key"]: row for row in setting_rows(SettingsInForce(table, {"sys.interval_s": "x"}))
    }
    changed = rows["shutdown_timeout_s"]
    assert (changed["value"], changed["default"], changed["changed"]) == ("3.0", "10.0", True)
    same = rows["sys.interval_s"]
    assert (same["origin"], same["changed"]) == ("x", False)
    assert rows["mqtt.receive_max"]["origin"] == "default"
