"""Reading what people say about message queues: a tree of keys becomes settings, or mistakes.

A change is laid over the tree of the settings there are, so that a key which is not said stays as
it was; single values are checked by their types (`config_layers.py`), then the rules about several
keys are asked. Every mistake is reported, not the first, with the key, its value and what is
allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Final, cast

import msgspec
from msgspec import inspect

from queuelake import names
from queuelake.config_layers import Layers, Table, kind_of, shown
from queuelake.config_rules import Finding, filter_mistake
from queuelake.config_types import NUMBER_MAX, TEXT_CHARACTERS_MAX, parse_duration
from queuelake.mq_settings import (
    INFINITY,
    KEY_EXPRESSION,
    BadMqSettingsError,
    MqConfig,
    MqKeys,
    MqLastValueKeys,
    MqSettings,
    legacy_name,
)

LAST_VALUE_STAYS: Final = "LastValue flag is not allowed to be updated"
LIMITED_STAYS: Final = "Regular queues cannot be updated from limited to unlimited and vice versa"
ONE_KIND: Final = (
    "Queues should be configured to be automatically created either as regular or lastvalue"
)
NAME: Final = re.compile(r"[0-9A-Za-z][-.0-9A-Za-z_]*")
# A filter below these is an address of something else, and no message comes that way.
RESERVED_PREFIXES: Final = ("$q/", "$queue/", "$share/")

COUNT_LIMIT: Final = "limits.max_shard_message_count"
BYTES_LIMIT: Final = "limits.max_shard_message_bytes"
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?)i?B", re.IGNORECASE)
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def read_new(body: object) -> MqSettings:
    tree = _object(body)
    mistakes: list[str] = []
    is_lastvalue = tree.pop("is_lastvalue", True)
    if not isinstance(is_lastvalue, bool):
        mistakes.append(_mistake("is_lastvalue", is_lastvalue, "allowed: true, false"))
        is_lastvalue = True
    topic_filter = tree.pop("topic_filter", None)
    mistakes += _filter_mistakes(topic_filter)
    name = tree.pop("name", None)
    if name is None:
        name = legacy_name(str(topic_filter))
    else:
        mistakes += _name_mistakes(name)
    base = MqLastValueKeys() if is_lastvalue else MqKeys()
    keys, wrong = _laid(base, tree)
    if mistakes or wrong:
        raise BadMqSettingsError(mistakes + wrong)
    return settings_from(str(name), str(topic_filter), keys)


def read_update(old: MqSettings, body: object) -> MqSettings:
    tree = _object(body)
    mistakes: list[str] = []
    if tree.pop("is_lastvalue", old.is_lastvalue) is not old.is_lastvalue:
        mistakes.append(LAST_VALUE_STAYS)
    for key, value in (("name", old.name), ("topic_filter", old.topic_filter)):
        said = tree.pop(key, value)
        if said != value:
            allowed = f"allowed: {shown(key, value)}, which the queue has and keeps"
            mistakes.append(_mistake(key, said, allowed))
    keys, wrong = _laid(_keys_of(old), tree)
    if mistakes or wrong:
        raise BadMqSettingsError(mistakes + wrong)
    new = settings_from(old.name, old.topic_filter, keys)
    if not old.is_lastvalue and new.is_limited != old.is_limited:
        raise BadMqSettingsError([LIMITED_STAYS])
    return new


def read_config(old: MqConfig, body: object) -> MqConfig:
    tree = _object(body)
    create = tree.get("auto_create")
    if isinstance(create, dict):
        # A table says that such queues are wanted, and how they shall be; false that none are.
        tree["auto_create"] = {
            kind: {"enable": said} if isinstance(said, bool) else _enabled(said)
            for kind, said in create.items()
        }
    return config_with(old, tree)


def _enabled(said: object) -> object:
    return {"enable": True, **said} if isinstance(said, dict) else said


def config_with(base: MqConfig, changes: Table) -> MqConfig:
    layers = Layers()
    values = cast(Table, msgspec.to_builtins(base))
    kind = kind_of(MqConfig)
    layers.lay_table("", "", _as_written_in_toml(changes, kind), kind, values)
    config = msgspec.convert(values, MqConfig)
    for finding in config_findings(config):
        layers.add_finding(finding.keys, finding.message)
    if layers.mistakes:
        raise BadMqSettingsError(layers.mistakes)
    return config


def config_findings(config: MqConfig) -> Iterator[Finding]:
    """Everything that is wrong with a configuration whose single values have the right type."""
    create = config.auto_create
    if create.regular.enable and create.lastvalue.enable:
        keys = ("auto_create.regular.enable", "auto_create.lastvalue.enable")
        yield Finding(keys, ONE_KIND)
    for above, keys_of_kind in (
        ("auto_create.regular.", create.regular),
        ("auto_create.lastvalue.", create.lastvalue),
    ):
        for finding in _key_findings(keys_of_kind):
            yield Finding(tuple(above + key for key in finding.keys), above + finding.message)


def settings_from(name: str, topic_filter: str, keys: MqKeys) -> MqSettings:
    """A queue which does as these keys say; they are right."""
    return MqSettings(
        name,
        topic_filter,
        is_lastvalue=isinstance(keys, MqLastValueKeys),
        key_expression=keys.key_expression if isinstance(keys, MqLastValueKeys) else "",
        data_retention_ms=parse_duration(keys.data_retention_period),
        dispatch_strategy=keys.dispatch_strategy,
        count_max=parse_limit(keys.limits.max_shard_message_count),
        bytes_max=parse_limit(keys.limits.max_shard_message_bytes),
        consumer_max_inactive_ms=parse_duration(keys.consumer_max_inactive),
        ping_interval_ms=parse_duration(keys.ping_interval),
        redispatch_interval_ms=parse_duration(keys.redispatch_interval),
        busy_session_retry_interval_ms=parse_duration(keys.busy_session_retry_interval),
        local_max_inflight=keys.local_max_inflight,
        stream_max_buffer_size=keys.stream_max_buffer_size,
        stream_max_unacked=keys.stream_max_unacked,
        consumer_persistence_interval_ms=parse_duration(keys.consumer_persistence_interval),
        ack_timeout_ms=parse_duration(keys.ack_timeout),
        max_redeliveries=keys.max_redeliveries,
    )


def _keys_of(settings: MqSettings) -> MqKeys:
    tree: Table = {
        "data_retention_period": f"{settings.data_retention_ms}ms",
        "dispatch_strategy": settings.dispatch_strategy,
        "limits": {
            "max_shard_message_count": settings.count_max or INFINITY,
            "max_shard_message_bytes": settings.bytes_max or INFINITY,
        },
        "consumer_max_inactive": f"{settings.consumer_max_inactive_ms}ms",
        "ping_interval": f"{settings.ping_interval_ms}ms",
        "redispatch_interval": f"{settings.redispatch_interval_ms}ms",
        "busy_session_retry_interval": f"{settings.busy_session_retry_interval_ms}ms",
        "local_max_inflight": settings.local_max_inflight,
        "stream_max_buffer_size": settings.stream_max_buffer_size,
        "stream_max_unacked": settings.stream_max_unacked,
        "consumer_persistence_interval": f"{settings.consumer_persistence_interval_ms}ms",
        "ack_timeout": f"{settings.ack_timeout_ms}ms",
        "max_redeliveries": settings.max_redeliveries,
    }
    if not settings.is_lastvalue:
        return msgspec.convert(tree, MqKeys)
    return msgspec.convert({**tree, "key_expression": settings.key_expression}, MqLastValueKeys)


def _laid(base: MqKeys, tree: Table) -> tuple[MqKeys, list[str]]:
    """The keys with a partial tree over them, and what is wrong with it."""
    layers = Layers()
    kind = kind_of(type(base))
    if not isinstance(base, MqLastValueKeys) and "key_expression" in tree:
        needs = "needs is_lastvalue = true; a regular queue keeps every message, whatever its key"
        layers.add_mistake("", _mistake("key_expression", tree["key_expression"], needs))
        tree = {key: value for key, value in tree.items() if key != "key_expression"}
    values = cast(Table, msgspec.to_builtins(base))
    layers.lay_table("", "", _as_written_in_toml(tree, kind), kind, values)
    keys = msgspec.convert(values, type(base))
    for finding in _key_findings(keys):
        layers.add_finding(finding.keys, finding.message)
    return keys, layers.mistakes


def _key_findings(keys: MqKeys) -> Iterator[Finding]:
    size = keys.limits.max_shard_message_bytes
    try:
        parse_limit(size)
    except ValueError:
        allowed = f'allowed: bytes from 1 to {NUMBER_MAX}, a size such as "100MB", or "{INFINITY}"'
        yield Finding((BYTES_LIMIT,), _mistake(BYTES_LIMIT, size, allowed))
    if isinstance(keys, MqLastValueKeys):
        reason = _expression_mistake(keys.key_expression)
        if reason:
            message = _mistake("key_expression", keys.key_expression, reason)
            yield Finding(("key_expression",), message)


def parse_limit(value: int | str) -> int:
    """The number of a limit; 0: there is none. "100MB" is 100 * 1024 * 1024, as its users know.

    Raises:
        ValueError: it is no limit.
    """
    if isinstance(value, int):
        return value
    if value == INFINITY:
        return 0
    match = _SIZE.fullmatch(value) if len(value) <= TEXT_CHARACTERS_MAX else None
    if match is None:
        raise ValueError(f"{value[:TEXT_CHARACTERS_MAX]!r} is no size such as '100MB'")
    size = Fraction(match[1]) * 1024 ** _POWERS[match[2].upper()]
    if size.denominator != 1 or not 1 <= size <= NUMBER_MAX:
        raise ValueError(f"{value!r} is no whole number of bytes from 1 to {NUMBER_MAX}")
    return int(size)


def _expression_mistake(text: str) -> str:
    if text == KEY_EXPRESSION:
        return ""
    # Imported here: slow, and most configurations hold no other expression.
    from queuelake.expressions import BadExpressionError, parse_expression

    try:
        parse_expression(text)
    except BadExpressionError as error:
        return f"column {error.column}: {error.problem}"
    return ""


def _filter_mistakes(topic_filter: object) -> list[str]:
    if topic_filter is None:
        return ['topic_filter is missing; allowed: a topic filter such as "t1/#"']
    if not isinstance(topic_filter, str):
        return [_mistake("topic_filter", topic_filter, "allowed: a string")]
    reason = filter_mistake(topic_filter)
    if not reason and topic_filter.startswith(RESERVED_PREFIXES):
        prefix = topic_filter.partition("/")[0]
        reason = f"allowed: a filter of topics; {prefix}/ is how something else is addressed"
    return [_mistake("topic_filter", topic_filter, reason)] if reason else []


def _name_mistakes(name: object) -> list[str]:
    if not isinstance(name, str):
        return [_mistake("name", name, "allowed: a string")]
    if NAME.fullmatch(name) is None:
        allowed = "allowed: letters, digits, '-', '.' and '_', the first a letter or a digit"
        return [_mistake("name", name, allowed)]
    reason = names.name_mistake(name.encode())
    return [_mistake("name", name, reason)] if reason else []


def _as_written_in_toml(tree: Table, kind: inspect.StructType) -> Table:
    """JSON may say a duration in milliseconds; everything else means the same in both."""
    fields = {field.name: field.type for field in kind.fields}
    return {key: _value_in_toml(value, fields.get(key)) for key, value in tree.items()}


def _value_in_toml(value: object, kind: inspect.Type | None) -> object:
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        return _as_written_in_toml(value, kind)
    if isinstance(kind, inspect.Metadata) and (kind.extra or {}).get("quantity") == "duration":
        # Others than these are refused as they were written.
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return f"{value}ms"
    return value


def _mistake(key: str, value: object, reason: str) -> str:
    return f"{key} = {shown(key, value)}: {reason}"


def _object(body: object) -> Table:
    if not isinstance(body, dict):
        raise BadMqSettingsError(["the body is a JSON object; this is another value"])
    return dict(body)
