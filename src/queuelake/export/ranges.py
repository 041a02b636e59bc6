"""Rows of a shard as record batches: a short view for each batch, and nothing held between them.

Memory does not depend on the range: a reader takes a limited amount out of each view, and the next
batch is made when the client has taken the one before. So a client which is slow, or gone, holds
one batch and no view.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import pyarrow as pa

from queuelake.errors import DataLostError, RefusedError
from queuelake.export.logs import FanoutReader, MailboxReader
from queuelake.export.messages import MessageReader
from queuelake.export.queues import number_of, shown_name
from queuelake.export.records import EventReader, MinuteReader
from queuelake.export.schemas import schema_of
from queuelake.flight import Range
from queuelake.queue_settings import PARTITIONS_MAX
from queuelake.storage.api import ReadTransaction
from queuelake.storage.archive_tables import read_archived
from queuelake.storage.reader import StoreReader
from queuelake.tables import ECQ_QUEUE_ID, LOG_SHARDS, SDV_QUEUE_ID

SEQUENCE_MAX: Final = (1 << 63) - 1  # what a column can hold


class Reader(Protocol):
    """Takes the rows of one range, some at a time."""

    def take(self, view: ReadTransaction, after: int) -> int:
        """Copy some of what follows `after` out of the view. Returns how far that reaches, which
        is `after` when there is no more."""
        ...

    def batch(self) -> pa.RecordBatch | None:
        """What was taken last; None: no rows, they are gone."""
        ...


def read_range(store: StoreReader, wanted: Range) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema, and the rows to come.

    Raises:
        RefusedError: there is no such column, no such place, or the queue id is that of another
            store.
    """
    schema = schema_of(wanted.table, wanted.columns)
    if not 0 <= wanted.after <= wanted.upto <= SEQUENCE_MAX:
        raise RefusedError(
            f"range ({wanted.after}, {wanted.upto}]: allowed: 0 <= after <= upto <= {SEQUENCE_MAX}"
        )
    number = number_of(store.id, wanted.queue_id)
    is_log = number in (ECQ_QUEUE_ID, SDV_QUEUE_ID)
    shards_max = LOG_SHARDS if is_log else PARTITIONS_MAX
    if not 0 <= wanted.shard < shards_max:
        raise RefusedError(f"shard {wanted.shard}: allowed: 0 to {shards_max - 1}")
    return schema, _batches(store, wanted, number, _reader(wanted, number, schema))


def _reader(wanted: Range, number: int, schema: pa.Schema) -> Reader:
    if wanted.table == "events":
        return EventReader(wanted, number, schema)
    if wanted.table == "stats":
        return MinuteReader(wanted, number, schema)
    if number == ECQ_QUEUE_ID:
        return MailboxReader(wanted, schema)
    if number == SDV_QUEUE_ID:
        return FanoutReader(wanted, schema)
    return MessageReader(wanted, number, schema)


def _batches(
    store: StoreReader, wanted: Range, number: int, reader: Reader
) -> Iterator[pa.RecordBatch]:
    after = wanted.after
    while after < wanted.upto:
        with store.view() as view:
            if wanted.fail_on_loss:
                _refuse_lost(view, wanted, number, after)
            reached = reader.take(view, after)
        if reached == after:
            return
        batch = reader.batch()
        if batch is not None:
            yield batch
        after = reached


def _refuse_lost(view: ReadTransaction, wanted: Range, number: int, after: int) -> None:
    """Each time anew: something may be lost while others read."""
    for low, high in read_archived(view, wanted.table, number, wanted.shard).lost:
        if low < wanted.upto and high > after:
            raise DataLostError(
                f"{wanted.table} of queue {shown_name(view, number)!r}, shard {wanted.shard}: "
                f"({low}, {high}] was dropped before it was archived"
            )
