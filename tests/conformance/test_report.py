"""The conformance page is complete and up to date."""

from __future__ import annotations

import pytest

from tests.conformance import report


@pytest.mark.parametrize("standard", report.STANDARDS, ids=lambda standard: standard.title)
def test_every_statement_has_a_test_or_a_reason(standard: report.Standard) -> None:
    assert report.problems(standard) == []


def test_the_committed_page_is_up_to_date() -> None:
    written = report.PAGE.read_text(encoding="utf-8")
    assert written == report.page(), "run `python -m tests.conformance.report`"
