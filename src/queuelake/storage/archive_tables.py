"""What the store knows of the archive: how far the lake has each shard, and what was lost before.

    ARCHIVED  table, queue, shard -> Archived
    META      `lake:` + table     -> the id of the Delta table which marks are about

A mark of another Delta table than the one in META says nothing any more.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from queuelake.storage.api import ARCHIVED, META, Batch, ReadTransaction
from queuelake.tables import Table

LOST_RANGES_MAX: Final = 100
TABLES: Final[tuple[Table, ...]] = ("messages", "events", "stats")  # by their number in keys

_QUEUE: Final = struct.Struct(">BQ")
_SHARD: Final = struct.Struct(">BQH")


class Archived(msgspec.Struct, array_like=True):
    """How far the lake has a shard, and ranges (after, upto] which were dropped before that."""

    upto: int = 0
    lake: str = ""
    lost: list[tuple[int, int]] = []


_decode = msgspec.msgpack.Decoder(Archived).decode


def archived_key(table: Table, queue_id: int, shard: int) -> bytes:
    return _SHARD.pack(TABLES.index(table), queue_id, shard)


def archived_value(archived: Archived) -> bytes:
    return msgspec.msgpack.encode(archived)


def read_archived(view: ReadTransaction, table: Table, queue_id: int, shard: int) -> Archived:
    """What counts for a shard now; nothing is archived of one which is not known."""
    value = view.get(ARCHIVED, archived_key(table, queue_id, shard))
    archived = _decode(value) if value is not None else Archived()
    if archived.lake != current_lake(view, table):
        archived.upto = 0
    return archived


def has_marks(view: ReadTransaction, table: Table, queue_id: int) -> bool:
    """Whether the lake ever had something of a queue."""
    prefix = _QUEUE.pack(TABLES.index(table), queue_id)
    return next(view.scan_keys(ARCHIVED, prefix, prefix + b"\xff" * 4), None) is not None


def forget_marks(batch: Batch, view: ReadTransaction, queue_id: int) -> None:
    """The queue is deleted."""
    for table in range(len(TABLES)):
        prefix = _QUEUE.pack(table, queue_id)
        for key in view.scan_keys(ARCHIVED, prefix, prefix + b"\xff" * 4):
            batch.delete(ARCHIVED, key)


def lake_key(table: Table) -> bytes:
    """In META."""
    return b"lake:" + table.encode()


def current_lake(view: ReadTransaction, table: Table) -> str:
    """The Delta table which marks are about; empty: none was told so far."""
    return (view.get(META, lake_key(table)) or b"").decode()


def with_lost(lost: list[tuple[int, int]], after: int, upto: int) -> list[tuple[int, int]]:
    """One more range, which begins at or behind the end of the last one. When there are too many
    the two oldest become one: what lies between them counts as lost then."""
    ranges = list(lost)
    if ranges and ranges[-1][1] >= after:
        ranges[-1] = (ranges[-1][0], max(upto, ranges[-1][1]))
    else:
        ranges.append((after, upto))
    if len(ranges) > LOST_RANGES_MAX:
        ranges[:2] = [(ranges[0][0], ranges[1][1])]
    return ranges
