"""What can be asked about queues: the names of the control operations, and their answers.

As in control.py, the Structs are the answers of the broker and of the REST API alike. Queues are
called by their bare name (`tasks/image`) in the arguments of an operation, and shown with their
prefix (`$queue/tasks/image`) in every answer. A list ends with `next`: null on the last page, else
what the next call gives as `cursor`. `bytes` are base64 in JSON.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta, Struct

from queuelake.queue_settings import QueueSettings, QueueType

# Operations, with their arguments; `name` is that of the queue, without prefix.
QUEUES: Final = "queues"  # limit, cursor, prefix, type -> QueuePage
QUEUE: Final = "queue"  # name -> QueueInfo
QUEUE_CONFIGURE: Final = "queue_configure"  # name, changes (JSON) -> QueueConfigured
QUEUE_DELETE: Final = "queue_delete"  # name -> QueueDeleted
QUEUE_STATS: Final = "queue_stats"  # name -> QueueStats
QUEUE_CONSUMERS: Final = "queue_consumers"  # name, limit, cursor -> ConsumerPage
QUEUE_MESSAGES: Final = "queue_messages"  # name, from, limit, partition, cursor -> MessagePage
QUEUE_PURGE: Final = "queue_purge"  # name -> Purged
QUEUE_DLQ: Final = "queue_dlq"  # name, limit, cursor -> DeadLetterPage
QUEUE_DLQ_RETRY: Final = "queue_dlq_retry"  # name, id -> Redriven
QUEUE_DLQ_DISCARD: Final = "queue_dlq_discard"  # name, id -> None
QUEUE_DLQ_RETRY_MANY: Final = "queue_dlq_retry_many"  # name, choice (JSON) -> LettersDone
QUEUE_DLQ_DISCARD_MANY: Final = "queue_dlq_discard_many"  # name, choice (JSON) -> LettersDone
QUEUE_PUBLISH: Final = "queue_publish"  # name, message (JSON) -> None
QUEUE_GROUP_DELETE: Final = "queue_group_delete"  # name, group -> None

ITEMS_PER_PAGE_MAX: Final = 1000
OFFSET_MAX: Final = 2**63 - 1
LETTERS_AT_ONCE_MAX: Final = 100_000
# A page of messages ends early here, and a longer payload is cut: a control frame has a limit.
PAGE_PAYLOAD_BYTES_MAX: Final = 4 * 1024 * 1024
OTHER: Final = "(other)"  # in metrics: all queues, or groups, which are not named

Milliseconds = Annotated[int, Meta(description="milliseconds since 1970 (UTC)")]
QUEUE_TYPES: Final[tuple[QueueType, ...]] = get_args(QueueType)
QueueName = Annotated[str, Meta(description="with its prefix: `$queue/tasks/image`")]
Next = Annotated[str | None, Meta(description="`cursor` of the next page; null on the last one")]


class QueueSummary(Struct, frozen=True):
    """One line of the list of queues."""

    name: QueueName
    partitions: int
    ordering: Literal["none", "partition", "strict"]
    type: QueueType = "classic"
    depth: Annotated[int, Meta(description="messages some group has not settled yet")] = 0
    in_flight: Annotated[int, Meta(description="delivered and not settled")] = 0
    groups: int = 0
    consumers: int = 0


class QueuePage(Struct, frozen=True):
    """`queues`: sorted by name."""

    queues: list[QueueSummary]
    next: Next = None


class QueueInfo(Struct, frozen=True):
    """`queue`: the settings of one queue, all that are in force."""

    name: QueueName
    settings: QueueSettings
    configured: Annotated[
        dict[str, Any], Meta(description="what was set for this queue; the rest are defaults")
    ] = {}
    created_at_ms: Milliseconds = 0


class QueueConfigured(Struct, frozen=True):
    """`queue_configure`: the settings now, and whether the queue is new."""

    created: bool
    queue: QueueInfo


class PartitionStats(Struct, frozen=True):
    partition: int
    depth: int
    first_offset: Annotated[int, Meta(description="of the oldest message still stored")] = 0
    next_offset: Annotated[int, Meta(description="which the next message gets")] = 1


class GroupStats(Struct, frozen=True):
    group: str
    lag: Annotated[int, Meta(description="messages the group has not settled yet")]
    consumers: int = 0
    in_flight: int = 0
    retrying: Annotated[int, Meta(description="waiting for their next try")] = 0


class Rates(Struct, frozen=True):
    """Messages per second, lately."""

    enqueue_per_s: float = 0.0
    dequeue_per_s: float = 0.0
    ack_per_s: float = 0.0


class QueueStats(Struct, frozen=True):
    """`queue_stats`: how one queue is doing. Totals count since the start of the broker."""

    name: QueueName
    depth: int
    partitions: list[PartitionStats] = []
    groups: list[GroupStats] = []
    rates: Rates = Rates()
    in_flight: int = 0
    retrying: int = 0
    delayed: Annotated[int, Meta(description="not visible before their time")] = 0
    dlq: Annotated[int, Meta(description="messages in its dead-letter queue")] = 0
    enqueued_total: int = 0
    dequeued_total: int = 0
    acked_total: int = 0
    nacked_total: int = 0
    redelivered_total: int = 0
    expired_total: int = 0
    dropped_total: int = 0
    dead_lettered_by_reason: dict[str, int] = {}
    latency_p50_s: Annotated[
        float | None, Meta(description="from publish to first delivery; null when there was none")
    ] = None
    latency_p99_s: float | None = None


class ConsumerInfo(Struct, frozen=True):
    group: str
    client_id: str
    partitions: list[int]
    held: Annotated[int, Meta(description="messages delivered to it and not settled")] = 0
    last_heartbeat_ms: Milliseconds = 0
    status: Annotated[
        str,
        Meta(description="of a quorum queue: up, waiting, quiescing, suspected, timed_out"),
    ] = "up"


class ConsumerPage(Struct, frozen=True):
    """`queue_consumers`: sorted by group and client id."""

    consumers: list[ConsumerInfo]
    next: Next = None


class QueueMessage(Struct, frozen=True, kw_only=True):
    """A message as it is stored; looking at it changes nothing."""

    id: str
    partition: int
    offset: int
    topic: Annotated[str, Meta(description="which it was published to")] = ""
    key: str = ""
    payload: bytes = b""
    payload_bytes: Annotated[int, Meta(description="of the whole payload, if it was cut")] = 0
    properties: Annotated[
        list[tuple[str, str]], Meta(description="user properties, in the publisher's order")
    ] = []
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    priority: int = 4
    publisher: str = ""
    published_at_ms: Milliseconds = 0
    expires_at_ms: Annotated[int, Meta(description="0: never")] = 0


class MessagePage(Struct, frozen=True):
    """`queue_messages`: by partition and offset."""

    messages: list[QueueMessage]
    next: Next = None


class DeadLetter(QueueMessage, frozen=True, kw_only=True, rename="kebab"):
    """A message in a dead-letter queue, and how it came there (the `dlq-*` properties)."""

    dlq_original_queue: str = ""
    dlq_original_topic: str = ""
    dlq_original_id: str = ""
    dlq_group: str = ""
    dlq_reason: str = ""
    dlq_reason_text: str = ""
    dlq_delivery_count: int = 0
    dlq_first_attempt: str = ""
    dlq_moved_at: str = ""


class DeadLetterPage(Struct, frozen=True):
    """`queue_dlq`: dead letters of one queue, the oldest first."""

    messages: list[DeadLetter]
    next: Next = None


class Redriven(Struct, frozen=True):
    """`queue_dlq_retry`: where the message is again."""

    queue: QueueName
    id: str
    partition: int


class LetterChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters are meant; what is not given does not matter."""

    reason: Annotated[str | None, Meta(description="`dlq-reason`")] = None
    group: Annotated[str | None, Meta(description="`dlq-group`")] = None
    key: str | None = None
    moved_after: Annotated[str | None, Meta(description="ISO 8601; dlq-moved-at from then")] = None
    moved_before: Annotated[str | None, Meta(description="ISO 8601; up to then")] = None
    limit: Annotated[int, Meta(ge=1, le=LETTERS_AT_ONCE_MAX)] = 10_000


