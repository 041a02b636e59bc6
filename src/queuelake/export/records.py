"""Events and minutes of queues as record batches."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from queuelake.export.messages import Makers, timestamps
from queuelake.export.queues import shown_name
from queuelake.flight import Range
from queuelake.storage.api import ReadTransaction
from queuelake.storage.pipeline_tables import (
    EventsLayout,
    events_reach,
    read_events,
    read_minutes,
)
from queuelake.tables import STATS, STEPS

BATCH_BYTES: Final = 8 * 1024 * 1024
BATCH_MINUTES: Final = 16 * 1024

_STEPS: Final = pa.array(STEPS)
# A minute as `pipeline_tables.MINUTE` packs it.
_MINUTE: Final = np.dtype(
    [
        ("ts", "<i8"),
        *[(step, "<u8") for step in STEPS],
        *[(name, "<u8") for name in ("depth", "bytes")],
        *[(name, "<f8") for name in ("latency_p50_ms", "latency_p99_ms", "latency_max_ms")],
    ]
)
assert set(_MINUTE.names or ()) | {"queue", "queue_id", "seqno"} == set(STATS)


class EventReader:
    """Events of one queue."""

    def __init__(self, wanted: Range, number: int, schema: pa.Schema) -> None:
        self._wanted = wanted
        self._number = number
        self._schema = schema
        self._name = ""
        self._after = 0
        self._values: list[bytes] = []

    def take(self, view: ReadTransaction, after: int) -> int:
        self._name = shown_name(view, self._number)
        self._after, self._values = after, []
        reached = after
        size = 0
        for value in read_events(view, self._number, after, self._wanted.upto):
            self._values.append(value)
            reached = min(events_reach(value)[0], self._wanted.upto)
            size += len(value)
            if size >= BATCH_BYTES:
                break
        return reached

    def batch(self) -> pa.RecordBatch:
        values, self._values = self._values, []
        layouts = [EventsLayout(value) for value in values]
        sequences = np.concatenate([np.arange(one.first, one.first + one.count) for one in layouts])
        within = (sequences > self._after) & (sequences <= self._wanted.upto)

        def column(attribute: str, kind: str) -> NDArray[Any]:
            parts = [
                np.frombuffer(value, kind, one.count, getattr(one, attribute))
                for value, one in zip(values, layouts, strict=True)
            ]
            return np.concatenate(parts)[within]

        # Each value counts its own texts; here they are one list.
        texts = pa.array([text or None for one in layouts for text in one.texts], pa.string())
        counts = [len(one.texts) for one in layouts]
        shifts = np.repeat(np.cumsum([0, *counts[:-1]]), [one.count for one in layouts])[within]

        def text(attribute: str) -> pa.Array:
            return texts.take(pa.array(column(attribute, "<u2") + shifts))

        rows = int(within.sum())
        makers: Makers = {
            "queue": lambda: pa.repeat(self._name, rows),
            "queue_id": lambda: pa.repeat(self._wanted.queue_id, rows),
            "seqno": lambda: pa.array(sequences[within]),
            "event": lambda: _STEPS.take(pa.array(column("steps_at", "u1"))),
            "partition": lambda: pa.array(column("partitions_at", "<u2").astype(np.int32)),
            "message_seqno": lambda: pa.array(column("seqs_at", "<i8")),
            "group": lambda: text("groups_at"),
            "consumer": lambda: text("consumers_at"),
            "attempt": lambda: pa.array(column("attempts_at", "<i4")),
            "reason": lambda: text("reasons_at"),
            "ts": lambda: timestamps(column("times_at", "<i8")),
        }
        return pa.record_batch([makers[name]() for name in self._schema.names], schema=self._schema)


class MinuteReader:
    """Minutes of one queue."""

    def __init__(self, wanted: Range, number: int, schema: pa.Schema) -> None:
        self._wanted = wanted
        self._number = number
        self._schema = schema
        self._name = ""
        self._rows: list[tuple[int, bytes]] = []

    def take(self, view: ReadTransaction, after: int) -> int:
        self._name = shown_name(view, self._number)
        upto = min(self._wanted.upto, after + BATCH_MINUTES)
        self._rows = list(read_minutes(view, self._number, after, upto))
        return upto

    def batch(self) -> pa.RecordBatch | None:
        if not self._rows:
            return None
        minutes = np.frombuffer(b"".join([value for _, value in self._rows]), _MINUTE)

        def column(name: str) -> pa.Array:
            if name == "queue":
                return pa.repeat(self._name, len(minutes))
            if name == "queue_id":
                return pa.repeat(self._wanted.queue_id, len(minutes))
            if name == "seqno":
                return pa.array([seq for seq, _ in self._rows], pa.int64())
            if name == "ts":
                return timestamps(minutes["ts"])
            values = minutes[name]
            return pa.array(values.astype(np.int64) if values.dtype.kind == "u" else values)

        return pa.record_batch([column(name) for name in self._schema.names], schema=self._schema)
