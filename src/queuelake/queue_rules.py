"""Changing the settings of a queue: a partial tree becomes whole settings, or a list of mistakes.

Single values are checked by their types, then the rules about several of them are asked. A request
and the configuration file go through the same checks and are refused in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import cast
from urllib.parse import urlsplit

import msgspec

from queuelake import names
from queuelake.config_layers import Layers, Table, kind_of, shown
from queuelake.config_rules import Finding, filter_mistake
from queuelake.config_types import parse_duration
from queuelake.placing import Placing
from queuelake.queue_settings import (
    BadQueueSettingsError,
    QueueSettings,
    Replication,
    dead_letter_target,
    is_setting_of,
)

PAYLOAD_FORMAT_INVALID = 0x99
DDL_CHARACTERS_MAX = 32_768
_REPLICATION_MISTAKES = {
    "none": 'replication = "none": a cluster replicates everything; allowed in a cluster: "quorum"',
    "quorum": 'replication = "quorum": needs a cluster; allowed on one node: "none"',
}
_CLOSES = {">": "<", ")": "("}
_QUOTED = re.compile(r"`[^`]*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


def configured(base: QueueSettings, changes: Mapping[str, object], name: str) -> QueueSettings:
    layers = Layers()
    values = cast(Table, msgspec.to_builtins(base))
    tree = {key: value for key, value in changes.items() if key != "name"}
    layers.lay_table("", "", tree, kind_of(QueueSettings), values)
    settings = msgspec.convert(values, QueueSettings)
    found = findings(settings, name, base.replication)
    for finding in (*foreign(base, settings, tree), *found):
        layers.add_finding(finding.keys, finding.message)
    if layers.mistakes:
        raise BadQueueSettingsError(layers.mistakes)
    return settings


def read_changes(payload: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(payload, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        refused = BadQueueSettingsError([f"the settings of a queue are a JSON object: {error}"])
        refused.reason_code = PAYLOAD_FORMAT_INVALID
        raise refused from error


def foreign(
    base: QueueSettings, settings: QueueSettings, tree: Mapping[str, object]
) -> Iterator[Finding]:
    """What was changed and is nothing to queues of this type."""
    kind = settings.type
    for key, value in tree.items():
        if key not in _KEYS or is_setting_of(kind, key):
            continue
        if getattr(settings, key) != getattr(base, key):
            of = '"classic" and "stream"' if kind == "quorum" else '"quorum"'
            message = f'{key} = {shown(key, value)}: a setting of type {of}, not of "{kind}"'
            yield Finding((key, "type"), message)


def findings(settings: QueueSettings, name: str, replication: Replication) -> Iterator[Finding]:
    """Everything that is wrong with settings whose single values have the right type.

    `replication` is that of every queue of this broker: its defaults say it.
    """
    yield from _overflow(settings)
    yield from _quorum(settings, name)
    if settings.replication != replication:
        yield Finding(("replication",), _REPLICATION_MISTAKES[settings.replication])
    yield from _topics(settings)
    if settings.type == "quorum":
        return
    if settings.ordering == "strict" and settings.partitions != 1:
        message = f'ordering = "strict": needs partitions = 1, not {settings.partitions}'
        yield Finding(("ordering", "partitions"), message)
    retry = settings.retry_policy
    if parse_duration(retry.initial_backoff) > parse_duration(retry.max_backoff):
        message = (
            f'retry_policy.initial_backoff = "{retry.initial_backoff}": allowed: at most '
            f'retry_policy.max_backoff = "{retry.max_backoff}"'
        )
        yield Finding(("retry_policy.initial_backoff", "retry_policy.max_backoff"), message)
    yield from _only_streams(settings)
    yield from _schema(settings)
    yield from _dead_letters(settings, name)


def elsewhere(settings: QueueSettings, name: str, placing: Placing) -> Iterator[Finding]:
    """What would need several shards of a cluster at once: a letter leaves its queue and arrives
    among dead letters in one commit, a message arrives in all queues which take its topic. Without
    a name: for whatever name."""
    if settings.topics:
        reason = "a queue is in one shard and these topics in any; message queues take from all"
        yield Finding(("topics",), f'topics holds "{settings.topics[0]}": {reason}')
    is_quorum = settings.type == "quorum"
    keys = ("dead_letter_queue",) if is_quorum else ("dlq_config.topic", "dlq_config.enabled")
    if name:
        target = dead_letter_target(settings, name)
        if target and placing.of_queue(target) != placing.of_queue(name):
            own, other = names.address(name), names.address(target)
            words = f'its dead letters would be in another shard than "{own}"'
            level = names.address(name.partition("/")[0])
            reason = f'{words}; one which begins with "{level}/" is in the same'
            yield Finding(keys, f'{keys[0]} = "{other}": {reason}')
        return
    reason = "dead letters are in the shard of their queue; allowed: {name} as the first level"
    for key, topic, is_on in (
        ("dlq_config.topic", settings.dlq_config.topic, settings.dlq_config.enabled),
        ("dead_letter_queue", settings.dead_letter_queue, True),
    ):
        bare = topic.removeprefix("$queue/").removeprefix(names.DEAD_LETTERS)
        if is_on and topic and bare.partition("/")[0] != "{name}":
            yield Finding((key,), f'{key} = "{topic}": {reason}')


def _overflow(settings: QueueSettings) -> Iterator[Finding]:
    allowed = ("drop_head", "reject_publish" if settings.type == "quorum" else "reject")
    if settings.overflow not in allowed:
        words = ", ".join([f'"{one}"' for one in allowed])
        message = f'overflow = "{settings.overflow}": allowed for type "{settings.type}": {words}'
        yield Finding(("overflow", "type"), message)


def _quorum(settings: QueueSettings, name: str) -> Iterator[Finding]:
    if settings.type == "quorum" and (names.is_dead_letter(name) or names.is_response(name)):
        message = 'type = "quorum": a queue of dead letters or replies is of type "classic"'
        yield Finding(("type",), message)
    low, high = settings.delayed_retry_min, settings.delayed_retry_max
    if parse_duration(low) > parse_duration(high):
        message = f'delayed_retry_min = "{low}": allowed: at most delayed_retry_max = "{high}"'
        yield Finding(("delayed_retry_min", "delayed_retry_max"), message)
    key, target = "dead_letter_queue", settings.dead_letter_queue
    if not target or (name and settings.type != "quorum"):
        return
    mistake = _target_mistake(target.replace("{name}", name or "name"), name)
    if mistake:
        yield Finding((key,), f"{key} = {shown(key, target)}: {mistake}")


def _only_streams(settings: QueueSettings) -> Iterator[Finding]:
    if settings.type == "stream":
        return
    retention, compaction = settings.retention, settings.compaction
    for key, value, on in (
        ("retention.max_age", f'"{retention.max_age}"', parse_duration(retention.max_age) > 0),
        ("retention.max_bytes", str(retention.max_bytes), retention.max_bytes > 0),
        ("retention.max_messages", str(retention.max_messages), retention.max_messages > 0),
        ("compaction.enabled", "true", compaction.enabled),
    ):
        if on:
            message = f'{key} = {value}: needs type = "stream", not "{settings.type}"'
            yield Finding((key, "type"), message)


def _schema(settings: QueueSettings) -> Iterator[Finding]:
    """Only Spark can read a schema: here it is looked at from outside."""
    kind, ddl = settings.schema.format, settings.schema.ddl
    keys = ("schema.ddl", "schema.format")
    if kind in ("json", "csv"):
        mistake = _ddl_mistake(ddl)
        if mistake:
            yield Finding(keys, f"schema.ddl = {shown('schema.ddl', ddl)}: {mistake}")
    elif ddl:
        needed = f'needs schema.format = "json" or "csv", not "{kind}"'
        yield Finding(keys, f"schema.ddl = {shown('schema.ddl', ddl)}: {needed}")


def _ddl_mistake(ddl: str) -> str:
    if not ddl.strip():
        return 'allowed: a schema in the words of Spark such as "id bigint, name string"'
    if len(ddl) > DDL_CHARACTERS_MAX:
        return f"allowed: at most {DDL_CHARACTERS_MAX} characters, not {len(ddl)}"
    if not ddl.isprintable() and not ddl.replace("\n", " ").replace("\t", " ").isprintable():
        return "allowed: no control characters"
    open_brackets: list[str] = []
    # What is between backticks is a name, what is between quotes a comment.
    for part in _QUOTED.sub("", ddl):
        if part in _CLOSES.values():
            open_brackets.append(part)
        elif part in _CLOSES and (not open_brackets or open_brackets.pop() != _CLOSES[part]):
            return f"allowed: brackets in pairs; one {part} closes nothing"
    return f"allowed: brackets in pairs; {open_brackets[-1]} stays open" if open_brackets else ""


def _topics(settings: QueueSettings) -> Iterator[Finding]:
    for topic in settings.topics:
        reason = filter_mistake(topic)
        if topic.startswith("$"):
            reason = "allowed: a filter of ordinary topics, which do not begin with $"
        if reason:
            yield Finding(("topics",), f"topics holds {shown('topics', topic)}: {reason}")


def _dead_letters(settings: QueueSettings, name: str) -> Iterator[Finding]:
    dlq = settings.dlq_config
    if not names.is_dead_letter(name):  # which has no dead letters of its own
        key = "dlq_config.topic"
        mistake = _target_mistake(dlq.topic.replace("{name}", name or "name"), name)
        if mistake:
            yield Finding((key,), f"{key} = {shown(key, dlq.topic)}: {mistake}")
    if dlq.alert_webhook and not _is_http(dlq.alert_webhook):
        key = "dlq_config.alert_webhook"
        allowed = 'allowed: a URL such as "https://example.org/alert", or "" for none'
        yield Finding((key,), f"{key} = {shown(key, dlq.alert_webhook)}: {allowed}")


def _target_mistake(target: str, name: str) -> str:
    if not target.startswith("$queue/"):
        return 'allowed: the address of a queue such as "$queue/dlq/{name}"'
    if target == names.address(name):
        return "allowed: another queue, not the one whose dead letters it takes"
    if names.is_response(target.removeprefix("$queue/")):
        return "allowed: a queue which is stored, not one of replies"
    return names.name_mistake(target.removeprefix("$queue/").encode("utf-8", "replace"))


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


_KEYS = frozenset(QueueSettings.__struct_fields__)
