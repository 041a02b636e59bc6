"""Settings of a simulated quorum queue."""

from __future__ import annotations

import random

from queuelake.engine.quorum.policy import QuorumPolicy


def throw_policy(dice: random.Random) -> QuorumPolicy:
    policy = QuorumPolicy()
    policy.single_active_consumer = dice.random() < 0.3
    policy.delivery_limit = dice.choice([-1, 1, 20])
    policy.delayed_retry = dice.choice([0, 0, 1, 2, 3])
    policy.consumer_timeout_ms = dice.choice([0, 2_000, 1_800_000])
    policy.disconnected_timeout_ms = dice.choice([100, 60_000])
    policy.overflow = dice.choice([0, 1])
    policy.length_max = dice.choice([0, 0, 5])
    policy.bytes_max = dice.choice([0, 0, 60])
    policy.ttl_ms = dice.choice([-1, -1, 500])
    # Whatever is given up is seen: it reaches the dead letters.
    policy.dead_letter_target = "dead"
    policy.dead_letter_strategy = dice.choice([0, 1])
    return policy
