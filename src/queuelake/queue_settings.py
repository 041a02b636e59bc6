"""The settings of one durable queue: what TOML, REST and `$config` all write in the same words.

A queue's settings are those of `[queues.defaults]` with the queue's own partial tree laid over
them. `configured` does that for one change and reports every mistake of it, not the first; how is
in `queue_rules.py`, which is imported only when something is changed.

Quorum queues have settings of their own (`QUORUM_KEYS`) and share few with the others: each type
leaves alone what is not its own, and to set that for a queue is a mistake.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from queuelake import names
from queuelake.config_types import (
    NUMBER_MAX,
    BoundedCount,
    BoundedPositive,
    Duration,
    PositiveDuration,
    PositiveSize,
    Section,
    Size,
)
from queuelake.errors import BadSettingsError
from queuelake.placing import Placing

PARTITIONS_MAX = 1000

Replication = Literal["none", "quorum"]
QueueType = Literal["classic", "stream", "quorum"]


class BadQueueSettingsError(BadSettingsError):
    """A queue cannot have these settings: `mistakes` holds one entry for each mistake."""


class RetryPolicy(Section, frozen=True):
    """When a message which was not settled comes again, and when it is given up."""

    max_retries: BoundedCount = 10
    initial_backoff: Duration = "5s"
    max_backoff: Duration = "5m"
    backoff_multiplier: Annotated[float, Meta(ge=1)] = 2.0
    total_timeout: Duration = "3h"


class DlqConfig(Section, frozen=True):
    """Where a message goes which was given up; `{name}` stands for the name of its queue."""

    enabled: bool = True
    topic: str = "$queue/dlq/{name}"
    alert_webhook: str = ""


class QueueLimits(Section, frozen=True):
    max_message_size: PositiveSize = 1_048_576
    max_queue_depth: BoundedPositive = 100_000
    message_ttl: Duration = "168h"


class Performance(Section, frozen=True):
    delivery_timeout: PositiveDuration = "30s"
    batch_size: BoundedPositive = 1
    heartbeat_timeout: PositiveDuration = "30s"
    prefetch: BoundedPositive = 10


class Retention(Section, frozen=True):
    """How much of a stream is kept; 0 is no limit."""

    max_age: Duration = "0s"
    max_bytes: Size = 0
    max_messages: BoundedCount = 0


class Compaction(Section, frozen=True):
    """Keep the last message of each key of a stream; without `key`, of each partition key."""

    enabled: bool = False
    key: str = ""
    lag: Duration = "5m"
    interval: PositiveDuration = "10m"


class PayloadSchema(Section, frozen=True):
    """What payloads are, for the lake: `ddl` is a schema in Spark's words, for json and csv."""

    format: Literal["", "json", "csv", "text", "binary"] = ""
    ddl: str = ""


class QueueSettings(Section, frozen=True):
    """Everything that can be said about one queue, complete."""

    partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] = 10
    ordering: Literal["none", "partition", "strict"] = "partition"
    type: QueueType = "classic"
    overflow: Literal["reject", "drop_head", "reject_publish"] = "reject"
    dedupe_window: Duration = "2m"
    # "": what waits behind a retry follows from `ordering`.
    retry_blocks: Literal["", "none", "key", "partition"] = ""
    key_inflight: BoundedCount = 0
    expire_to_dlq: bool = False
    group_expiry: Duration = "7d"
    topics: list[str] = []
    sublevels: bool = False
    replication: Replication = "none"  # of a cluster: "quorum"
    archive: bool = False
    events: Literal["off", "failures", "all"] = "failures"
    retry_policy: RetryPolicy = RetryPolicy()
    dlq_config: DlqConfig = DlqConfig()
    limits: QueueLimits = QueueLimits()
    performance: Performance = Performance()
    retention: Retention = Retention()
    compaction: Compaction = Compaction()
    schema: PayloadSchema = PayloadSchema()
    # Of quorum queues; 0 is no limit.
    max_length: BoundedCount = 0
    max_length_bytes: Size = 0
    message_ttl: Duration = "0s"
    expires: Duration = "0s"
    delivery_limit: Annotated[int, Meta(ge=-1, le=NUMBER_MAX)] = 20
    on_reject: Literal["discard", "return"] = "discard"
    dead_letter_queue: str = "$queue/dlq/{name}"
    dead_letter_strategy: Literal["at_most_once", "at_least_once"] = "at_most_once"
    single_active_consumer: bool = False
    consumer_timeout: Duration = "30m"
    consumer_disconnected_timeout: Duration = "60s"
    delayed_retry_type: Literal["disabled", "all", "failed", "returned"] = "disabled"
    delayed_retry_min: Duration = "1s"
    delayed_retry_max: Duration = "1m"


