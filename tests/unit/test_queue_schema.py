"""P11: what can be said of payloads, as far as it can be judged without Spark."""

from __future__ import annotations

import pytest

from queuelake.queue_settings import BadQueueSettingsError, QueueSettings, configured

GOOD = [
    {"format": "json", "ddl": "id bigint, name string"},
    {"format": "json", "ddl": "a struct<b: array<map<string, decimal(10, 2)>>>"},
    {"format": "json", "ddl": "`odd > name (` int COMMENT 'it\\'s > fine)'"},
    {"format": "csv", "ddl": "id bigint,\n  name string"},
    {"format": "text"},
    {"format": "binary"},
    {"format": ""},
]
BAD = [
    ({"format": "json"}, r'schema.ddl = "": allowed: a schema in the words of Spark'),
    ({"format": "csv", "ddl": " "}, "allowed: a schema in the words of Spark"),
    ({"format": "json", "ddl": "a array<int"}, "< stays open"),
    ({"format": "json", "ddl": "a decimal(10, 2>"}, "one > closes nothing"),
    ({"format": "json", "ddl": "a int)"}, r"one \) closes nothing"),
    ({"format": "json", "ddl": "a int" + " " * 33_000}, "at most 32768 characters"),
    ({"format": "json", "ddl": "a int\0"}, "no control characters"),
    ({"format": "text", "ddl": "a int"}, 'needs schema.format = "json" or "csv", not "text"'),
    ({"format": "binary", "ddl": "a int"}, 'not "binary"'),
    ({"ddl": "a int"}, 'not ""'),
    ({"format": "xml"}, "schema.format"),
]


@pytest.mark.parametrize("schema", GOOD)
def test_a_schema_is_taken_as_it_is(schema: dict[str, object]) -> None:
    settings = configured(QueueSettings(), {"schema": schema})
    assert settings.schema.ddl == schema.get("ddl", "")


@pytest.mark.parametrize(("schema", "mistake"), BAD)
def test_a_schema_which_cannot_be_one_is_refused(schema: dict[str, object], mistake: str) -> None:
    with pytest.raises(BadQueueSettingsError, match=mistake):
        configured(QueueSettings(), {"schema": schema})
