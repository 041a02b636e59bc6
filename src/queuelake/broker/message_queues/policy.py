"""The settings of a message queue as its machine reads them."""

from __future__ import annotations

from typing import Final

from queuelake.engine.policy.settings import (
    LEAST_INFLIGHT,
    RANDOM,
    ROUND_ROBIN,
    STICKY_KEY,
    UNLIMITED,
    Policy,
    message_queue_policy,
)
from queuelake.mq_settings import MqConfig, MqSettings

STRATEGIES: Final = {
    "random": RANDOM,
    "round_robin": ROUND_ROBIN,
    "least_inflight": LEAST_INFLIGHT,
    "sticky_key": STICKY_KEY,
}


def policy_of(settings: MqSettings, config: MqConfig) -> Policy:
    policy = message_queue_policy()
    policy.is_last_value = settings.is_lastvalue
    policy.strategy = STRATEGIES[settings.dispatch_strategy]
    policy.redispatch_ms = settings.redispatch_interval_ms
    policy.prefetch = settings.local_max_inflight
    policy.unacked_max = settings.stream_max_unacked
    policy.count_max = settings.count_max
    policy.bytes_max = settings.bytes_max
    policy.delivery_timeout_ms = settings.ack_timeout_ms
    policy.heartbeat_timeout_ms = 0  # whoever is connected keeps what it has, however silent
    policy.retries_max = settings.max_redeliveries or UNLIMITED
    if settings.is_lastvalue or settings.is_limited:
        policy.retention_age_ms = settings.data_retention_ms
    else:
        policy.retention_age_ms = config.regular_queue_retention_ms
    return policy
