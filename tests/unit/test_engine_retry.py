"""When a message comes again, and when it is a dead letter (D20, D21)."""

from __future__ import annotations

import pytest

from queuelake.engine.policy.retry import MAX_RETRIES, RETRY, TIMEOUT, backoff_ms, verdict
from tests.unit.engine_queue import policy_with

HOUR_MS = 3_600_000


def test_the_default_backoff_doubles_from_five_seconds_to_five_minutes() -> None:
    seconds = [backoff_ms(policy_with(), number) / 1000 for number in range(1, 10)]
    assert seconds == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_a_multiplier_of_one_gives_the_same_delay_each_time() -> None:
    policy = policy_with(backoff_initial_ms=700, backoff_multiplier=1.0)
    assert {backoff_ms(policy, number) for number in range(1, 50)} == {700}


def test_an_initial_delay_at_the_maximum_stays_there() -> None:
    policy = policy_with(backoff_initial_ms=9000, backoff_max_ms=9000)
    assert [backoff_ms(policy, number) for number in (1, 2, 1000)] == [9000, 9000, 9000]


@pytest.mark.parametrize(
    ("retries_max", "deliveries", "age_ms", "expected"),
    [
        (10, 1, 0, RETRY),
        (10, 10, 0, RETRY),
        (10, 11, 0, MAX_RETRIES),
        (0, 1, 0, MAX_RETRIES),
        (10, 1, 3 * HOUR_MS, RETRY),
        (10, 1, 3 * HOUR_MS + 1, TIMEOUT),
        (10, 11, 3 * HOUR_MS + 1, MAX_RETRIES),  # the number is looked at first
    ],
)
def test_verdicts(retries_max: int, deliveries: int, age_ms: int, expected: str) -> None:
    policy = policy_with(retries_max=retries_max)
    assert verdict(policy, deliveries, 1000, 1000 + age_ms) == expected


def test_a_total_timeout_of_zero_never_ends_retries() -> None:
    assert verdict(policy_with(total_timeout_ms=0), 1, 0, 10**15) == RETRY


def test_a_dead_letter_is_retried_without_end() -> None:
    policy = policy_with(is_dead_letter_queue=True, retries_max=0)
    assert verdict(policy, 10**6, 0, 10**15) == RETRY
