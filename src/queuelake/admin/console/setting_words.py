"""What settings of queues mean, in a few words, for forms. docs/configuration.md has the rest."""

from __future__ import annotations

from typing import Final

GROUPS: Final = {
    "other": "More",
    "retry_policy": "Retries",
    "dlq_config": "Dead letters",
    "limits": "Limits",
    "performance": "Delivery",
    "retention": "How much of a stream is kept",
    "compaction": "Compaction of a stream",
    "schema": "Payload schema, for the lake",
}
LABELS: Final = {
    "dlq_config.enabled": "keep dead letters",
    "compaction.enabled": "keep the last message of each key only",
    "archive": "archive in the lake",
}
HINTS: Final = {
    "partitions": "may grow, never shrink",
    "ordering": "what keeps its order",
    "overflow": "when the queue is full",
    "dedupe_window": "a message id is stored once within it, such as 2m",
    "retry_blocks": "what waits behind a message which is tried again",
    "key_inflight": "of one key at a time; 0: no limit",
    "expire_to_dlq": "messages too old become dead letters",
    "group_expiry": "a group nobody uses is forgotten, such as 7d",
    "topics": "filled from these filters too, with commas",
    "sublevels": "topics below its name belong to it",
    "archive": "messages are kept until the lake has them",
    "events": "steps in the lives of messages which are recorded",
    "retry_policy.max_retries": "then it is given up",
    "retry_policy.initial_backoff": "such as 5s",
    "retry_policy.max_backoff": "such as 5m",
    "retry_policy.backoff_multiplier": "each wait is so many times the one before",
    "retry_policy.total_timeout": "given up after this long, such as 3h",
    "dlq_config.enabled": "what is given up is kept",
    "dlq_config.topic": "{name} stands for the name of the queue",
    "dlq_config.alert_webhook": "a URL which gets a POST for each dead letter",
    "limits.max_message_size": "bytes",
    "limits.max_queue_depth": "messages",
    "limits.message_ttl": "such as 168h",
    "performance.delivery_timeout": "then a message comes again, such as 30s",
    "performance.batch_size": "messages",
    "performance.heartbeat_timeout": "then a consumer counts as gone",
    "performance.prefetch": "messages on their way to one consumer",
    "retention.max_age": "such as 30d; 0s: no limit",
    "retention.max_bytes": "0: no limit",
    "retention.max_messages": "0: no limit",
    "compaction.key": "an expression; empty: the partition key",
    "key_expression": "whose last value is kept, such as message.from",
    "data_retention_period": "such as 7d",
    "dispatch_strategy": "which subscriber gets a message",
    "limits.max_shard_message_count": "messages, or infinity",
    "limits.max_shard_message_bytes": "such as 100MB, or infinity",
}
