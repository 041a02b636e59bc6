"""The settings of one quorum queue as plain numbers in milliseconds and bytes."""

from __future__ import annotations

from typing import Final, final

# What happens when there is no room.
DROP_HEAD: Final = 0
REJECT_PUBLISH: Final = 1

# How surely a dead letter reaches its target.
AT_MOST_ONCE: Final = 0
AT_LEAST_ONCE: Final = 1

# Which messages wait before they are handed out again.
RETRY_AT_ONCE: Final = 0
RETRY_ALL: Final = 1
RETRY_FAILED: Final = 2
RETRY_RETURNED: Final = 3

PREFETCH_UNLIMITED: Final = 2_000  # what a prefetch of 0 means
UNSET: Final = -1


@final
class QuorumPolicy:
    """0 turns a limit off, but where 0 has a meaning of its own `UNSET` does."""

    __slots__ = (
        "bytes_max",
        "consumer_timeout_ms",
        "dead_letter_strategy",
        "dead_letter_target",
        "delayed_retry",
        "delayed_retry_max_ms",
        "delayed_retry_min_ms",
        "delivery_limit",
        "disconnected_timeout_ms",
        "expires_ms",
        "length_max",
        "overflow",
        "single_active_consumer",
        "ttl_ms",
    )

    def __init__(self) -> None:
        self.length_max: int = 0
        self.bytes_max: int = 0
        self.overflow: int = DROP_HEAD
        self.ttl_ms: int = UNSET
        self.expires_ms: int = 0  # a queue nobody uses is deleted after that
        self.delivery_limit: int = 20
        self.dead_letter_target: str = ""
        self.dead_letter_strategy: int = AT_MOST_ONCE
        self.single_active_consumer: bool = False
        self.consumer_timeout_ms: int = 1_800_000
        self.disconnected_timeout_ms: int = 60_000
        self.delayed_retry: int = RETRY_AT_ONCE
        self.delayed_retry_min_ms: int = 1_000
        self.delayed_retry_max_ms: int = 60_000

    def buries_surely(self) -> bool:
        """Without a target, or where the backlog could not hold publishers back, it falls back."""
        return (
            self.dead_letter_strategy == AT_LEAST_ONCE
            and self.overflow == REJECT_PUBLISH
            and self.dead_letter_target != ""
        )

    def is_over(self, count: int, size: int) -> bool:
        return 0 < self.length_max < count or 0 < self.bytes_max < size

    def has_room(self, count: int, size: int) -> bool:
        """Publishers may go on when both limits are used to 80 % at most."""
        return (not self.length_max or count <= self.length_max * 4 // 5) and (
            not self.bytes_max or size <= self.bytes_max * 4 // 5
        )
