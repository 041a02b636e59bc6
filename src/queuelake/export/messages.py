"""The table `messages` from chunks: only the columns somebody asked for are made."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from queuelake.export import chunks as c
from queuelake.export.chunks import Chunks, reach_of
from queuelake.export.properties import Properties, as_text
from queuelake.export.queues import exists, queue_of
from queuelake.export.schemas import TYPES
from queuelake.flight import Range
from queuelake.storage.api import ReadTransaction
from queuelake.storage.queue_tables import chunks_after

BATCH_ROWS: Final = 64 * 1024
BATCH_BYTES: Final = 8 * 1024 * 1024

Makers = dict[str, Callable[[], pa.Array]]  # of columns, by their names

_TIME: Final = TYPES["timestamp"]


class MessageReader:
    """Messages of one shard of a queue which is stored in chunks."""

    def __init__(self, wanted: Range, number: int, schema: pa.Schema) -> None:
        self._wanted = wanted
        self._number = number
        self._schema = schema
        self._name = ""
        self._after = 0
        self._values: list[bytes] = []

    def take(self, view: ReadTransaction, after: int) -> int:
        wanted = self._wanted
        self._after, self._values = after, []
        queue = queue_of(view, self._number) if exists(view, self._number) else None
        if queue is None:
            return after  # deleted: its messages are gone, as those which were settled
        self._name = queue.name
        reached = after
        rows = size = 0
        for value in chunks_after(view, self._number, wanted.shard, after):
            first, last, texts = reach_of(value)
            if first > wanted.upto:
                break
            self._values.append(value)
            reached = last
            rows += last - first + 1
            size += texts
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                break
        return reached

    def batch(self) -> pa.RecordBatch | None:
        found = Chunks(self._values, self._after, self._wanted.upto)
        self._values = []
        columns = MessageColumns(self._name, self._wanted.queue_id, self._wanted.shard, found)
        return columns.batch(self._schema)


class MessageColumns:
    """The columns of some messages of one shard."""

    def __init__(self, queue: str, queue_id: str, shard: int, found: Chunks) -> None:
        self._queue = queue
        self._queue_id = queue_id
        self._shard = shard
        self._found = found

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        makers: Makers = {
            "queue": lambda: self._same(self._queue),
            "queue_id": lambda: self._same(self._queue_id),
            "partition": lambda: self._same(pa.scalar(self._shard, pa.int32())),
            "seqno": lambda: pa.array(self._found.sequences()),
            "message_id": self._message_ids,
            "key": lambda: self._text(c.KEY),
            "owner": lambda: pa.nulls(self._found.rows, pa.string()),
            "topic": self._topics,
            "payload": self._payloads,
            "content_type": self._content_types,
            "properties": self._user_properties,
            "publisher": lambda: self._text(c.PUBLISHER),
            "qos": lambda: pa.array(self._found.qos()),
            "ts": lambda: timestamps(self._found.ts_ms()),
            "expires": lambda: timestamps(self._found.expires_ms(), zero_is_never=True),
        }
        return pa.record_batch([makers[name]() for name in schema.names], schema=schema)

    @cached_property
    def _properties(self) -> Properties:
        return Properties(self._found.text(c.PROPERTIES))

    def _content_types(self) -> pa.Array:
        return self._properties.content_types()

    def _user_properties(self) -> pa.Array:
        return self._properties.user_properties()

    def _same(self, value: Any) -> pa.Array:
        return pa.repeat(value, self._found.rows)

    def _text(self, n: int) -> pa.Array:
        """Null where there is none."""
        texts = self._found.text(n)
        return texts.spread(_null_if_empty(as_text(texts.values)))

    def _topics(self) -> pa.Array:
        texts = self._found.text(c.TOPIC)
        topics = _null_if_empty(as_text(texts.values))
        return texts.spread(pc.fill_null(topics, self._queue))

    def _payloads(self) -> pa.Array:
        texts = self._found.text(c.PAYLOAD)
        return texts.spread(texts.values)

    def _message_ids(self) -> pa.Array:
        """The producer's, or the place of the message, in the words in which it is delivered."""
        given = self._text(c.MESSAGE_ID)
        if given.null_count == 0:
            return given
        made = numbered(f"{self._queue}:{self._shard}:", self._found.sequences())
        return made if given.null_count == len(given) else pc.coalesce(given, made)


def numbered(prefix: str, numbers: NDArray[np.int64]) -> pa.Array:
    """Rising numbers behind a prefix, as text; to cast and join them takes four times as long."""
    start = prefix.encode()
    parts: list[NDArray[np.uint8]] = []
    sizes: list[NDArray[np.int32]] = []
    low = 0
    for digits in range(len(str(numbers[0])), len(str(numbers[-1])) + 1):
        high = int(np.searchsorted(numbers, 10**digits))
        rest = numbers[low:high].copy()
        text = np.empty((len(rest), len(start) + digits), np.uint8)
        text[:, : len(start)] = np.frombuffer(start, np.uint8)
        for place in range(text.shape[1] - 1, len(start) - 1, -1):
            tens = rest // 10
            text[:, place] = rest - 10 * tens + ord("0")
            rest = tens
        parts.append(text.ravel())
        sizes.append(np.full(len(rest), text.shape[1], np.int32))
        low = high
    offsets = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(np.concatenate(sizes), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.concatenate(parts))]
    return pa.Array.from_buffers(pa.string(), len(numbers), buffers)


def timestamps(ms: NDArray[np.int64], zero_is_never: bool = False) -> pa.Array:
    never = ms == 0 if zero_is_never else None
    return pa.array(ms * 1000, pa.int64(), mask=never).cast(_TIME)


def _null_if_empty(texts: pa.Array) -> pa.Array:
    empty = pc.equal(pc.binary_length(texts), 0)
    if not pc.any(empty).as_py():
        return texts
    return pc.if_else(empty, pa.scalar(None, pa.string()), texts)
