"""The settings of a quorum queue as its machine wants them."""

from __future__ import annotations

from typing import Final

from queuelake.config_types import parse_duration
from queuelake.engine.quorum.policy import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    DROP_HEAD,
    REJECT_PUBLISH,
    RETRY_ALL,
    RETRY_AT_ONCE,
    RETRY_FAILED,
    RETRY_RETURNED,
    UNSET,
    QuorumPolicy,
)
from queuelake.queue_settings import QueueSettings, dead_letter_target

_RETRIES: Final = {
    "disabled": RETRY_AT_ONCE,
    "all": RETRY_ALL,
    "failed": RETRY_FAILED,
    "returned": RETRY_RETURNED,
}


def policy_of(settings: QueueSettings, name: str) -> QuorumPolicy:
    policy = QuorumPolicy()
    policy.length_max = settings.max_length
    policy.bytes_max = settings.max_length_bytes
    policy.overflow = REJECT_PUBLISH if settings.overflow == "reject_publish" else DROP_HEAD
    policy.ttl_ms = parse_duration(settings.message_ttl) or UNSET
    policy.expires_ms = parse_duration(settings.expires)
    policy.delivery_limit = settings.delivery_limit
    policy.dead_letter_target = dead_letter_target(settings, name)
    surely = settings.dead_letter_strategy == "at_least_once"
    policy.dead_letter_strategy = AT_LEAST_ONCE if surely else AT_MOST_ONCE
    policy.single_active_consumer = settings.single_active_consumer
    policy.consumer_timeout_ms = parse_duration(settings.consumer_timeout)
    policy.disconnected_timeout_ms = parse_duration(settings.consumer_disconnected_timeout)
    policy.delayed_retry = _RETRIES[settings.delayed_retry_type]
    policy.delayed_retry_min_ms = parse_duration(settings.delayed_retry_min)
    policy.delayed_retry_max_ms = parse_duration(settings.delayed_retry_max)
    return policy
