"""Conditions and queries of users: what is let through to Spark, and what is not."""

from __future__ import annotations

import pytest

from queuelake.errors import RefusedError
from queuelake.pipeline.jobs.expressions import check_expression, check_query


@pytest.mark.parametrize(
    "text",
    [
        "key = 'k1' AND ts >= '2026-01-31'",
        "properties['a'] LIKE '%x; select -- no%'",
        "string(payload) = 'it''s'",
        "extract(year FROM ts) = 2026",
        "`select` = 1",
        'key = "/* text */"',
        "current_timestamp() - ts > INTERVAL 1 HOUR",
    ],
)
def test_an_expression_is_let_through(text: str) -> None:
    assert check_expression(text, "--where") == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "--where is empty"),
        ("key IN (SELECT key FROM secrets)", "'SELECT' is part of a query"),
        ("exists (table t)", "'TABLE' is part of a query"),
        ("key = 'a'; DROP TABLE t", "ends a statement"),
        ("key = 'a' -- rest", "comments are not allowed"),
        ("key = 'a' /* rest", "comments are not allowed"),
        ("key = 'a", "is not closed"),
        ("reflect('java.lang.System', 'exit', 1)", "runs code"),
        ("rand() < 0.5", "another answer each time"),
        ("x" * 10_001, "10001 characters of 10000"),
    ],
)
def test_what_is_no_expression_is_refused(text: str, words: str) -> None:
    with pytest.raises(RefusedError, match=words.replace("(", r"\(")):
        check_expression(text, "--where")


def test_a_query_begins_as_one_and_only_reads() -> None:
    assert check_query("SELECT vin FROM fleet", "--sql")
    assert check_query("WITH t AS (SELECT 1 AS vin) SELECT * FROM t", "--sql")
    for text in ("DROP TABLE t", "INSERT INTO t SELECT 1", "SET a=b", "SELECT 1; SELECT 2"):
        with pytest.raises(RefusedError):
            check_query(text, "--sql")
    with pytest.raises(RefusedError, match="INSERT writes"):
        check_query("FROM a INSERT INTO b SELECT *", "--sql")
