"""Rate limits as token buckets: a bucket fills steadily and each use takes from it.

The bucket has no clock: `now` comes from the caller, so tests own the time. What is refused takes
nothing; the caller waits as long as it was told and asks again.
"""

from __future__ import annotations

from typing import Final, final

WAIT_MARGIN_S: Final = 1e-6  # above the rounding of a float clock: waiting as told must suffice


@final
class TokenBucket:
    """Allows `rate_per_s` on average and `burst` at once."""

    __slots__ = ("_burst", "_rate_per_s", "_tokens", "_updated_at")

    def __init__(self, rate_per_s: float, burst: float) -> None:
        assert rate_per_s > 0, f"rate_per_s is {rate_per_s}; a limit of 0 means: make no bucket"
        assert burst > 0, f"burst is {burst}; nothing could ever pass"
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._tokens = burst
        self._updated_at = -1.0

    def take(self, n: float, now: float) -> float:
        """Take `n` and return 0.0, or take nothing and return the seconds to wait.

        More than the burst passes when the bucket is full, and is paid back afterwards: a packet
        larger than the burst is slow, never stuck.
        """
        if self._updated_at < 0.0:
            self._updated_at = now
        elapsed_s = now - self._updated_at
        if elapsed_s > 0.0:
            self._tokens = min(self._burst, self._tokens + elapsed_s * self._rate_per_s)
            self._updated_at = now
        needed = min(n, self._burst)
        if self._tokens >= needed:
            self._tokens -= n
            return 0.0
        return (needed - self._tokens) / self._rate_per_s + WAIT_MARGIN_S
