"""How far the owner cuts the log."""

from __future__ import annotations

import pytest

from queuelake.broker.node.heart import LOG_BYTES_KEPT, needless

LIMIT = 4 * LOG_BYTES_KEPT
ALIVE = [90, 70]
KNOWN = [90, 70, 20]  # one of them is dead


@pytest.mark.parametrize(
    ("size", "upto"),
    [
        (LOG_BYTES_KEPT - 1, 0),
        (LOG_BYTES_KEPT, 20),
        (LIMIT - 1, 20),
        (LIMIT, 70),
    ],
)
def test_the_log_is_cut_behind_the_slowest_and_the_dead_are_waited_for_until_it_is_full(
    size: int, upto: int
) -> None:
    assert needless(size, LIMIT, KNOWN, ALIVE) == upto


def test_a_log_which_may_be_short_is_cut_when_it_has_that_size() -> None:
    limit = LOG_BYTES_KEPT // 2
    assert needless(limit - 1, limit, KNOWN, ALIVE) == 0
    assert needless(limit, limit, KNOWN, ALIVE) == 70
