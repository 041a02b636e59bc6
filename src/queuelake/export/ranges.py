"""Rows of a shard as record batches: a short view for each batch, and nothing held between them.

Memory does not depend on the range: a batch has about `BATCH_ROWS` rows or `BATCH_BYTES` bytes of
chunks, whatever comes first, and the next one is made when the reader has taken it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from queuelake.export.chunks import Chunks
from queuelake.export.messages import MessageColumns
from queuelake.export.queues import number_of, queue_of
from queuelake.export.schemas import schema_of
from queuelake.flight import Range
from queuelake.storage.chunk import chunk_range
from queuelake.storage.queue_tables import chunks_after
from queuelake.storage.reader import StoreReader

BATCH_ROWS: Final = 64 * 1024
BATCH_BYTES: Final = 8 * 1024 * 1024


def read_range(store: StoreReader, wanted: Range) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema, and the rows to come.

    Raises:
        RefusedError: there is no such column, or the queue id is that of another store.
    """
    schema = schema_of(wanted.table, wanted.columns)
    number = number_of(store.id, wanted.queue_id)
    return schema, _read_messages(store, wanted, number, schema)


def _read_messages(
    store: StoreReader, wanted: Range, number: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    after = wanted.after
    while after < wanted.upto:
        values: list[bytes] = []
        with store.view() as view:
            queue = queue_of(view, number)
            if queue is None:
                return  # deleted: its rows are gone as those which were settled
            reached = after
            rows = size = 0
            for value in chunks_after(view, number, wanted.shard, after):
                first, last = chunk_range(value)
                if first > wanted.upto:
                    break
                values.append(value)
                reached = last
                rows += last - first + 1
                size += len(value)
                if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                    break
        if not values:
            return
        found = Chunks(values, after, wanted.upto)
        columns = MessageColumns(queue.name, wanted.queue_id, wanted.shard, found)
        del values, found
        yield columns.batch(schema)
        after = reached
