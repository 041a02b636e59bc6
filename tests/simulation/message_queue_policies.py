"""Settings of a simulated message queue, thrown with dice so that rules meet each other."""

from __future__ import annotations

import random

from queuelake.engine.policy import settings as p


def throw_policy(dice: random.Random) -> p.Policy:
    policy = p.message_queue_policy()
    policy.is_last_value = dice.random() < 0.6
    throw_settings(policy, dice)
    return policy


def throw_settings(policy: p.Policy, dice: random.Random) -> None:
    """What may change while consumers are attached."""
    policy.strategy = dice.choice([p.RANDOM, p.ROUND_ROBIN, p.LEAST_INFLIGHT, p.STICKY_KEY])
    policy.prefetch = dice.choice([1, 3, 10])
    policy.redispatch_ms = dice.choice([0, 100, 4000])
    policy.retries_max = dice.choice([0, 2, p.UNLIMITED, p.UNLIMITED])
    policy.dlq_enabled = dice.random() < 0.7
    policy.delivery_timeout_ms = dice.choice([0, 0, 20_000])
    policy.retention_age_ms = dice.choice([0, 60_000, 10**9])
    policy.count_max = dice.choice([0, 0, 5, 12])
    policy.bytes_max = dice.choice([0, 0, 100, 250])
