"""The message queues of a simulated world: every setting which changes what a queue promises."""

from __future__ import annotations

import random
from collections.abc import Callable

from queuelake.mq_settings import DispatchStrategy, MqSettings
from tests.simulation.message_queue_ledger import Posted

HOUR_MS = 3_600_000
BYTES = [300, 60_000]  # there are messages which do not fit into the first at all
FILTERS = {"jobs": "t/#", "some": "t/+/0", "/t/pa/#": "t/pa/#", "/t/+/1": "t/+/1"}
STRATEGIES: list[DispatchStrategy] = ["random", "round_robin", "least_inflight", "sticky_key"]
KEYS: dict[str, Callable[[Posted], str]] = {
    "message.from": lambda one: one.publisher,
    "message.topic": lambda one: one.topic,
    "nth(3, tokens(message.topic, '/'))": lambda one: one.topic.split("/")[2],
}
AUTO_CREATE: list[dict[str, object]] = [
    {"lastvalue": {"enable": False}},
    {"lastvalue": {"enable": True}},
    {"lastvalue": {"enable": False}, "regular": {"enable": True}},
]


def changed(old: MqSettings, dice: random.Random) -> MqSettings:
    """The same queue with other settings, as far as they may change."""
    count_max = dice.choice([3, 5]) if old.count_max else 0
    bytes_max = dice.choice(BYTES) if old.bytes_max else 0
    if old.is_lastvalue:
        count_max, bytes_max = dice.choice([0, 0, 0, 5]), dice.choice([0, 0, 0, *BYTES])
    return MqSettings(
        old.name,
        old.topic_filter,
        old.is_lastvalue,
        key_expression=dice.choice(sorted(KEYS)) if old.is_lastvalue else "",
        data_retention_ms=dice.choice([HOUR_MS, HOUR_MS, 20_000]),
        dispatch_strategy=dice.choice(STRATEGIES),
        count_max=count_max,
        bytes_max=bytes_max,
        redispatch_interval_ms=dice.choice([100, 1500]),
        local_max_inflight=dice.choice([1, 2, 5]),
        ack_timeout_ms=dice.choice([0, 0, 0, 1500]),
        max_redeliveries=dice.choice([0, 0, 2]),
    )
