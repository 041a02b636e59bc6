"""Events and minutes of queues in the store: keys, values, and how they are read.

    EVENTS  queue, first sequence -> events of one commit as columns, at most 32 KiB of them
    EVENTS  queue, 0              -> QueueRecord of a queue which was deleted, while rows are kept
    STATS   queue, sequence       -> what happened in one minute
    META    `events_bytes`        -> what these two tables hold, as far as a limit counts it

Both are numbered for each queue by itself, from 1 on. The last row of a queue tells what comes
next, so it is never deleted while the queue is there: of events a row without any is left. A value
of events is what the export turns into Arrow without a step for each row; little-endian:

    head: first sequence, count, number of texts, bytes of the texts
    when (ms), sequence of the message        8 bytes each
    attempt                                   4
    partition, group, consumer, reason        2; the last three are numbers of texts
    step                                      1; its place in `tables.STEPS`
    ends of the texts                         4
    bytes of the texts
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, final

from queuelake.engine.events import EventRange, Events
from queuelake.errors import StorageError
from queuelake.storage import api, queue_records
from queuelake.storage.api import SEQUENCE_MAX, Batch, ReadTransaction
from queuelake.storage.queue_records import QueueRecord
from queuelake.tables import STEPS

VALUE_BYTES_MAX: Final = 32 * 1024 - 16  # as a chunk of messages
EVENTS_MAX: Final = 1_000  # in a value
EVENT_BYTES: Final = 29  # besides its texts
HEAD_BYTES: Final = 24
BYTES_KEY: Final = b"events_bytes"  # in META
KEY_BYTES: Final = 16

_KEY: Final = struct.Struct(">QQ")
_HEAD: Final = struct.Struct("<QIIQ")
# When the minute began, each step, depth, bytes, three latencies.
MINUTE: Final = struct.Struct(f"<q{len(STEPS)}QQQddd")


def record_key(queue_id: int, seq: int) -> bytes:
    """Of an event or a minute."""
    return _KEY.pack(queue_id, seq)


def read_key(key: bytes) -> tuple[int, int]:
    """Queue and sequence."""
    queue_id, seq = _KEY.unpack(key)
    return queue_id, seq


# Events


def put_events(batch: Batch, queue_id: int, first: int, events: Events) -> int:
    """Number the events from `first` on; returns how many bytes that takes."""
    size = 0
    start = 0
    values: list[tuple[int, bytes]] = []
    for one in events.ranges:
        first = _encode_all(values, first, events, start, one.at)
        start = one.at
        first = _encode_range(values, first, one)
    _encode_all(values, first, events, start, len(events.steps))
    for seq, value in values:
        batch.put(api.EVENTS, record_key(queue_id, seq), value)
        size += KEY_BYTES + len(value)
    return size


def _encode_range(values: list[tuple[int, bytes]], first: int, events: EventRange) -> int:
    """As values of the form which `_encode` gives them; returns the sequence behind them."""
    texts = [b"", events.reason.encode()] if events.reason else [b""]
    end = sum(map(len, texts))
    ends = struct.pack("<I", 0) * (len(texts) - 1) + struct.pack("<I", end)
    for low in range(events.first, events.last + 1, EVENTS_MAX):
        count = min(EVENTS_MAX, events.last + 1 - low)
        parts = [
            _HEAD.pack(first, count, len(texts), end),
            struct.pack("<q", events.time_ms) * count,
            struct.pack(f"<{count}Q", *range(low, low + count)),
            bytes(4 * count),
            struct.pack("<H", events.partition) * count,
            bytes(4 * count),
            struct.pack("<H", len(texts) - 1) * count,
            bytes([events.step]) * count,
            ends,
            *texts,
        ]
        values.append((first, b"".join(parts)))
        first += count
    return first


def _encode_all(
    values: list[tuple[int, bytes]], first: int, events: Events, start: int, end: int
) -> int:
    """Those from `start` to before `end`; returns the sequence behind them."""
    while start < end:
        value, stop = _encode(first, events, start, end)
        values.append((first, value))
        first += stop - start
        start = stop
    return first


def _encode(first: int, events: Events, start: int, end: int) -> tuple[bytes, int]:
    """As many events from `start` on as fit into one value, and where the next one begins."""
    codes: dict[str, int] = {}
    texts: list[bytes] = []
    columns: list[list[int]] = [[], [], []]
    size = HEAD_BYTES
    stop = start
    while stop < end and stop - start < EVENTS_MAX:
        added = EVENT_BYTES
        row = (events.groups[stop], events.consumers[stop], events.reasons[stop])
        for text in row:
            if text not in codes:
                added += 4 + len(text.encode())
        if stop > start and size + added > VALUE_BYTES_MAX:
            break
        for column, text in zip(columns, row, strict=True):
            code = codes.get(text, -1)
            if code < 0:
                code = codes[text] = len(texts)
                texts.append(text.encode())
            column.append(code)
        size += added
        stop += 1
    count = stop - start
    ends: list[int] = []
    text_end = 0
    for encoded in texts:
        text_end += len(encoded)
        ends.append(text_end)
    parts = [
        _HEAD.pack(first, count, len(texts), text_end),
        struct.pack(f"<{count}q", *events.times_ms[start:stop]),
        struct.pack(f"<{count}Q", *events.seqs[start:stop]),
        struct.pack(f"<{count}I", *events.attempts[start:stop]),
        struct.pack(f"<{count}H", *events.partitions[start:stop]),
        *[struct.pack(f"<{count}H", *column) for column in columns],
        bytes(events.steps[start:stop]),
        struct.pack(f"<{len(ends)}I", *ends),
        *texts,
    ]
    return b"".join(parts), stop


@final
class EventsLayout:
    """Where the columns of a value lie. `texts` is what `group`, `consumer` and `reason` count."""

    __slots__ = (
        "attempts_at",
        "consumers_at",
        "count",
        "first",
        "groups_at",
        "partitions_at",
        "reasons_at",
        "seqs_at",
        "steps_at",
        "texts",
        "times_at",
    )

    def __init__(self, value: bytes) -> None:
        """Raises StorageError when these are no events."""
        if len(value) < HEAD_BYTES:
            raise StorageError(f"events of {len(value)} bytes are shorter than their head")
        first, count, texts, text_bytes = _HEAD.unpack_from(value)
        self.first: int = first
        self.count: int = count
        self.times_at: int = HEAD_BYTES
        self.seqs_at: int = self.times_at + 8 * count
        self.attempts_at: int = self.seqs_at + 8 * count
        self.partitions_at: int = self.attempts_at + 4 * count
        self.groups_at: int = self.partitions_at + 2 * count
        self.consumers_at: int = self.groups_at + 2 * count
        self.reasons_at: int = self.consumers_at + 2 * count
        self.steps_at: int = self.reasons_at + 2 * count
        ends_at = self.steps_at + count
        at = ends_at + 4 * texts
        if at + text_bytes != len(value):
            problem = f"have {len(value)} bytes; their head says {at + text_bytes}"
            raise StorageError(f"events from {first} on {problem}")
        self.texts: list[str] = []
        start = at
        for end in struct.unpack_from(f"<{texts}I", value, ends_at):
            self.texts.append(value[start : at + end].decode())
            start = at + end


class Event(NamedTuple):
    """One row of the table, for those who look at few of them."""

    seqno: int
    step: str
    partition: int
    message_seqno: int
    group: str
    consumer: str
    attempt: int
    reason: str
    ts_ms: int


def decode_events(value: bytes) -> list[Event]:
    layout = EventsLayout(value)
    count, texts = layout.count, layout.texts
    times: tuple[int, ...] = struct.unpack_from(f"<{count}q", value, layout.times_at)
    seqs: tuple[int, ...] = struct.unpack_from(f"<{count}Q", value, layout.seqs_at)
    attempts: tuple[int, ...] = struct.unpack_from(f"<{count}I", value, layout.attempts_at)
    partitions: tuple[int, ...] = struct.unpack_from(f"<{count}H", value, layout.partitions_at)
    groups: tuple[int, ...] = struct.unpack_from(f"<{count}H", value, layout.groups_at)
    consumers: tuple[int, ...] = struct.unpack_from(f"<{count}H", value, layout.consumers_at)
    reasons: tuple[int, ...] = struct.unpack_from(f"<{count}H", value, layout.reasons_at)
    return [
        Event(
            layout.first + n,
            STEPS[value[layout.steps_at + n]],
            partitions[n],
            seqs[n],
            texts[groups[n]],
            texts[consumers[n]],
            attempts[n],
            texts[reasons[n]],
            times[n],
        )
        for n in range(count)
    ]


def events_reach(value: bytes) -> tuple[int, int]:
    """The last sequence in a value, and when its last event was; 0: there is none in it."""
    first, count, _, _ = _HEAD.unpack_from(value)
    if not count:
        return first - 1, 0
    (ts_ms,) = struct.unpack_from("<q", value, HEAD_BYTES + 8 * (count - 1))
    return first + count - 1, ts_ms


def no_events(next_seq: int) -> bytes:
    """What is left where all events of a queue were deleted; its key has the sequence before."""
    return _HEAD.pack(next_seq, 0, 0, 0)


def read_events(view: ReadTransaction, queue_id: int, after: int, upto: int) -> Iterator[bytes]:
    """The values which hold (after, upto], in order; the first and the last may hold more."""
    start = record_key(queue_id, after + 1)
    below = view.last_below(api.EVENTS, start)
    if below is not None and below[0] > record_key(queue_id, 0):
        start = below[0]
    for _, value in view.scan(api.EVENTS, start, record_key(queue_id, upto + 1)):
        first, count, _, _ = _HEAD.unpack_from(value)
        if count and first + count > after + 1:
            yield value


# Minutes


class Minute(NamedTuple):
    """One row of the table; `counts` of each step, in the order of `tables.STEPS`."""

    seqno: int
    ts_ms: int
    counts: tuple[int, ...]
    depth: int
    size: int
    latency_p50_ms: float
    latency_p99_ms: float
    latency_max_ms: float

    def encode(self) -> bytes:
        return MINUTE.pack(self.ts_ms, *self.counts, *self[3:])


def decode_minute(seqno: int, value: bytes) -> Minute:
    numbers = MINUTE.unpack(value)
    behind = 1 + len(STEPS)
    return Minute(seqno, numbers[0], numbers[1:behind], *numbers[behind:])


def read_minutes(
    view: ReadTransaction, queue_id: int, after: int, upto: int
) -> Iterator[tuple[int, bytes]]:
    """Sequences of (after, upto] and their values, each as `MINUTE` packs it."""
    start, stop = record_key(queue_id, after + 1), record_key(queue_id, upto + 1)
    for key, value in view.scan(api.STATS, start, stop):
        yield read_key(key)[1], value


# Both


def record_range(view: ReadTransaction, table: int, queue_id: int) -> tuple[int, int]:
    """(after, upto] of the events or minutes of a queue may be read."""
    start, stop = record_key(queue_id, 1), record_key(queue_id, SEQUENCE_MAX)
    first = next(view.scan_keys(table, start, stop), None)
    if first is None:
        return 0, 0
    last = view.last_below(table, stop)
    assert last is not None, "the first one is there"
    upto = events_reach(last[1])[0] if table == api.EVENTS else read_key(last[0])[1]
    return min(read_key(first)[1] - 1, upto), upto


def recorded_queues(view: ReadTransaction, table: int) -> Iterator[int]:
    """Numbers of the queues which have events, or minutes, in order; some may be deleted."""
    at = record_key(0, 0)
    while (key := next(view.scan_keys(table, at, b"\xff" * (KEY_BYTES + 1)), None)) is not None:
        queue_id = read_key(key)[0]
        yield queue_id
        at = record_key(queue_id + 1, 0)


def read_bytes(view: ReadTransaction) -> int:
    """What both tables hold."""
    value = view.get(api.META, BYTES_KEY)
    return int(value) if value is not None else 0


def put_deleted(batch: Batch, queue_id: int, record: QueueRecord) -> int:
    """The queue is being deleted; what it did is kept for a while, and whose it was. Returns how
    many bytes that takes."""
    value = queue_records.encode(record)
    batch.put(api.EVENTS, record_key(queue_id, 0), value)
    return KEY_BYTES + len(value)


def read_deleted(view: ReadTransaction, queue_id: int) -> QueueRecord | None:
    value = view.get(api.EVENTS, record_key(queue_id, 0))
    return queue_records.decode_queue(value) if value is not None else None
