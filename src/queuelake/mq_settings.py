"""Settings of message queues: the `[mq]` section, and what one queue was told about itself.

A queue keeps plain numbers (`MqSettings`: milliseconds, bytes, 0 for no limit). People write and
read a tree of keys instead, in TOML and in REST: durations as text such as "7d" or as milliseconds,
sizes as "100MB" or as bytes, "infinity" for no limit. How such a tree becomes settings, or a list
of mistakes, is in `mq_rules.py`, which is imported only when something is read.

What is shown holds the public keys. The others are accepted and kept all the same.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from queuelake.config_types import (
    BoundedCount,
    BoundedPositive,
    Duration,
    PositiveDuration,
    Section,
    parse_duration,
    tree_of,
)
from queuelake.errors import BadSettingsError, NotFoundError, RefusedError

INFINITY: Final = "infinity"
KEY_EXPRESSION: Final = "message.from"

DispatchStrategy = Literal["random", "round_robin", "least_inflight", "sticky_key"]


class BadMqSettingsError(BadSettingsError):
    """A queue, or all of them, cannot have these settings: `mistakes` has one entry for each."""


class TooManyQueuesError(RefusedError):
    """Delete a queue, or raise `max_queue_count`."""

    code = "MAX_QUEUE_COUNT_REACHED"

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"there are {count} message queues, max_queue_count is {limit}")


class MqNotFoundError(NotFoundError):
    """There is no such message queue; the text is the one its users know."""

    def __init__(self) -> None:
        super().__init__("Message queue not found")


class MqUnavailableError(RefusedError):
    """Message queues are switched off, or the broker is not there yet."""

    http_status = 503
    code = "SERVICE_UNAVAILABLE"


class MqLimits(Section, frozen=True):
    """Of each shard; the oldest messages go first."""

    max_shard_message_count: BoundedPositive | Literal["infinity"] = INFINITY
    max_shard_message_bytes: BoundedPositive | str = INFINITY


class MqKeys(Section, frozen=True):
    """What people may say about a regular queue, besides what it is."""

    data_retention_period: PositiveDuration = "7d"
    dispatch_strategy: DispatchStrategy = "random"
    limits: MqLimits = MqLimits()
    consumer_max_inactive: Duration = "30s"
    ping_interval: PositiveDuration = "10s"
    redispatch_interval: PositiveDuration = "100ms"
    busy_session_retry_interval: PositiveDuration = "100ms"
    local_max_inflight: BoundedPositive = 10
    stream_max_buffer_size: BoundedPositive = 2_000
    stream_max_unacked: BoundedPositive = 1_000
    consumer_persistence_interval: PositiveDuration = "10s"
    ack_timeout: Duration = "0s"
    max_redeliveries: BoundedCount = 0


class MqLastValueKeys(MqKeys, frozen=True):
    """The same about a last-value queue."""

    key_expression: str = KEY_EXPRESSION


class AutoCreateRegular(MqKeys, frozen=True):
    enable: bool = False


class AutoCreateLastValue(MqLastValueKeys, frozen=True):
    enable: bool = True


class AutoCreate(Section, frozen=True):
    """What a subscription makes of a queue which is not there: one of the two, or nothing."""

    regular: AutoCreateRegular = AutoCreateRegular()
    lastvalue: AutoCreateLastValue = AutoCreateLastValue()


class MqQuota(Section, frozen=True):
    """How exactly limits are kept. What is beyond the threshold is accepted and has no effect."""

    threshold_percentage: Annotated[int, Meta(ge=1, le=100)] = 10
    buffer_max_size: BoundedPositive = 100
    buffer_flush_interval: PositiveDuration = "1s"
    buffer_pool_size: BoundedPositive = 16


class MqTransaction(Section, frozen=True):
    flush_interval: Duration = "10ms"
    idle_flush_interval: Duration = "5ms"
    conflict_window: Duration = "5s"


class MqStorage(Section, frozen=True):
    """Accepted, without effect: everything shares one group commit here."""

    states: MqTransaction = MqTransaction()
    messages: MqTransaction = MqTransaction("100ms", "20ms", "5s")


class MqConfig(Section, frozen=True):
    """What all message queues share: the `[mq]` section, and what REST changed of it."""

    enable: bool | Literal["auto"] = True
    gc_interval: PositiveDuration = "1h"
    regular_queue_retention_period: PositiveDuration = "1d"
    max_queue_count: BoundedCount = 100
    find_queue_retry_interval: PositiveDuration = "10s"
    n_shards: Annotated[int, Meta(ge=1, le=1)] = 1
    allow_v3: bool = True
    strict_publish: bool = True
    auto_create: AutoCreate = AutoCreate()
    quota: MqQuota = MqQuota()
    storage: MqStorage = MqStorage()

    @property
    def gc_interval_ms(self) -> int:
        return parse_duration(self.gc_interval)

    @property
    def regular_queue_retention_ms(self) -> int:
        return parse_duration(self.regular_queue_retention_period)

    @property
    def find_queue_retry_interval_ms(self) -> int:
        return parse_duration(self.find_queue_retry_interval)


class MqSettings(Struct, frozen=True):
    """One queue: what it is, and everything that is in force for it."""

    name: str
    topic_filter: str
    is_lastvalue: bool = True
    key_expression: str = KEY_EXPRESSION  # "" of a regular queue
    data_retention_ms: int = 604_800_000
    dispatch_strategy: DispatchStrategy = "random"
    count_max: int = 0
    bytes_max: int = 0
    consumer_max_inactive_ms: int = 30_000
    ping_interval_ms: int = 10_000
    redispatch_interval_ms: int = 100
    busy_session_retry_interval_ms: int = 100
    local_max_inflight: int = 10
    stream_max_buffer_size: int = 2_000
    stream_max_unacked: int = 1_000
    consumer_persistence_interval_ms: int = 10_000
    ack_timeout_ms: int = 0
    max_redeliveries: int = 0

    @property
    def is_limited(self) -> bool:
        return self.count_max > 0 or self.bytes_max > 0


def legacy_name(topic_filter: str) -> str:
    """The name of a queue which was given none: no name people can give begins with a slash."""
    return f"/{topic_filter}"


def read_new(body: object) -> MqSettings:
    """The queue which the body of a POST asks for.

    Raises:
        BadMqSettingsError: one entry for each mistake.
    """
    from queuelake import mq_rules

    return mq_rules.read_new(body)


def read_update(old: MqSettings, body: object) -> MqSettings:
    """The queue with what the body of a PUT says about it; what it does not say stays.

    Raises:
        BadMqSettingsError: one entry for each mistake; nothing of the change may be used.
    """
    from queuelake import mq_rules

    return mq_rules.read_update(old, body)


def read_config(old: MqConfig, body: object) -> MqConfig:
    """The configuration with what the body of a PUT says; what it does not say stays.

    Raises:
        BadMqSettingsError: one entry for each mistake; nothing of the change may be used.
    """
    from queuelake import mq_rules

    return mq_rules.read_config(old, body)


def config_with(base: MqConfig, changes: dict[str, object]) -> MqConfig:
    """The configuration in the file with the stored changes over it.

    Raises:
        BadMqSettingsError: the file has changed, and the two do not go together any more.
    """
    from queuelake import mq_rules

    return mq_rules.config_with(base, changes)


def auto_created(config: MqConfig, name: str, topic_filter: str) -> MqSettings | None:
    """The queue which a subscription makes; None: none is made."""
    from queuelake import mq_rules

    create = config.auto_create
    if create.regular.enable:
        return mq_rules.settings_from(name, topic_filter, create.regular)
    if create.lastvalue.enable:
        return mq_rules.settings_from(name, topic_filter, create.lastvalue)
    return None


def show(settings: MqSettings) -> dict[str, object]:
    """One queue as REST answers it; extensions are there when they are used."""
    shown: dict[str, object] = {
        "name": settings.name,
        "topic_filter": settings.topic_filter,
        "is_lastvalue": settings.is_lastvalue,
        "data_retention_period": settings.data_retention_ms,
        "dispatch_strategy": settings.dispatch_strategy,
        "limits": {
            "max_shard_message_count": settings.count_max or INFINITY,
            "max_shard_message_bytes": settings.bytes_max or INFINITY,
        },
    }
    if settings.is_lastvalue:
        shown["key_expression"] = settings.key_expression
    if settings.ack_timeout_ms:
        shown["ack_timeout"] = settings.ack_timeout_ms
    if settings.max_redeliveries:
        shown["max_redeliveries"] = settings.max_redeliveries
    return shown


def show_config(config: MqConfig) -> dict[str, object]:
    """The configuration as REST answers it."""
    quota = config.quota
    return {
        "enable": config.enable,
        "gc_interval": config.gc_interval_ms,
        "regular_queue_retention_period": config.regular_queue_retention_ms,
        "max_queue_count": config.max_queue_count,
        "find_queue_retry_interval": config.find_queue_retry_interval_ms,
        "n_shards": config.n_shards,
        "allow_v3": config.allow_v3,
        "strict_publish": config.strict_publish,
        "auto_create": {
            "regular": _show_template(config.auto_create.regular),
            "lastvalue": _show_template(config.auto_create.lastvalue),
        },
        "quota": {
            "threshold_percentage": quota.threshold_percentage,
            "buffer_max_size": quota.buffer_max_size,
            "buffer_flush_interval": parse_duration(quota.buffer_flush_interval),
            "buffer_pool_size": quota.buffer_pool_size,
        },
        "storage": {
            "states": _show_transaction(config.storage.states),
            "messages": _show_transaction(config.storage.messages),
        },
    }


def _show_template(template: AutoCreateRegular | AutoCreateLastValue) -> object:
    from queuelake import mq_rules

    if not template.enable:
        return False
    shown = show(mq_rules.settings_from("", "", template))
    what_it_is = ("name", "topic_filter", "is_lastvalue")
    return {key: value for key, value in shown.items() if key not in what_it_is}


def _show_transaction(transaction: MqTransaction) -> dict[str, object]:
    return {key: parse_duration(str(text)) for key, text in tree_of(transaction).items()}
