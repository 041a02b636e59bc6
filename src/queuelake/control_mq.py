"""What can be asked about message queues: the names of the control operations, and their answers.

As in control.py, the Structs are the answers of the broker and of the REST API alike. A queue is
meant by its name, or by the topic filter of a queue which was given no name. Settings travel as the
JSON they came as: what can be wrong with them is known in the broker.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from queuelake.mq_settings import DispatchStrategy

# Operations, with their arguments.
MQ_QUEUES: Final = "mq_queues"  # limit, cursor -> MqPage
MQ_QUEUE: Final = "mq_queue"  # name -> MqInfo
MQ_CREATE: Final = "mq_create"  # settings (JSON) -> MqInfo
MQ_UPDATE: Final = "mq_update"  # name, settings (JSON) -> MqInfo
MQ_DELETE: Final = "mq_delete"  # name -> None
MQ_STATS: Final = "mq_stats"  # name -> MqStats
MQ_MESSAGES: Final = "mq_messages"  # name, limit, cursor -> control_queues.MessagePage
MQ_CONFIG: Final = "mq_config"  # -> MqConfigInfo
MQ_CONFIGURE: Final = "mq_configure"  # settings (JSON) -> None
MQ_COLLECT_GARBAGE: Final = "mq_collect_garbage"  # -> None
QUEUE_EVERYWHERE: Final = "queue_everywhere"  # name -> bool: whether each shard has a part of it

QUEUES_PER_PAGE_MAX: Final = 10_000
# A page ends early here: a filter may be long, and a control frame has a limit.
PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
INSERT_LATENCY_BOUNDS_MS: Final = [
    *(2.0, 5.0, 10.0, 20.0, 50.0, 100.0),
    *(250.0, 500.0, 750.0, 1000.0, 2000.0, 5000.0),
]

Number = Annotated[int, Meta(ge=1)]
Milliseconds = Annotated[int, Meta(ge=0, description="milliseconds")]
DurationText = Annotated[
    str, Meta(description='such as "7d"', pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$")
]
SizeText = Annotated[str, Meta(description='such as "100MB", or "infinity"')]
MqName = Annotated[str, Meta(description="the name, or `/` and the topic filter when it has none")]


class MqLimitsInfo(Struct, frozen=True):
    max_shard_message_count: Number | Literal["infinity"]
    max_shard_message_bytes: Annotated[Number | Literal["infinity"], Meta(description="bytes")]


class MqTemplateInfo(Struct, frozen=True, kw_only=True):
    """What can be set for a queue and is shown; `key_expression` only of a last-value queue."""

    data_retention_period: Milliseconds
    dispatch_strategy: DispatchStrategy
    limits: MqLimitsInfo
    key_expression: str | UnsetType = UNSET
    ack_timeout: Milliseconds | UnsetType = UNSET
    max_redeliveries: int | UnsetType = UNSET


class MqInfo(MqTemplateInfo, frozen=True, kw_only=True):
    """`mq_queue`: one message queue."""

    name: MqName
    topic_filter: str
    is_lastvalue: bool


class MqPageMeta(Struct, frozen=True):
    hasnext: bool
    cursor: Annotated[str, Meta(description="of the next page")] | UnsetType = UNSET


class MqPage(Struct, frozen=True):
    """`mq_queues`: sorted by name."""

    data: list[MqInfo]
    meta: MqPageMeta


class MqLimitsBody(Struct, frozen=True):
    max_shard_message_count: Number | Literal["infinity"] | UnsetType = UNSET
    max_shard_message_bytes: Number | SizeText | UnsetType = UNSET


class MqUpdate(Struct, frozen=True, kw_only=True):
    """What may be changed of a queue; a key which is not there stays as it is."""

    is_lastvalue: bool | UnsetType = UNSET
    key_expression: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    data_retention_period: Number | DurationText | UnsetType = UNSET
    dispatch_strategy: DispatchStrategy | UnsetType = UNSET
    limits: MqLimitsBody | UnsetType = UNSET


class MqCreate(MqUpdate, frozen=True, kw_only=True):
    """A new queue; a key which is not there has its default."""

    topic_filter: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(pattern=r"^[0-9A-Za-z][-.0-9A-Za-z_]*$")] | UnsetType = UNSET


class MqAutoCreateInfo(Struct, frozen=True):
    """`false`, or how such queues are made."""

    regular: bool | MqTemplateInfo
    lastvalue: bool | MqTemplateInfo


class MqQuotaInfo(Struct, frozen=True):
    threshold_percentage: int
    buffer_max_size: int
    buffer_flush_interval: Milliseconds
    buffer_pool_size: int


class MqTransactionInfo(Struct, frozen=True):
    flush_interval: Milliseconds
    idle_flush_interval: Milliseconds
    conflict_window: Milliseconds


class MqStorageInfo(Struct, frozen=True):
    states: MqTransactionInfo
    messages: MqTransactionInfo


class MqConfigInfo(Struct, frozen=True):
    """`mq_config`: what all message queues share."""

    enable: bool | Literal["auto"]
    gc_interval: Milliseconds
    regular_queue_retention_period: Milliseconds
    max_queue_count: Annotated[int, Meta(description="0: no limit")]
    find_queue_retry_interval: Milliseconds
    n_shards: int
    allow_v3: bool
    strict_publish: bool
    auto_create: MqAutoCreateInfo
    quota: MqQuotaInfo
    storage: MqStorageInfo


class MqConfigUpdate(Struct, frozen=True):
    """What may be changed of the configuration; a key which is not there stays as it is."""

    enable: bool | Literal["auto"] | UnsetType = UNSET
    gc_interval: Number | DurationText | UnsetType = UNSET
    regular_queue_retention_period: Number | DurationText | UnsetType = UNSET
    max_queue_count: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    find_queue_retry_interval: Number | DurationText | UnsetType = UNSET


class MqStats(Struct, frozen=True):
    """`mq_stats`: how one queue is doing. The counters begin at 0 with the broker."""

    messages: Annotated[int, Meta(description="in the queue")] = 0
    ready: Annotated[int, Meta(description="waiting for a subscriber")] = 0
    in_flight: Annotated[int, Meta(description="delivered and not acknowledged")] = 0
    subscribers: int = 0
    oldest_age_ms: Annotated[int, Meta(description="of the oldest message; 0: there is none")] = 0
    bytes: int = 0
    received: Annotated[int, Meta(description="messages which matched the filter")] = 0
    inserted: int = 0
    insert_errors: int = 0
    key_errors: Annotated[int, Meta(description="messages without a key, not stored")] = 0
    delivered: int = 0
    redispatched: int = 0
    rejected: int = 0
    acked: int = 0
    expired: int = 0
    dropped: Annotated[int, Meta(description="deleted because of a limit")] = 0


class MqClassFigures(Struct, frozen=True):
    """In `metrics`: all queues of one class. `latency_counts` by INSERT_LATENCY_BOUNDS_MS."""

    received_messages: int = 0
    inserted_messages: int = 0
    insert_errors: int = 0
    latency_counts: list[int] = field(
        default_factory=lambda: [0] * (len(INSERT_LATENCY_BOUNDS_MS) + 1)
    )
    latency_sum_ms: float = 0.0


class MqFigures(Struct, frozen=True):
    """In `metrics`: message queues by class, and the largest of them by name."""

    queues: int = 0
    classes: dict[str, MqClassFigures] = {}
    named: dict[str, MqStats] = {}
    left_out: Annotated[int, Meta(description="which are in the sum of the others only")] = 0
