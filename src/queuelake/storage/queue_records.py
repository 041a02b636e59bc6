"""Small rows of queues: what a queue is, and who reads it."""

from __future__ import annotations

from typing import Final

import msgspec

# Kinds of queues.
DURABLE: Final = "durable"
MESSAGE: Final = "message"
QUORUM: Final = "quorum"


class QueueRecord(msgspec.Struct, array_like=True):
    """A queue. `settings` is the JSON of what was set for it; the rest follows the defaults."""

    name: str
    kind: str
    created_ms: int
    settings: bytes = b"{}"
    partitions: int = 1  # how many it has: they never shrink, whatever the settings become
    next_group_id: int = 1
    uses_priorities: bool = False


class GroupRecord(msgspec.Struct, array_like=True):
    """A consumer group. `absent_ms` 0: it had a consumer when this was written."""

    name: str
    derived: bool  # from a client id
    pattern: bytes
    absent_ms: int


encode = msgspec.msgpack.encode
decode_queue = msgspec.msgpack.Decoder(QueueRecord).decode
decode_group = msgspec.msgpack.Decoder(GroupRecord).decode


def settings_tree(record: QueueRecord) -> dict[str, object]:
    """What was set for this queue at run time.

    Without `replication`: it was allowed to say only what was so, and a store may have moved into a
    cluster since, or out of one.
    """
    tree: dict[str, object] = msgspec.json.decode(record.settings)
    tree.pop("replication", None)
    return tree
