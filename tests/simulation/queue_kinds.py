"""The queues of a simulated world: every setting which changes what a queue promises."""

from __future__ import annotations

from queuelake.settings import Queues
from tests.simulation.queue_ledger import HEARTBEAT_MS

IDLE_UNLOAD_S = 5.0
DEPTH_MAX = 8

RETRIES: dict[str, object] = {"max_retries": 3, "initial_backoff": "1s", "max_backoff": "2s"}
QUICK: dict[str, object] = {"delivery_timeout": "2s", "heartbeat_timeout": f"{HEARTBEAT_MS}ms"}
COMMON: dict[str, object] = {"retry_policy": RETRIES, "performance": QUICK}
KINDS: dict[str, dict[str, object]] = {
    "any": {"partitions": 3, "ordering": "none", "retry_policy": {**RETRIES, "max_retries": 1}},
    "any/serial": {"partitions": 1, "ordering": "none", "key_inflight": 1, "retry_blocks": "key"},
    "keys": {"partitions": 3, "archive": True},
    "keys/serial": {"partitions": 3, "key_inflight": 1},
    "keys/free": {"partitions": 1, "retry_blocks": "none", "dedupe_window": "0s"},
    "keys/whole": {"partitions": 3, "retry_blocks": "partition", "key_inflight": 1},
    "strict": {"partitions": 1, "ordering": "strict", "archive": True},
    "full": {"partitions": 1, "limits": {"max_queue_depth": DEPTH_MAX}, "dedupe_window": "3s"},
    "head": {
        "partitions": 3,
        "archive": True,
        "overflow": "drop_head",
        "limits": {"max_queue_depth": DEPTH_MAX},
        "dlq_config": {"enabled": False},
    },
    "stream": {"partitions": 1, "type": "stream", "archive": True},
    "bound": {
        "partitions": 3,
        "topics": ["bound/#"],
        "retry_policy": {**RETRIES, "max_retries": 0},
    },
    "brief": {
        "partitions": 1,
        "limits": {"message_ttl": "5s"},
        "expire_to_dlq": True,
        "archive": True,
    },
}


def section_with(names: list[str]) -> Queues:
    """The settings of a broker which has these queues."""
    named = {name: {**COMMON, **KINDS[name]} for name in names}
    return Queues(named=named, idle_unload_s=IDLE_UNLOAD_S)
