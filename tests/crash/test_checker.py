"""The crash test can fail: what it looks for is seen when it is there."""

from __future__ import annotations

import pytest

from tests.crash.workload import _mistake

QOS_1, QOS_2 = "crash/w4/plain/1/0", "crash/w4/plain/2/0"


@pytest.mark.parametrize(
    ("topic", "arrived"),
    [
        (QOS_1, [0, 1, 2, 3]),
        (QOS_1, [0, 1, 2, 1, 2, 3]),  # re-sent after a crash: at least once
        (QOS_2, [0, 1, 2, 3]),
    ],
)
def test_right_arrivals_are_no_mistake(topic: str, arrived: list[int]) -> None:
    assert _mistake(topic, [0, 1, 2, 3], arrived) == ""


@pytest.mark.parametrize(
    ("topic", "arrived", "mistake"),
    [
        (QOS_1, [0, 1, 3], "lost"),
        (QOS_2, [], "lost"),
        (QOS_1, [0, 2, 1, 3], "out of order"),
        (QOS_2, [0, 1, 1, 2, 3], "more than once"),
        ("crash/wills/3", [3, 3], "more than once"),
    ],
)
def test_wrong_arrivals_are_found(topic: str, arrived: list[int], mistake: str) -> None:
    expected = [3] if topic.startswith("crash/wills") else [0, 1, 2, 3]
    assert mistake in _mistake(topic, expected, arrived)
