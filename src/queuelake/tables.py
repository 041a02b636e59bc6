"""Queues as tables: the columns which Spark, the lake and the Flight service agree on.

A place in a table is (queue id, shard, sequence). Sequences of a shard begin at 1 and never repeat.
Everywhere a place is meant as "up to here": a range is (after, upto], 0 is before everything, and
the version of a lake transaction is the last sequence which is in it.
"""

from __future__ import annotations

from typing import Final, Literal

Table = Literal["messages", "events", "stats"]

# To a table mailboxes and fan-out are one queue each; their owners are hashed to shards.
LOG_SHARDS: Final = 16
ECQ_NAME: Final = "$ECQ"
SDV_NAME: Final = "$SDV-FANOUT"
ECQ_QUEUE_ID: Final = (1 << 63) + 1  # in the keys of the store; no queue gets so far
SDV_QUEUE_ID: Final = (1 << 63) + 2

# Names and Spark types, in order.
MESSAGES: Final = {
    "queue": "string",
    "queue_id": "string",
    "partition": "int",
    "seqno": "bigint",
    "message_id": "string",
    "key": "string",
    "owner": "string",
    "topic": "string",
    "payload": "binary",
    "content_type": "string",
    "properties": "map<string,string>",
    "publisher": "string",
    "qos": "tinyint",
    "ts": "timestamp",
    "expires": "timestamp",
}
EVENTS: Final = {
    "queue": "string",
    "queue_id": "string",
    "seqno": "bigint",  # of the event
    "event": "string",
    "partition": "int",
    "message_seqno": "bigint",
    "group": "string",
    "consumer": "string",
    "attempt": "int",
    "reason": "string",
    "ts": "timestamp",
}
STEPS: Final = (
    "enqueued",
    "delivered",
    "acked",
    "nacked",
    "rejected",
    "timed_out",
    "dead_lettered",
    "expired",
    "dropped",
)
FAILURES: Final = STEPS[3:]  # what `events = "failures"` keeps
STATS: Final = {
    "queue": "string",
    "queue_id": "string",
    "seqno": "bigint",  # of the row
    "ts": "timestamp",  # when the minute began
    **dict.fromkeys(STEPS, "bigint"),
    "depth": "bigint",
    "bytes": "bigint",
    "latency_p50_ms": "double",
    "latency_p99_ms": "double",
    "latency_max_ms": "double",
}
COLUMNS: Final = {"messages": MESSAGES, "events": EVENTS, "stats": STATS}


def ddl(columns: dict[str, str]) -> str:
    """The schema in Spark's words."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
