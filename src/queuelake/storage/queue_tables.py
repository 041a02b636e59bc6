"""How queues are laid out in the store: keys, small values, chunks of messages.

Keys are big-endian numbers, the queue id first: the order of a table is queue, partition, sequence,
and everything of a queue is one range of each table. The messages a partition got in one commit
are one chunk, or several of at most 32 KiB. A message which is longer is alone in its chunk, and
that chunk is stored in pieces. Chunks of a partition never overlap; a gap between them is where
messages were deleted. In the place of a chunk there may be a pointer to one which was staged
(`stage_tables`); whoever reads with the functions below does not see the difference.

    QUEUES      queue                              -> QueueRecord
    CHUNKS      queue, partition, first sequence, piece -> chunk
    PARTITIONS  queue, partition                   -> low, last, bytes
    GROUPS      queue, group                       -> GroupRecord
    LANES       queue, group, partition            -> settled up to, first never handed out
    SETTLED     queue, group, partition, block     -> bits
    TALLIES     queue, group, partition, sequence  -> attempts, due, first
    DEDUPE      queue, until, number               -> hashes of 16 bytes
    DELAYED     queue, due, number, piece          -> partition, chunk of one record
    LATEST      queue, hash of a key               -> sequence, bytes
    DOOMED      queue                              -> (nothing)
    QUORUM      see `quorum_tables`
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from queuelake.errors import StorageError
from queuelake.storage import api, chunk
from queuelake.storage.api import (
    CHUNKS,
    DELAYED,
    DOOMED,
    SEQUENCE_MAX,
    Batch,
    ReadTransaction,
)
from queuelake.storage.chunk import (
    HEAD_BYTES,
    RECORDS_MAX,
    ROW_BYTES_MAX,
    Record,
    chunk_range,
    chunk_stops,
    chunk_times,
    decode_chunk,
    encode_chunk,
)
from queuelake.storage.stage_tables import is_pointer, read_pointer, resolve

PIECE_BYTES: Final = chunk.PIECE_BYTES
PIECE_MAX: Final = 0xFFFF
TRIM_CHUNKS_MAX: Final = 2000  # for each partition and commit
HASH_BYTES: Final = 16
EVERYBODY: Final = 0  # the group number, in SETTLED, of what is gone for all groups

# Everything of a queue but its name and its mark in DOOMED.
TABLES: Final = (
    CHUNKS,
    api.PARTITIONS,
    api.GROUPS,
    api.LANES,
    api.SETTLED,
    api.TALLIES,
    api.DEDUPE,
    DELAYED,
    api.LATEST,
    api.QUORUM,
)
KEY_BYTES_MAX: Final = 32  # no key of a queue is as long
KEY_HASH_BYTES: Final = 16

_QUEUE: Final = struct.Struct(">Q")
_PARTITION: Final = struct.Struct(">QH")
_CHUNK: Final = struct.Struct(">QHQH")
CHUNK_PREFIX: Final = 18  # bytes of the key of a chunk without the piece
_GROUP: Final = struct.Struct(">QI")
_LANE: Final = struct.Struct(">QIH")
_BLOCK: Final = struct.Struct(">QIHQ")
_DEDUPE: Final = struct.Struct(">QQI")

_PARTITION_STATE: Final = struct.Struct("<QQQ")
_LANE_STATE: Final = struct.Struct("<QQ")
_TALLY: Final = struct.Struct("<IQQ")
_LATEST: Final = struct.Struct("<QI")


def queue_key(queue_id: int) -> bytes:
    return _QUEUE.pack(queue_id)


def chunk_key(queue_id: int, partition: int, first: int, piece: int = 0) -> bytes:
    return _CHUNK.pack(queue_id, partition, first, piece)


def partition_key(queue_id: int, partition: int) -> bytes:
    return _PARTITION.pack(queue_id, partition)


def group_key(queue_id: int, group: int) -> bytes:
    return _GROUP.pack(queue_id, group)


def lane_key(queue_id: int, group: int, partition: int) -> bytes:
    return _LANE.pack(queue_id, group, partition)


def settled_key(queue_id: int, group: int, partition: int, block: int) -> bytes:
    return _BLOCK.pack(queue_id, group, partition, block)


def tally_key(queue_id: int, group: int, partition: int, seq: int) -> bytes:
    return _BLOCK.pack(queue_id, group, partition, seq)


def dedupe_key(queue_id: int, until_ms: int, number: int) -> bytes:
    return _DEDUPE.pack(queue_id, until_ms, number)


def latest_key(queue_id: int, key: int) -> bytes:
    """`key`: a hash of 128 bits."""
    return _QUEUE.pack(queue_id) + key.to_bytes(KEY_HASH_BYTES, "big")


def latest_value(seq: int, size: int) -> bytes:
    """The last message of a key: its sequence and the bytes of its payload."""
    return _LATEST.pack(seq, size)


def read_latest(value: bytes) -> tuple[int, int]:
    seq, size = _LATEST.unpack(value)
    return seq, size


def partition_state(low: int, last: int, size: int) -> bytes:
    """Sequences `low + 1` to `last` are stored; they have so many bytes."""
    return _PARTITION_STATE.pack(low, last, size)


def read_partition_state(value: bytes) -> tuple[int, int, int]:
    low, last, size = _PARTITION_STATE.unpack(value)
    return low, last, size


def lane_state(settled_upto: int, horizon: int) -> bytes:
    """What a group has settled without a gap, and the first sequence it never handed out."""
    return _LANE_STATE.pack(settled_upto, horizon)


def read_lane_state(value: bytes) -> tuple[int, int]:
    settled_upto, horizon = _LANE_STATE.unpack(value)
    return settled_upto, horizon


def tally(attempts: int, due_ms: int, first_ms: int) -> bytes:
    return _TALLY.pack(attempts, due_ms, first_ms)


def read_tally(value: bytes) -> tuple[int, int, int]:
    attempts, due_ms, first_ms = _TALLY.unpack(value)
    return attempts, due_ms, first_ms


def read_hashes(value: bytes) -> list[bytes]:
    """The hashes of a row of DEDUPE, which is nothing but them."""
    if len(value) % HASH_BYTES:
        raise ValueError(f"{len(value)} bytes are no hashes of {HASH_BYTES} bytes")
    return [value[at : at + HASH_BYTES] for at in range(0, len(value), HASH_BYTES)]


def put_chunk(
    batch: Batch, queue_id: int, partition: int, first: int, records: list[Record]
) -> list[tuple[int, int, int]]:
    """Write the records of sequences `first`, `first + 1`, ..., in as many chunks as they need;
    returns first and last sequence and bytes of each."""
    size = HEAD_BYTES + ROW_BYTES_MAX * len(records)
    for record in records:
        size += record.size()
    if size <= PIECE_BYTES and len(records) <= RECORDS_MAX:
        value = encode_chunk(first, records)
        batch.put(CHUNKS, chunk_key(queue_id, partition, first), value)
        return [(first, first + len(records) - 1, len(value))]
    start = 0
    written: list[tuple[int, int, int]] = []
    for stop in chunk_stops(records, PIECE_BYTES):
        value = encode_chunk(first + start, records[start:stop])
        for piece, at in enumerate(range(0, len(value), PIECE_BYTES)):
            key = chunk_key(queue_id, partition, first + start, piece)
            batch.put(CHUNKS, key, value[at : at + PIECE_BYTES])
        written.append((first + start, first + stop - 1, len(value)))
        start = stop
    return written


def read_chunk_at(view: ReadTransaction, queue_id: int, partition: int, seq: int) -> list[Record]:
    """The chunk which holds `seq`, whole; after a gap the next one; at the end nothing."""
    value = _chunk_at_or_below(view, queue_id, partition, seq)
    if value is None or chunk_range(value)[1] < seq:
        value = _chunk_from(view, queue_id, partition, seq)
    return decode_chunk(value) if value is not None else []


def read_ahead(
    view: ReadTransaction, queue_id: int, partition: int, seq: int, bytes_max: int
) -> list[Record]:
    """As `read_chunk_at`, and the chunks behind it until there are so many bytes."""
    records = read_chunk_at(view, queue_id, partition, seq)
    size = sum([record.size() for record in records])
    if records and size < bytes_max:
        for value in _chunks_from(view, queue_id, partition, records[-1].seq + 1):
            records += decode_chunk(value)
            size += len(value)
            if size >= bytes_max:
                break
    return records


def chunks_after(
    view: ReadTransaction, queue_id: int, partition: int, after: int
) -> Iterator[bytes]:
    """The chunks which end above `after`, encoded, in order."""
    value = _chunk_at_or_below(view, queue_id, partition, after)
    if value is not None and chunk_range(value)[1] > after:
        yield value
    yield from _chunks_from(view, queue_id, partition, after + 1)


def first_sequence(view: ReadTransaction, queue_id: int, partition: int) -> int:
    """Of the oldest chunk in the store; 0: there is none."""
    for key in view.scan_keys(
        CHUNKS, chunk_key(queue_id, partition, 0), _partition_stop(queue_id, partition)
    ):
        return first_of(key)
    return 0


def last_sequence(view: ReadTransaction, queue_id: int, partition: int) -> int:
    """Of the newest chunk in the store; 0: there is none."""
    value = _chunk_at_or_below(view, queue_id, partition, SEQUENCE_MAX)
    return chunk_range(value)[1] if value is not None else 0


def first_at_time(view: ReadTransaction, queue_id: int, partition: int, ts_ms: int) -> int:
    """The first stored sequence which came at `ts_ms` or later; without one the next to come.

    Times of a partition never fall, so this searches by halves.
    """
    value = _chunk_from(view, queue_id, partition, 0)
    if value is None:
        return 1
    low, high = chunk_range(value)[0], last_sequence(view, queue_id, partition)
    earlier: bytes | None = None  # the last chunk which is known to begin before `ts_ms`
    while low <= high:
        middle = (low + high) // 2
        value = _chunk_at_or_below(view, queue_id, partition, middle)
        assert value is not None, "there is a chunk at or below `low`, and nobody writes to a view"
        first, last = chunk_range(value)
        if first < low:
            low = middle + 1  # a gap: what begins at or below `middle` was seen
        elif chunk_times(value)[0] < ts_ms:
            earlier = value
            low = last + 1
        else:
            high = first - 1
    if earlier is None:
        return low
    for record in decode_chunk(earlier):
        if record.ts_ms >= ts_ms:
            return record.seq
    after = chunk_range(earlier)[1] + 1
    value = _chunk_from(view, queue_id, partition, after)
    return chunk_range(value)[0] if value is not None else after


def _chunk_at_or_below(
    view: ReadTransaction, queue_id: int, partition: int, seq: int
) -> bytes | None:
    """The last chunk which begins at or below `seq`."""
    found = view.last_below(CHUNKS, chunk_key(queue_id, partition, seq, PIECE_MAX))
    if found is None or found[0][:10] != partition_key(queue_id, partition):
        return None
    key, value = found
    pieces = int.from_bytes(key[CHUNK_PREFIX:], "big")
    if pieces == 0:
        return resolve(view, read_pointer(value)) if is_pointer(value) else value
    before = [read_piece(view, key[:CHUNK_PREFIX], piece) for piece in range(pieces)]
    return b"".join([*before, value])


def read_piece(view: ReadTransaction, prefix: bytes, piece: int) -> bytes:
    value = view.get(CHUNKS, prefix + piece.to_bytes(2, "big"))
    if value is None:
        raise StorageError(f"piece {piece} of queue chunk {prefix.hex()} is missing from the store")
    return value


def _chunk_from(view: ReadTransaction, queue_id: int, partition: int, seq: int) -> bytes | None:
    """The first chunk which begins at or above `seq`."""
    return next(_chunks_from(view, queue_id, partition, seq), None)


def _chunks_from(view: ReadTransaction, queue_id: int, partition: int, seq: int) -> Iterator[bytes]:
    """The chunks which begin at or above `seq`, in order."""
    pieces: list[bytes] = []
    prefix = b""
    start = chunk_key(queue_id, partition, seq)
    for key, value in view.scan(CHUNKS, start, _partition_stop(queue_id, partition)):
        if pieces and key[:CHUNK_PREFIX] != prefix:
            yield b"".join(pieces)
            pieces = []
        prefix = key[:CHUNK_PREFIX]
        pieces.append(value)
        if len(value) < PIECE_BYTES:  # no need to look at what follows
            whole = b"".join(pieces)
            yield resolve(view, read_pointer(whole)) if is_pointer(whole) else whole
            pieces = []
    if pieces:
        yield b"".join(pieces)


def _partition_stop(queue_id: int, partition: int) -> bytes:
    return partition_key(queue_id, partition) + b"\xff" * KEY_BYTES_MAX


def first_of(key: bytes) -> int:
    """The first sequence of a chunk, from its key."""
    return int.from_bytes(key[10:CHUNK_PREFIX], "big")


def scan_prefix(view: ReadTransaction, table: int, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Everything in a table whose key begins like this, in order."""
    return view.scan(table, prefix, prefix + b"\xff" * KEY_BYTES_MAX)


def trim_reach(view: ReadTransaction, queue_id: int, partition: int) -> int:
    """Up to which sequence one commit can trim a partition."""
    start, stop = chunk_key(queue_id, partition, 0), _partition_stop(queue_id, partition)
    chunks = 0
    last = b""
    for key in view.scan_keys(CHUNKS, start, stop):
        if key[:CHUNK_PREFIX] != last:
            if chunks == TRIM_CHUNKS_MAX:
                return first_of(key) - 1
            chunks += 1
            last = key[:CHUNK_PREFIX]
    return SEQUENCE_MAX


def doomed_queues(view: ReadTransaction) -> list[int]:
    """Dropped queues of which something is still in the store."""
    keys = view.scan_keys(DOOMED, b"", b"\xff" * KEY_BYTES_MAX)
    return [int.from_bytes(key, "big") for key in keys]