QUORUM_KEYS = frozenset(
    {
        *("max_length", "max_length_bytes", "message_ttl", "expires", "delivery_limit"),
        *("on_reject", "dead_letter_queue", "dead_letter_strategy", "single_active_consumer"),
        *("consumer_timeout", "consumer_disconnected_timeout"),
        *("delayed_retry_type", "delayed_retry_min", "delayed_retry_max"),
    }
)
SHARED_KEYS = frozenset({"type", "overflow", "dedupe_window", "topics", "replication"})
QUORUM_BASE = QueueSettings(type="quorum", partitions=1, ordering="none", overflow="drop_head")


def is_setting_of(kind: QueueType, key: str) -> bool:
    """Whether queues of this type have such a setting, of those there are."""
    return key in SHARED_KEYS or (kind == "quorum") == (key in QUORUM_KEYS)


def configured(base: QueueSettings, changes: Mapping[str, object], name: str = "") -> QueueSettings:
    """Lay a partial tree over the settings of a queue; a `name` in the tree is the caller's.

    Raises:
        BadQueueSettingsError: one entry for each mistake; nothing of the change may be used.
    """
    from queuelake import queue_rules

    return queue_rules.configured(base, changes, name)


def read_changes(payload: bytes) -> dict[str, object]:
    """The partial tree in the JSON of a request.

    Raises:
        BadQueueSettingsError: it is no JSON object.
    """
    from queuelake import queue_rules

    return queue_rules.read_changes(payload)


def changes_allowed(old: QueueSettings, new: QueueSettings) -> None:
    """Refuse what a queue which exists cannot do any more.

    Raises:
        BadQueueSettingsError: partitions would shrink, or the type would change.
    """
    mistakes: list[str] = []
    if new.type == old.type and new.partitions < old.partitions:
        allowed = f"allowed: an integer from {old.partitions} to {PARTITIONS_MAX}"
        reason = f"the queue has {old.partitions}, which may grow but never shrink"
        mistakes.append(f"partitions = {new.partitions}: {reason}; {allowed}")
    if new.type != old.type:
        reason = f'the queue is of type "{old.type}" and stays so until it is deleted'
        mistakes.append(f'type = "{new.type}": {reason}')
    if mistakes:
        raise BadQueueSettingsError(mistakes)


def settings_of(
    name: str,
    defaults: QueueSettings,
    explicit: Mapping[str, object],
    placing: Placing | None = None,
) -> QueueSettings:
    """The settings in force for a queue: its own partial tree over the defaults. `placing` is that
    of a cluster with several shards.

    Raises:
        BadQueueSettingsError: one entry for each mistake of the two together.
    """
    base = base_of(name, defaults, explicit)
    settings = configured(base, explicit, name) if explicit else base
    if placing is not None:
        from queuelake import queue_rules

        mistakes = [one.message for one in queue_rules.elsewhere(settings, name, placing)]
        if mistakes:
            raise BadQueueSettingsError(mistakes)
    return settings


def settings_without_defaults(name: str, explicit: Mapping[str, object]) -> QueueSettings:
    """For a queue which was made under other defaults, over which its own tree makes no sense now:
    that tree over the built-in ones, or at least its type, which decides what is kept."""
    try:
        return settings_of(name, QueueSettings(), explicit)
    except BadQueueSettingsError:
        if explicit.get("type") == "quorum":
            return QUORUM_BASE
        kind: QueueType = "stream" if explicit.get("type") == "stream" else "classic"
        return msgspec.structs.replace(base_of(name, QueueSettings(), {}), type=kind)


def base_of(name: str, defaults: QueueSettings, explicit: Mapping[str, object]) -> QueueSettings:
    """What lies below a queue's own tree."""
    if explicit.get("type") == "quorum":
        keys = (*QUORUM_KEYS, "dedupe_window", "replication")
        return msgspec.structs.replace(QUORUM_BASE, **{key: getattr(defaults, key) for key in keys})
    # Dead letters and replies are few: one partition keeps them in order.
    if names.is_dead_letter(name) or names.is_response(name):
        return msgspec.structs.replace(defaults, partitions=1)
    return defaults


def merged(tree: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """One partial tree over another: tables are merged, any other value replaces the former."""
    result = dict(tree)
    for key, value in changes.items():
        former = result.get(key)
        if isinstance(former, dict) and isinstance(value, dict):
            result[key] = merged(former, value)
        else:
            result[key] = value
    return result


def dead_letter_target(settings: QueueSettings, name: str) -> str:
    """The name of the queue which takes the dead letters of `name`, or "" when none does.

    What was a reply is nobody's letter: its queue is gone soon, and one of its own would stay.
    """
    if names.is_dead_letter(name) or names.is_response(name):
        return ""
    topic = settings.dlq_config.topic if settings.dlq_config.enabled else ""
    if settings.type == "quorum":
        topic = settings.dead_letter_queue
    return topic.replace("{name}", name).removeprefix("$queue/")