class LettersDone(Struct, frozen=True):
    """`queue_dlq_retry_many`, `queue_dlq_discard_many`: how many letters it were."""

    done: int
    more: Annotated[bool, Meta(description="whether the limit ended it")] = False


class NewMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """`queue_publish`: a message as somebody writes it by hand."""

    payload: Annotated[str, Meta(description="text")] = ""
    payload_base64: Annotated[bytes | None, Meta(description="bytes, instead of text")] = None
    key: Annotated[str, Meta(description="the partition key")] = ""
    properties: Annotated[dict[str, str], Meta(description="user properties")] = {}
    content_type: str = ""


class QueueDeleted(Struct, frozen=True):
    """A queue with `archive = true` is gone, and with it messages the lake does not have."""

    unarchived: Annotated[int, Meta(description="messages which were not archived")] = 0


class Purged(Struct, frozen=True):
    """`queue_purge`: how many messages were deleted."""

    purged: int


class QueueMetrics(Struct, frozen=True):
    """One queue in `metrics`: gauges now, counters since the start of the broker."""

    queue: QueueName
    depth: int = 0
    in_flight: int = 0
    enqueued: int = 0
    dequeued: int = 0
    acked: int = 0
    nacked: int = 0
    redelivered: int = 0
    timed_out: int = 0
    expired: int = 0
    dropped: int = 0
    purged: int = 0
    refused: int = 0
    duplicates: int = 0
    dead_lettered_by_reason: dict[str, int] = {}
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    consumers_by_group: dict[str, int] = {}
    ready: int = 0
    retrying: int = 0
    delayed: int = 0
    depth_max: Annotated[int, Meta(description="0: no limit")] = 0
    oldest_age_s: Annotated[float | None, Meta(description="null: not known yet")] = None
    asleep: Annotated[bool, Meta(description="nobody uses it: little is known")] = False
