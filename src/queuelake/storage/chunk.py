"""Messages of one queue partition as columns: one value for each group commit.

A chunk is what the export turns into Arrow without a step for each row: fixed-width columns first,
then for each text column the ends of its values and their bytes in one piece. All numbers are
little-endian. A column whose values are all the same is stored as that one value, without ends;
payloads only when they are all empty, because finding out costs more than it saves.

    head: first sequence, count, which fixed columns are one value, bytes of each text column
    ts_ms, expires_ms                         8 bytes each
    qos, priority                             1 byte each
    for topic, key, message id, publisher, properties, payload:
        ends                                  4 bytes each
        bytes
"""

from __future__ import annotations

import struct
from typing import Final, final

from mypy_extensions import mypyc_attr

from queuelake.errors import StorageError

TEXT_COLUMNS: Final = 6
RECORDS_MAX: Final = 4096  # records which are all the same take no bytes: they need a limit too
HEAD_BYTES: Final = 40
POINTER_BYTES: Final = 36  # what is stored in the place of a chunk which is elsewhere
PIECE_BYTES: Final = 32 * 1024 - 16  # with the head of a page it fills eight pages of LMDB
ROW_BYTES_MAX: Final = 18 + 4 * TEXT_COLUMNS  # what a record adds to the bytes of its texts

_HEAD: Final = struct.Struct("<QII6I")
ONE: Final = 1 << 31  # in the length of a text column: it is one value for all records
ONE_TS: Final = 1
ONE_EXPIRES: Final = 2
ONE_QOS: Final = 4
ONE_PRIORITY: Final = 8
_ONE_FIXED: Final = 15  # those four, which the head has as they are
_ONE_TOPIC: Final = 16
_ONE_KEY: Final = 32
_ONE_ID: Final = 64
_ONE_PUBLISHER: Final = 128
_ONE_PROPERTIES: Final = 256
_ONE_ALL: Final = 511


@final
@mypyc_attr(acyclic=True)
class Record:
    """A message as the queue keeps it."""

    __slots__ = (
        "expires_ms",
        "key",
        "message_id",
        "payload",
        "priority",
        "properties",
        "publisher",
        "qos",
        "seq",
        "topic",
        "ts_ms",
    )

    def __init__(
        self,
        topic: bytes,
        key: bytes,
        message_id: bytes,
        publisher: bytes,
        properties: bytes,
        payload: bytes,
        qos: int,
        priority: int,
        ts_ms: int,
        expires_ms: int,
        seq: int = 0,
    ) -> None:
        self.topic: bytes = topic  # empty: the queue's own address
        self.key: bytes = key
        self.message_id: bytes = message_id  # the producer's; empty: ours is made from its place
        self.publisher: bytes = publisher
        self.properties: bytes = properties  # encoded, the producer's own
        self.payload: bytes = payload
        self.qos: int = qos
        self.priority: int = priority
        self.ts_ms: int = ts_ms
        self.expires_ms: int = expires_ms  # 0: never
        self.seq: int = seq  # not in its columns: the head of the chunk says it

    def size(self) -> int:
        return (
            len(self.payload)
            + len(self.properties)
            + len(self.key)
            + len(self.message_id)
            + len(self.publisher)
            + len(self.topic)
        )


def encode_chunk(first: int, records: list[Record]) -> bytes:
    """The records of sequences `first`, `first + 1`, ... as one value."""
    count = len(records)
    assert 0 < count <= RECORDS_MAX
    ones = _columns_of_one(records)
    one = records[0]
    parts: list[bytes] = [b""]
    parts.append(_times_of([one.ts_ms] if ones & ONE_TS else [r.ts_ms for r in records]))
    parts.append(
        _times_of([one.expires_ms] if ones & ONE_EXPIRES else [r.expires_ms for r in records])
    )
    parts.append(bytes([one.qos] if ones & ONE_QOS else [r.qos for r in records]))
    parts.append(bytes([one.priority] if ones & ONE_PRIORITY else [r.priority for r in records]))
    parts[0] = _HEAD.pack(
        first,
        count,
        ones & _ONE_FIXED,
        _add_texts(parts, [one.topic] if ones & _ONE_TOPIC else [r.topic for r in records]),
        _add_texts(parts, [one.key] if ones & _ONE_KEY else [r.key for r in records]),
        _add_texts(parts, [one.message_id] if ones & _ONE_ID else [r.message_id for r in records]),
        _add_texts(
            parts, [one.publisher] if ones & _ONE_PUBLISHER else [r.publisher for r in records]
        ),
        _add_texts(
            parts, [one.properties] if ones & _ONE_PROPERTIES else [r.properties for r in records]
        ),
        _add_texts(parts, [r.payload for r in records]),
    )
    return b"".join(parts)


