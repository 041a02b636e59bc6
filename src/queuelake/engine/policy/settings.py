"""The settings of one queue as the machine reads them: plain numbers in milliseconds and bytes.

0 turns a limit off where the limit may be off at all.
"""

from __future__ import annotations

from typing import Final, final

from queuelake.config_types import parse_duration
from queuelake.engine.events import ALL, FAILURES, OFF
from queuelake.queue_settings import QueueSettings

NONE: Final = 0
PARTITION: Final = 1
STRICT: Final = 2

# Who gets a message of a message queue.
RANDOM: Final = 0
ROUND_ROBIN: Final = 1
LEAST_INFLIGHT: Final = 2
STICKY_KEY: Final = 3

BLOCKS_NOTHING: Final = 0
BLOCKS_KEY: Final = 1
BLOCKS_PARTITION: Final = 2

# Of numbers where 0 has a meaning of its own: above every value a queue can be given.
UNLIMITED: Final = 1 << 62

_ORDERINGS: Final = {"none": NONE, "partition": PARTITION, "strict": STRICT}
_BLOCKS: Final = {"none": BLOCKS_NOTHING, "key": BLOCKS_KEY, "partition": BLOCKS_PARTITION}
_EVENTS: Final = {"off": OFF, "failures": FAILURES, "all": ALL}
_DEFAULT_BLOCKS: Final = {"none": "none", "partition": "key", "strict": "partition"}


@final
class Policy:
    """Defaults are those of a durable queue nobody configured."""

    __slots__ = (
        "backoff_initial_ms",
        "backoff_max_ms",
        "backoff_multiplier",
        "batch_size",
        "bytes_max",
        "compaction_enabled",
        "compaction_interval_ms",
        "compaction_lag_ms",
        "count_max",
        "dedupe_window_ms",
        "delivery_timeout_ms",
        "depth_max",
        "dlq_enabled",
        "drop_head",
        "events",
        "expire_to_dlq",
        "group_expiry_ms",
        "heartbeat_timeout_ms",
        "is_dead_letter_queue",
        "is_last_value",
        "is_message_queue",
        "is_stream",
        "key_inflight",
        "message_bytes_max",
        "ordering",
        "partitions",
        "prefetch",
        "redispatch_ms",
        "retention_age_ms",
        "retention_bytes",
        "retention_messages",
        "retries_max",
        "retry_blocks",
        "strategy",
        "sublevels",
        "total_timeout_ms",
        "ttl_ms",
        "unacked_max",
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
        self.events: int = FAILURES  # which steps in the lives of messages are noted down
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
        # Of message queues.
        self.is_message_queue: bool = False
        self.is_last_value: bool = False
        self.strategy: int = RANDOM
        self.redispatch_ms: int = 100
        self.unacked_max: int = UNLIMITED  # of all consumers together
        self.count_max: int = 0
        self.bytes_max: int = 0  # payloads of what is there


def message_queue_policy() -> Policy:
    """Defaults of a message queue: what only durable queues have is off."""
    policy = Policy()
    policy.is_message_queue = True
    policy.partitions = 1
    policy.ordering = NONE
    policy.retry_blocks = BLOCKS_NOTHING
    policy.retries_max = UNLIMITED
    policy.total_timeout_ms = 0
    policy.delivery_timeout_ms = 0
    policy.message_bytes_max = UNLIMITED
    policy.depth_max = 0
    policy.ttl_ms = 0
    policy.group_expiry_ms = 0
    policy.dedupe_window_ms = 0
    policy.retention_age_ms = 7 * 86_400_000
    return policy


def policy_of(settings: QueueSettings, dead_letters: bool) -> Policy:
    """What the machine of a queue with these settings obeys.

    Nothing may be lost which was a dead letter once: for those, limits and expiry are off whatever
    the settings say.
    """
    policy = Policy()
    policy.partitions = settings.partitions
    policy.ordering = _ORDERINGS[settings.ordering]
    policy.retry_blocks = _BLOCKS[settings.retry_blocks or _DEFAULT_BLOCKS[settings.ordering]]
    policy.key_inflight = settings.key_inflight
    policy.drop_head = settings.overflow == "drop_head"
    policy.expire_to_dlq = settings.expire_to_dlq
    policy.dedupe_window_ms = parse_duration(settings.dedupe_window)
    policy.group_expiry_ms = parse_duration(settings.group_expiry)
    policy.is_stream = settings.type == "stream"
    policy.sublevels = settings.sublevels
    policy.dlq_enabled = settings.dlq_config.enabled
    policy.events = _EVENTS[settings.events]
    policy.message_bytes_max = settings.limits.max_message_size
    policy.depth_max = settings.limits.max_queue_depth
    policy.ttl_ms = parse_duration(settings.limits.message_ttl)
    policy.delivery_timeout_ms = parse_duration(settings.performance.delivery_timeout)
    policy.heartbeat_timeout_ms = parse_duration(settings.performance.heartbeat_timeout)
    policy.batch_size = settings.performance.batch_size
    policy.prefetch = settings.performance.prefetch
    _read_retries(policy, settings)
    _read_streams(policy, settings)
    if dead_letters:
        _protect_dead_letters(policy)
    return policy


def _read_retries(policy: Policy, settings: QueueSettings) -> None:
    retry = settings.retry_policy
    policy.retries_max = retry.max_retries
    policy.backoff_initial_ms = parse_duration(retry.initial_backoff)
    policy.backoff_max_ms = parse_duration(retry.max_backoff)
    policy.backoff_multiplier = float(retry.backoff_multiplier)
    policy.total_timeout_ms = parse_duration(retry.total_timeout)


def _read_streams(policy: Policy, settings: QueueSettings) -> None:
    policy.retention_age_ms = parse_duration(settings.retention.max_age)
    policy.retention_bytes = settings.retention.max_bytes
    policy.retention_messages = settings.retention.max_messages
    policy.compaction_enabled = settings.compaction.enabled
    policy.compaction_lag_ms = parse_duration(settings.compaction.lag)
    policy.compaction_interval_ms = parse_duration(settings.compaction.interval)


def _protect_dead_letters(policy: Policy) -> None:
    policy.is_dead_letter_queue = True
    policy.ttl_ms = 0
    policy.depth_max = UNLIMITED
    policy.drop_head = False
    policy.dlq_enabled = False
    policy.expire_to_dlq = False
    policy.retries_max = UNLIMITED
    policy.total_timeout_ms = 0
    # Its original was within the limit of its own queue.
    policy.message_bytes_max = UNLIMITED
    policy.retention_age_ms = 0
    policy.retention_bytes = 0
    policy.retention_messages = 0
    policy.compaction_enabled = False
