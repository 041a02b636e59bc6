"""Settings of a simulated queue, thrown with dice so that rules meet each other."""

from __future__ import annotations

import random

from queuelake.engine.policy.settings import (
    BLOCKS_KEY,
    BLOCKS_NOTHING,
    BLOCKS_PARTITION,
    NONE,
    PARTITION,
    Policy,
)


def policy_of(dice: random.Random) -> Policy:
    policy = Policy()
    policy.partitions = dice.choice([1, 2, 5])
    policy.ordering = dice.choice([NONE, PARTITION, PARTITION])
    policy.retry_blocks = dice.choice([BLOCKS_NOTHING, BLOCKS_KEY, BLOCKS_PARTITION])
    policy.key_inflight = dice.choice([0, 1, 1, 2])
    policy.prefetch = dice.choice([1, 3, 10])
    policy.batch_size = dice.choice([1, 3])
    policy.retries_max = dice.choice([0, 2, 10])
    policy.depth_max = dice.choice([12, 1000])
    policy.drop_head = dice.random() < 0.4
    policy.dlq_enabled = dice.random() < 0.8
    policy.expire_to_dlq = dice.random() < 0.3
    policy.group_expiry_ms = dice.choice([0, 60_000])
    policy.ttl_ms = dice.choice([0, 100_000])
    return policy
