"""The settings of one queue as the machine reads them: plain numbers in milliseconds and bytes.

0 turns a limit off where the limit may be off at all.
"""

from __future__ import annotations

from typing import Final, final

NONE: Final = 0
PARTITION: Final = 1
STRICT: Final = 2

BLOCKS_NOTHING: Final = 0
BLOCKS_KEY: Final = 1
BLOCKS_PARTITION: Final = 2


@final
class Policy:
    """Defaults are those of a durable queue nobody configured."""

    __slots__ = (
        "backoff_initial_ms",
        "backoff_max_ms",
        "backoff_multiplier",
        "batch_size",
        "compaction_enabled",
        "compaction_interval_ms",
        "compaction_lag_ms",
        "dedupe_window_ms",
        "delivery_timeout_ms",
        "depth_max",
        "dlq_enabled",
        "drop_head",
        "expire_to_dlq",
        "group_expiry_ms",
        "heartbeat_timeout_ms",
        "is_dead_letter_queue",
        "is_stream",
        "key_inflight",
        "message_bytes_max",
        "ordering",
        "partitions",
        "prefetch",
        "retention_age_ms",
        "retention_bytes",
        "retention_messages",
        "retries_max",
        "retry_blocks",
        "sublevels",
        "total_timeout_ms",
        "ttl_ms",
    )

    def __init__(self) -> None:
        self.partitions: int = 10
        self.ordering: int = PARTITION
        self.retries_max: int = 10
        self.backoff_initial_ms: int = 5_000
        self.backoff_max_ms: int = 300_000
        self.backoff_multiplier: float = 2.0
        self.total_timeout_ms: int = 3 * 3_600_000
        self.dlq_enabled: bool = True
        self.message_bytes_max: int = 1_048_576
        self.depth_max: int = 100_000
        self.drop_head: bool = False
        self.ttl_ms: int = 168 * 3_600_000
        self.expire_to_dlq: bool = False
        self.delivery_timeout_ms: int = 30_000
        self.batch_size: int = 1
        self.prefetch: int = 10
        self.group_expiry_ms: int = 7 * 86_400_000
        self.dedupe_window_ms: int = 120_000
        self.retry_blocks: int = BLOCKS_KEY
        self.key_inflight: int = 0
        self.is_stream: bool = False
        self.is_dead_letter_queue: bool = False
        self.sublevels: bool = False
        self.heartbeat_timeout_ms: int = 30_000
        self.retention_age_ms: int = 0
        self.retention_bytes: int = 0
        self.retention_messages: int = 0
        self.compaction_enabled: bool = False
        self.compaction_lag_ms: int = 300_000
        self.compaction_interval_ms: int = 600_000
