"""What becomes of a message which was not settled: again later, or to the dead letters."""

from __future__ import annotations

from queuelake.engine.policy.settings import Policy

RETRY = ""
MAX_RETRIES = "max_retries"
TIMEOUT = "timeout"


def backoff_ms(policy: Policy, retry: int) -> int:
    """The delay before retry number `retry` (1 is the first)."""
    delay = float(policy.backoff_initial_ms)
    for _ in range(retry - 1):
        delay *= policy.backoff_multiplier
        if delay >= policy.backoff_max_ms:
            return policy.backoff_max_ms
    return min(int(delay), policy.backoff_max_ms)


def verdict(policy: Policy, deliveries: int, created_ms: int, now_ms: int) -> str:
    """RETRY, or the reason why a message delivered so often is a dead letter."""
    if policy.is_dead_letter_queue:
        return RETRY
    if deliveries - 1 >= policy.retries_max:
        return MAX_RETRIES
    if policy.total_timeout_ms and now_ms - created_ms > policy.total_timeout_ms:
        return TIMEOUT
    return RETRY
