"""Entries of mailboxes and rows of fan-out as record batches.

They are stored one by one, in the order of their owners; a log says in which order they were
written. So here is a step for each row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from queuelake.export.chunks import Texts
from queuelake.export.messages import Makers, timestamps
from queuelake.export.properties import Properties, as_text
from queuelake.flight import Range
from queuelake.protocol.properties import write_user
from queuelake.storage import log_tables
from queuelake.storage.api import ECQ_LOG, SDV_DATA, SDV_LOG, ReadTransaction
from queuelake.storage.sdv_tables import read_data
from queuelake.tables import ECQ_NAME, SDV_NAME

BATCH_SEQUENCES: Final = 8 * 1024
BATCH_BYTES: Final = 8 * 1024 * 1024
QOS: Final = 1  # what waits for a device or a vehicle is delivered so


class Row(NamedTuple):
    """What both kinds have; `payload` is None while it was not published."""

    seqno: int
    owner: bytes
    key: bytes
    topic: bytes
    properties: bytes  # encoded
    payload: bytes | None
    ts_ms: int
    expires_ms: int


class LogReader:
    """Rows of one shard of a log."""

    table: int
    name: str

    def __init__(self, wanted: Range, schema: pa.Schema) -> None:
        self._wanted = wanted
        self._schema = schema
        self._rows: list[Row] = []

    def take(self, view: ReadTransaction, after: int) -> int:
        self._rows = []
        low, high = log_tables.log_range(view, self.table, self._wanted.shard)
        upto = min(high, self._wanted.upto)
        start = max(low, after)
        if start >= upto:
            return after
        stop = min(upto, start + BATCH_SEQUENCES)
        size = 0
        for row in self._read(view, start, stop):
            self._rows.append(row)
            size += len(row.payload or b"")
            if size >= BATCH_BYTES:
                return row.seqno
        return stop

    def _read(self, view: ReadTransaction, after: int, upto: int) -> Iterator[Row]:
        raise NotImplementedError

    def batch(self) -> pa.RecordBatch | None:
        rows = self._rows
        if not rows:
            return None
        count = len(rows)
        shard = self._wanted.shard
        properties = Properties(
            Texts(pa.array([row.properties for row in rows], pa.binary()), None)
        )
        makers: Makers = {
            "queue": lambda: pa.repeat(self.name, count),
            "queue_id": lambda: pa.repeat(self._wanted.queue_id, count),
            "partition": lambda: pa.repeat(pa.scalar(shard, pa.int32()), count),
            "seqno": lambda: pa.array([row.seqno for row in rows], pa.int64()),
            "message_id": lambda: pa.array([f"{self.name}:{shard}:{row.seqno}" for row in rows]),
            "key": lambda: _texts([row.key for row in rows]),
            "owner": lambda: _texts([row.owner for row in rows]),
            "topic": lambda: _texts([row.topic for row in rows]),
            "payload": lambda: pa.array([row.payload for row in rows], pa.binary()),
            "content_type": properties.content_types,
            "properties": properties.user_properties,
            "publisher": lambda: pa.nulls(count, pa.string()),
            "qos": lambda: pa.repeat(pa.scalar(QOS, pa.int8()), count),
            "ts": lambda: timestamps(np.array([row.ts_ms for row in rows], np.int64)),
            "expires": lambda: timestamps(
                np.array([row.expires_ms for row in rows], np.int64), zero_is_never=True
            ),
        }
        columns = [makers[name]() for name in self._schema.names]
        return pa.record_batch(columns, schema=self._schema)


class MailboxReader(LogReader):
    """Entries which wait for devices: the owner is the device."""

    table = ECQ_LOG
    name = ECQ_NAME

    def _read(self, view: ReadTransaction, after: int, upto: int) -> Iterator[Row]:
        prefix = ECQ_NAME.encode()
        for one in log_tables.read_mailboxes(view, self._wanted.shard, after, upto):
            topic = b"/".join([prefix, one.owner, one.key])
            yield Row(
                one.seqno, one.owner, one.key, topic,
                one.properties, one.payload, one.ts_ms, one.expires_ms,
            )  # fmt: skip


class FanoutReader(LogReader):
    """Rows which wait for vehicles: the owner is the vehicle, the key is the request."""

    table = SDV_LOG
    name = SDV_NAME

    def _read(self, view: ReadTransaction, after: int, upto: int) -> Iterator[Row]:
        payloads: dict[bytes, bytes | None] = {}  # one for all rows of a request
        with_payload = "payload" in self._schema.names
        for one in log_tables.read_fanout(view, self._wanted.shard, after, upto):
            row = one.row
            payload = None
            if with_payload:
                if one.data not in payloads:
                    value = view.get(SDV_DATA, one.data)
                    payloads[one.data] = None if value is None else read_data(value)
                payload = payloads[one.data]
            request, data = row.request_id.encode(), row.data_id.encode()
            yield Row(
                one.seqno, row.vin.encode(), request, SDV_NAME.encode(),
                write_user([(b"data_id", data), (b"request_id", request)]),
                payload, row.ts_ms, 0,
            )  # fmt: skip


def _texts(values: list[bytes]) -> pa.Array:
    return as_text(pa.array(values, pa.binary()))
