"""Rows for a last-value queue: of each key the last one, because the others would be overwritten
before anybody sees them. Keys come from expressions, so this goes row by row."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from queuelake.control_pipeline import StageTarget
from queuelake.engine.message import PRIORITY_DEFAULT
from queuelake.errors import RefusedError
from queuelake.export.staged_chunks import QOS, Chunk
from queuelake.export.staged_rows import Rows
from queuelake.expressions import EvaluationError, Expression, Fields, parse_expression
from queuelake.storage.chunk import PIECE_BYTES, Record, chunk_stops, encode_chunk

KEYS_MAX: Final = 10_000  # of one batch: they replace others in one commit
BYTES_MAX: Final = 64 * 1024 * 1024
MQTT_5: Final = 5


def last_values(rows: Iterator[Rows], target: StageTarget, publisher: bytes) -> Iterator[Chunk]:
    """
    Raises:
        RefusedError: a row has no key, or there are too many keys.
    """
    expression = parse_expression(target.key_expression)
    found: dict[bytes, Record] = {}
    size = 0
    for block in rows:
        for record in _records(block, publisher):
            record.key = _key(expression, record, target)
            former = found.pop(record.key, None)
            found[record.key] = record
            size += record.size() - (former.size() if former is not None else 0)
            if len(found) > KEYS_MAX or size > BYTES_MAX:
                raise RefusedError(
                    f"batch of more than {KEYS_MAX} keys or {BYTES_MAX} bytes for"
                    f" {target.address!r}; limit for a last-value queue: commit smaller batches"
                )
    records = list(found.values())
    start = 0
    for stop in chunk_stops(records, PIECE_BYTES) if records else []:
        part = records[start:stop]
        lengths = [len(record.payload) for record in part]
        value = encode_chunk(0, part)
        yield Chunk(0, len(part), 0, [value], max(lengths), sum(lengths))
        start = stop


def _records(block: Rows, publisher: bytes) -> Iterator[Record]:
    count = block.count
    topics = _each(block.topic, count)
    properties = _each(block.properties, count)
    payloads = _each(block.payload, count)
    for topic, encoded, payload in zip(topics, properties, payloads, strict=True):
        yield Record(topic, b"", b"", publisher, encoded, payload, QOS, PRIORITY_DEFAULT, 0, 0)


def _each(values: pa.Array | bytes, count: int) -> list[bytes]:
    found: list[bytes] = [values] * count if isinstance(values, bytes) else values.to_pylist()
    return found


def _key(expression: Expression, record: Record, target: StageTarget) -> bytes:
    if expression.is_client_id:
        return record.publisher
    if expression.is_topic:
        return record.topic
    now_ms = int(time.time() * 1000)
    fields = Fields(
        record.topic,
        record.payload,
        record.qos,
        False,
        False,
        record.publisher.decode(),
        now_ms,
        f"{now_ms:X}{random.getrandbits(64):016X}",
        record.properties,
        None,
        "",
        MQTT_5,
        os.environ,
        now_ms,
        random.randrange,
    )
    try:
        return expression.evaluate(fields)
    except EvaluationError as error:
        problem = f"{target.key_expression!r} gives no key for a row with topic"
        shown = record.topic[:200].decode("utf-8", "replace")
        raise RefusedError(f"{target.address!r}: {problem} {shown!r}: {error}") from None