def _columns_of_one(records: list[Record]) -> int:
    """Flags of the columns, payloads left out, which have one value for all records."""
    one = records[0]
    ts_ms, expires_ms, qos, priority = one.ts_ms, one.expires_ms, one.qos, one.priority
    topic, key, message_id = one.topic, one.key, one.message_id
    publisher, properties = one.publisher, one.properties
    ones = _ONE_ALL
    for record in records:
        if record.ts_ms != ts_ms:
            ones &= ~ONE_TS
        if record.expires_ms != expires_ms:
            ones &= ~ONE_EXPIRES
        if record.qos != qos:
            ones &= ~ONE_QOS
        if record.priority != priority:
            ones &= ~ONE_PRIORITY
        # Mostly they are one object, too.
        if record.topic is not topic and record.topic != topic:
            ones &= ~_ONE_TOPIC
        if record.key is not key and record.key != key:
            ones &= ~_ONE_KEY
        if record.message_id is not message_id and record.message_id != message_id:
            ones &= ~_ONE_ID
        if record.publisher is not publisher and record.publisher != publisher:
            ones &= ~_ONE_PUBLISHER
        if record.properties is not properties and record.properties != properties:
            ones &= ~_ONE_PROPERTIES
    return ones


def _times_of(values: list[int]) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _add_texts(parts: list[bytes], values: list[bytes]) -> int:
    """Add a column; one value stands for all records. Returns what the head says of it."""
    if len(values) == 1:
        parts.append(values[0])
        return len(values[0]) | ONE
    end = 0
    ends: list[int] = []
    for value in values:
        end += len(value)
        ends.append(end)
    if end == 0:
        return ONE
    parts.append(struct.pack(f"<{len(ends)}I", *ends))
    parts.extend(values)
    return end


def chunk_stops(records: list[Record], bytes_max: int) -> list[int]:
    """Where to cut the records into chunks of at most so many bytes; one which is longer by itself
    is alone in its chunk."""
    stops: list[int] = []
    # What columns of one value take is counted for all columns: it is little.
    once = HEAD_BYTES + ROW_BYTES_MAX + records[0].size() - len(records[0].payload)
    ones = _columns_of_one(records)
    size = once
    start = 0
    for n, record in enumerate(records):
        cost = _cost(record, ones)
        if n > start and (size + cost > bytes_max or n - start == RECORDS_MAX):
            stops.append(n)
            start = n
            size = once
        size += cost
    stops.append(len(records))
    return stops


def _cost(record: Record, ones: int) -> int:
    """The bytes a record adds to a chunk, without columns which are one value for all."""
    cost = 4 + len(record.payload)
    if not ones & ONE_TS:
        cost += 8
    if not ones & ONE_EXPIRES:
        cost += 8
    if not ones & ONE_QOS:
        cost += 1
    if not ones & ONE_PRIORITY:
        cost += 1
    if not ones & _ONE_TOPIC:
        cost += 4 + len(record.topic)
    if not ones & _ONE_KEY:
        cost += 4 + len(record.key)
    if not ones & _ONE_ID:
        cost += 4 + len(record.message_id)
    if not ones & _ONE_PUBLISHER:
        cost += 4 + len(record.publisher)
    if not ones & _ONE_PROPERTIES:
        cost += 4 + len(record.properties)
    return cost


def chunk_range(value: bytes) -> tuple[int, int]:
    """First and last sequence in a chunk; its first bytes are enough, or a pointer to it.

    Raises:
        StorageError: this is no chunk.
    """
    if len(value) < POINTER_BYTES:
        raise StorageError(f"chunk of {len(value)} bytes is shorter than its head")
    first, count = struct.unpack_from("<QI", value)
    return first, first + count - 1


def chunk_times(value: bytes) -> tuple[int, int]:
    """When the first and the last record came, in milliseconds; the columns of time are enough, or
    a pointer to the chunk."""
    if len(value) == POINTER_BYTES:
        (ts_ms,) = struct.unpack_from("<q", value, 24)
        return ts_ms, ts_ms
    _, count, flags = struct.unpack_from("<QII", value)
    (first_ms,) = struct.unpack_from("<q", value, HEAD_BYTES)
    if flags & ONE_TS:
        return first_ms, first_ms
    (last_ms,) = struct.unpack_from("<q", value, HEAD_BYTES + 8 * (count - 1))
    return first_ms, last_ms


