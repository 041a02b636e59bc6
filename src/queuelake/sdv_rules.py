"""Rules about the `[sdv]` section which types alone cannot express: its topic templates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

import msgspec

from queuelake.config_layers import Layers, Table, kind_of, shown
from queuelake.config_rules import Finding
from queuelake.sdv_settings import VIN, BadSdvSettingsError, SdvConfig

TEMPLATE_BYTES_MAX: Final = 1024  # a topic has room for the VIN and the request besides
HEARTBEAT_TOPICS_MAX: Final = 16


def config_findings(config: SdvConfig) -> Iterator[Finding]:
    """Everything that is wrong with a configuration whose single values have the right type."""
    prefix = config.topic_prefix
    reason = _template_mistake(prefix)
    if not reason and prefix.endswith("/"):
        reason = "allowed: no / at the end; the request follows after one"
    if reason:
        yield _finding("topic_prefix", prefix, reason)
    topics = config.heartbeat_topics
    if len(topics) > HEARTBEAT_TOPICS_MAX:
        reason = f"has {len(topics)} topics; allowed: at most {HEARTBEAT_TOPICS_MAX}"
        yield _finding("heartbeat_topics", topics, reason)
    for topic in topics:
        reason = _template_mistake(topic)
        if not reason and VIN not in topic.split("/"):
            reason = f"allowed: {VIN} as a whole level"
        if reason:
            yield _finding("heartbeat_topics", topic, reason)


def _template_mistake(template: str) -> str:
    if template.count(VIN) != 1:
        return f"allowed: a topic which holds {VIN} exactly once"
    if "+" in template or "#" in template or "\0" in template:
        return "allowed: a topic without wildcards"
    if template.startswith("$"):
        return "allowed: a topic which does not start with $"
    size = len(template.encode("utf-8", "surrogatepass"))
    if size > TEMPLATE_BYTES_MAX:
        return f"has {size} bytes; allowed: at most {TEMPLATE_BYTES_MAX}"
    return ""


def _finding(key: str, value: object, reason: str) -> Finding:
    return Finding((key,), f"{key} = {shown(key, value)}: {reason}")


def read_config(old: SdvConfig, body: object) -> SdvConfig:
    if not isinstance(body, dict):
        raise BadSdvSettingsError(["the body is a JSON object; this is another value"])
    layers = Layers()
    values = cast(Table, msgspec.to_builtins(old))
    layers.lay_table("", "", body, kind_of(SdvConfig), values)
    config = msgspec.convert(values, SdvConfig)
    findings = list(config_findings(config))
    prefix = config.topic_prefix
    if prefix != old.topic_prefix and not any(one.keys == ("topic_prefix",) for one in findings):
        # What vehicles may subscribe to is decided once, at the start.
        reason = "takes effect with the configuration file and a restart"
        findings.append(_finding("topic_prefix", prefix, reason))
    for finding in findings:
        layers.add_finding(finding.keys, finding.message)
    if layers.mistakes:
        raise BadSdvSettingsError(layers.mistakes)
    return config
