"""Staged rows as the columns of chunks: what a publish does to a message, for many rows at once.

The columns of a row mean what the properties of a PUBLISH mean. Properties which the broker itself
understands (`priority`, `partition-key`, ...) are rare in bulk, so rows which have one are read one
by one (`staged_properties`); everything else is arithmetic on whole columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from queuelake.control_pipeline import StageTarget
from queuelake.errors import RefusedError
from queuelake.export import staged_properties as properties
from queuelake.export.staged_columns import DELAY_MS_MAX, check_bytes, column, text
from queuelake.protocol.topics import matches, topic_problem

PROPERTIES_BYTES_MAX: Final = 256 * 1024
LEVELS_MAX: Final = 128
BLOCK_ROWS: Final = 65_536
BLOCK_BYTES: Final = 16 * 1024 * 1024

_LETTER: Final = ("from_queue_id", "from_partition", "from_seqno")

Ints = NDArray[np.int64]


class Rows:
    """A block of messages: `texts` are topic, key, message id, properties, payload; those which
    are one value for all rows are bytes."""

    def __init__(self, block: pa.Table, target: StageTarget) -> None:
        """
        Raises:
            RefusedError: a row breaks a rule; the error names the value and the limit.
        """
        self.count: int = block.num_rows
        self._block = block
        self._target = target
        self.payload: pa.Array = column(block, "payload").fill_null(b"")
        self.topic = self._topics()
        keys = text(block, "key")
        ids = text(block, "message_id")
        self.delay_ms: Ints | None = self._delays()
        self.priority: NDArray[np.uint8] | None = None
        found = properties.read(block, keys, ids, target.kind == "durable")
        self.key: pa.Array | bytes = found.key
        self.message_id: pa.Array | bytes = found.message_id
        self.properties: pa.Array | bytes = found.encoded
        self.priority = found.priority
        if found.delay_ms is not None:
            own = self.delay_ms
            self.delay_ms = (
                found.delay_ms if own is None else np.where(own > 0, own, found.delay_ms)
            )
        if self.delay_ms is not None and not self.delay_ms.any():
            self.delay_ms = None
        check_bytes("properties", self.properties, PROPERTIES_BYTES_MAX)

    def _topics(self) -> pa.Array | bytes:
        topics = text(self._block, "topic")
        is_captured = self._target.kind != "durable"
        own = self._target.topic_filter if is_captured else ""
        if isinstance(topics, bytes):
            if own and ("+" in own or "#" in own):
                raise RefusedError(
                    f"a row for {self._target.address!r} has no topic; one which matches"
                    f" {own!r} is needed"
                )
            return own.encode()
        for topic in pc.unique(topics).to_pylist():
            problem = topic_problem(topic, LEVELS_MAX) if topic else ""
            if not problem and own and not matches(own.encode(), topic):
                problem = f"it does not match {own!r}"
            if problem:
                raise RefusedError(f"topic {topic[:200].decode('utf-8', 'replace')!r}: {problem}")
        address = self._target.address.encode()
        return pc.if_else(pc.equal(topics, address), b"", topics)

    def _delays(self) -> Ints | None:
        if "delay_ms" not in self._block.column_names:
            return None
        values = column(self._block, "delay_ms").fill_null(0)
        delays: Ints = values.to_numpy(zero_copy_only=False)
        if len(delays) and (delays.min() < 0 or delays.max() > DELAY_MS_MAX):
            wrong = delays.min() if delays.min() < 0 else delays.max()
            raise RefusedError(f"delay_ms = {wrong}: allowed: 0..{DELAY_MS_MAX}")
        if delays.any() and self._target.kind != "durable":
            raise RefusedError(f"messages of {self._target.address!r} cannot be delayed")
        return delays if delays.any() else None

    def letters(self) -> tuple[pa.Array, pa.Array, pa.Array] | None:
        """Queue id, partition and sequence of the dead letters which these rows are."""
        if not all(name in self._block.column_names for name in _LETTER):
            return None
        queue_id, partition, seqno = [column(self._block, name) for name in _LETTER]
        return queue_id, partition, seqno


def blocks(paths: list[Path]) -> Iterator[pa.Table]:
    """The rows of some files in order, so many at a time that memory stays small."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in _batches(paths):
        if waiting and (
            batch.schema != waiting[0].schema
            or rows + batch.num_rows > BLOCK_ROWS
            or size + batch.nbytes > BLOCK_BYTES
        ):
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if rows:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _batches(paths: list[Path]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                parts = max(1, -(-batch.num_rows // BLOCK_ROWS), -(-batch.nbytes // BLOCK_BYTES))
                step = max(1, -(-batch.num_rows // parts))
                for at in range(0, batch.num_rows, step):
                    yield batch.slice(at, step)