def has_one_time(value: bytes) -> bool:
    """Whether all records of a chunk came at the same time, and expire at the same time."""
    if len(value) < HEAD_BYTES + 16:
        return False
    flags: int = struct.unpack_from("<I", value, 12)[0]
    return flags & ONE_TS != 0 and flags & ONE_EXPIRES != 0


@final
class Column:
    """Where one column lies in a chunk; `ends_at` 0: one value for all records."""

    __slots__ = ("at", "ends_at", "length")

    def __init__(self, at: int, length: int, ends_at: int) -> None:
        self.at: int = at
        self.length: int = length
        self.ends_at: int = ends_at


@final
class Layout:
    """Where everything lies in a chunk. A fixed column of one value has the length of one."""

    __slots__ = ("count", "expires", "first", "priority", "qos", "texts", "ts")

    def __init__(self, value: bytes) -> None:
        if len(value) < HEAD_BYTES:
            raise StorageError(f"chunk of {len(value)} bytes is shorter than its head")
        head: tuple[int, ...] = _HEAD.unpack_from(value)
        count = head[1]
        flags = head[2]
        if not 0 < count <= RECORDS_MAX:
            raise StorageError(
                f"chunk of sequence {head[0]} says it has {count} of 1 to {RECORDS_MAX} records"
            )
        self.first: int = head[0]
        self.count: int = count
        self.ts: Column = Column(HEAD_BYTES, 8 if flags & ONE_TS else 8 * count, 0)
        at = HEAD_BYTES + self.ts.length
        self.expires: Column = Column(at, 8 if flags & ONE_EXPIRES else 8 * count, 0)
        at += self.expires.length
        self.qos: Column = Column(at, 1 if flags & ONE_QOS else count, 0)
        at += self.qos.length
        self.priority: Column = Column(at, 1 if flags & ONE_PRIORITY else count, 0)
        at += self.priority.length
        self.texts: list[Column] = []  # topic, key, message id, publisher, properties, payload
        for n in range(3, 3 + TEXT_COLUMNS):
            length = head[n] & ~ONE
            ends_at = 0
            if not head[n] & ONE:
                ends_at = at
                at += 4 * count
            self.texts.append(Column(at, length, ends_at))
            at += length
        if at != len(value):
            raise StorageError(
                f"chunk of sequence {self.first} has {len(value)} bytes; its head says {at}"
            )


def decode_chunk(value: bytes) -> list[Record]:
    """The records of a chunk, each with its sequence.

    Raises:
        StorageError: this is no chunk, or not all of it.
    """
    layout = Layout(value)
    count = layout.count
    first = layout.first
    ts = _times(value, layout.ts, count)
    expires = _times(value, layout.expires, count)
    qos = _bytes(value, layout.qos, count)
    priority = _bytes(value, layout.priority, count)
    topics = _texts(value, layout.texts[0], layout)
    keys = _texts(value, layout.texts[1], layout)
    message_ids = _texts(value, layout.texts[2], layout)
    publishers = _texts(value, layout.texts[3], layout)
    properties = _texts(value, layout.texts[4], layout)
    payloads = _texts(value, layout.texts[5], layout)
    return [
        Record(
            topics[n],
            keys[n],
            message_ids[n],
            publishers[n],
            properties[n],
            payloads[n],
            qos[n],
            priority[n],
            ts[n],
            expires[n],
            first + n,
        )
        for n in range(count)
    ]


def _times(value: bytes, column: Column, count: int) -> list[int]:
    times: list[int] = list(struct.unpack_from(f"<{column.length // 8}q", value, column.at))
    return times if len(times) == count else times * count


def _bytes(value: bytes, column: Column, count: int) -> bytes:
    found = value[column.at : column.at + column.length]
    return found if len(found) == count else found * count


def _texts(value: bytes, column: Column, layout: Layout) -> list[bytes]:
    at = column.at
    if column.ends_at == 0:
        return [value[at : at + column.length]] * layout.count
    ends: tuple[int, ...] = struct.unpack_from(f"<{layout.count}I", value, column.ends_at)
    if ends[-1] != column.length:
        raise StorageError(
            f"chunk of sequence {layout.first}: column of {column.length} bytes ends at {ends[-1]}"
        )
    found: list[bytes] = []
    start = at
    for end in ends:
        if at + end < start:
            raise StorageError(f"chunk of sequence {layout.first}: a value has less than no bytes")
        found.append(value[start : at + end])
        start = at + end
    return found
