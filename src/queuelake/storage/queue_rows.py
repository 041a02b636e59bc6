"""How queued messages of sessions are laid out in the store, and how they are freed.

Messages of one group commit are packed into chunks of at most 32 KiB; a longer message is alone in
its chunk. A chunk is stored in pieces of 32 KiB, because larger values fragment the store. A queue
row holds the entries one session got in one commit: flags, and where the message is. A chunk which
one row alone refers to goes with that row. Otherwise there is a reference for each pair of chunk
and row, and when the last reference to a chunk goes, the chunk goes.

    MESSAGES    chunk id, piece number        -> count, lengths, records
    QUEUE       session id, first sequence    -> count, bytes, chunk ids, columns of the entries
    REFERENCES  chunk id, session id, first sequence -> (nothing)
"""

from __future__ import annotations

import struct
from typing import Final, final

from queuelake.errors import StorageError
from queuelake.protocol.message import Message
from queuelake.storage.api import (
    MESSAGES,
    QUEUE,
    REFERENCES,
    SEQUENCE_MAX,
    Batch,
    ReadTransaction,
    WriteTransaction,
)

CHUNK_BYTES_MAX: Final = 32 * 1024
PIECE_BYTES: Final = 32 * 1024 - 64  # with its key and header it fills eight pages of LMDB
ROW_ENTRIES_MAX: Final = 1000

_RECORD: Final = struct.Struct("<HHBIIQQ")  # topic, publisher lengths, flags, offsets, times
_ROW: Final = struct.Struct("<HH?Q")  # entries, chunks, whether they are its own, bytes


def u64(*numbers: int) -> bytes:
    """A key of big-endian numbers: their order is the order of the table."""
    return b"".join([number.to_bytes(8, "big") for number in numbers])


def encode_message(message: Message) -> bytes:
    publisher = message.publisher.encode()
    head = _RECORD.pack(
        len(message.topic),
        len(publisher),
        message.qos << 1 | (1 if message.retain else 0),
        message.payload_at,
        message.expiry_at,
        message.ts_ms,
        message.expires_ms,
    )
    return b"".join([head, message.topic, publisher, message.body])


def decode_message(record: bytes) -> Message:
    topic, publisher, flags, payload_at, expiry_at, ts_ms, expires_ms = _RECORD.unpack_from(record)
    at: int = _RECORD.size + topic
    body: int = at + publisher
    message = Message(
        record[_RECORD.size : at],
        flags >> 1,
        flags & 1 != 0,
        record[body:],
        payload_at,
        expiry_at,
        record[at:body].decode(),
        ts_ms,
    )
    message.expires_ms = expires_ms
    return message


@final
class StoredEntry:
    """One queue entry as read back."""

    __slots__ = ("first", "ids", "message", "sequence", "shared")

    def __init__(
        self, sequence: int, first: int, ids: bytes, shared: bytes, message: Message
    ) -> None:
        self.sequence: int = sequence
        self.first: int = first
        self.ids: bytes = ids
        self.shared: bytes = shared
        self.message: Message = message


@final
class ChunkWriter:
    """Packs the messages of one group: message n is number `places[n]` of `chunk_ids[n]`."""

    __slots__ = ("_batch", "_next_id", "_records", "_size", "chunk_ids", "places")

    def __init__(self, batch: Batch, first_chunk_id: int) -> None:
        self._batch: Batch = batch
        self._next_id: int = first_chunk_id
        self._records: list[bytes] = []
        self._size: int = 0
        self.chunk_ids: list[int] = []
        self.places: list[int] = []

    def add(self, message: Message) -> None:
        record = encode_message(message)
        if self._records and self._size + len(record) > CHUNK_BYTES_MAX:
            self.finish()
        self.chunk_ids.append(self._next_id)
        self.places.append(len(self._records))
        self._records.append(record)
        self._size += len(record) + 4

    def finish(self) -> int:
        """Write the open chunk; returns the next free chunk id."""
        if not self._records:
            return self._next_id
        count = len(self._records)
        lengths = struct.pack(f"<I{count}I", count, *[len(record) for record in self._records])
        blob = b"".join([lengths, *self._records])
        key = u64(self._next_id)
        for piece, at in enumerate(range(0, len(blob), PIECE_BYTES)):
            self._batch.put(MESSAGES, key + piece.to_bytes(4, "big"), blob[at : at + PIECE_BYTES])
        self._records = []
        self._size = 0
        self._next_id += 1
        return self._next_id


@final
class RowEntries:
    """The entries of one row, column by column."""

    __slots__ = ("chunk_ids", "firsts", "ids", "places", "shared")

    def __init__(self) -> None:
        self.firsts: list[int] = []  # first byte of the PUBLISH
        self.chunk_ids: list[int] = []
        self.places: list[int] = []
        self.ids: list[bytes] = []  # encoded subscription identifiers
        self.shared: list[bytes] = []  # shared subscription filters

    def add(self, first: int, ids: bytes, shared: bytes, chunk_id: int, place: int) -> None:
        self.firsts.append(first)
        self.ids.append(ids)
        self.shared.append(shared)
        self.chunk_ids.append(chunk_id)
        self.places.append(place)


def put_row(
    batch: Batch, session_id: int, first_sequence: int, size: int, row: RowEntries, owner: bool
) -> None:
    """Write one row; `owner`: no other row refers to its chunks, so they need no references."""
    count = len(row.firsts)
    assert 0 < count <= ROW_ENTRIES_MAX
    chunks: dict[int, int] = {}
    numbers = [chunks.setdefault(chunk_id, len(chunks)) for chunk_id in row.chunk_ids]
    parts = [
        _ROW.pack(count, len(chunks), owner, size),
        u64(*chunks),
        bytes(row.firsts),
        struct.pack(f"<{count}H", *numbers),
        struct.pack(f"<{count}H", *row.places),
    ]
    if any(row.ids) or any(row.shared):
        parts.append(struct.pack(f"<{count}H", *[len(ids) for ids in row.ids]))
        parts.append(struct.pack(f"<{count}H", *[len(shared) for shared in row.shared]))
        for ids, shared in zip(row.ids, row.shared, strict=True):
            parts.append(ids + shared)
    key = u64(session_id, first_sequence)
    batch.put(QUEUE, key, b"".join(parts))
    if not owner:
        for chunk_id in chunks:
            batch.put(REFERENCES, u64(chunk_id) + key, b"")


def first_free_chunk(view: ReadTransaction) -> int:
    """The lowest id above those of all chunks."""
    last = view.last_below(MESSAGES, b"\xff" * 12)
    return int.from_bytes(last[0][:8], "big") + 1 if last is not None else 1


def read_queue(
    view: ReadTransaction, session_id: int, after: int, bytes_max: int
) -> list[StoredEntry]:
    """Entries with a sequence above `after`, in order; at least one when there is one."""
    found: list[StoredEntry] = []
    start = u64(session_id, after + 1)
    before = view.last_below(QUEUE, start)
    if before is not None and before[0][:8] == start[:8]:
        start = before[0]
    size = 0
    for key, row in view.scan(QUEUE, start, u64(session_id, SEQUENCE_MAX)):
        size += _read_row(view, int.from_bytes(key[8:], "big"), row, after, found)
        if size >= bytes_max:
            break
    return found


def _read_row(
    view: ReadTransaction, sequence: int, row: bytes, after: int, found: list[StoredEntry]
) -> int:
    count, chunk_count, _, _ = _ROW.unpack_from(row)
    at: int = _ROW.size + 8 * chunk_count
    chunk_ids = row_chunks(row)
    chunks: dict[int, list[bytes]] = {}
    numbers = struct.unpack_from(f"<{2 * count}H", row, at + count)
    texts_at: int = at + 5 * count
    has_texts = len(row) > texts_at
    lengths = struct.unpack_from(f"<{2 * count}H", row, texts_at) if has_texts else ()
    text_at: int = texts_at + 4 * count
    size = 0
    for n in range(count):
        ids_end: int = text_at
        shared_end: int = text_at
        if has_texts:
            ids_end += lengths[n]
            shared_end = ids_end + lengths[count + n]
        if sequence + n > after:
            chunk = numbers[n]
            if chunk not in chunks:
                chunks[chunk] = read_chunk(view, chunk_ids[chunk])
            message = decode_message(chunks[chunk][numbers[count + n]])
            ids, shared = row[text_at:ids_end], row[ids_end:shared_end]
            found.append(StoredEntry(sequence + n, row[at + n], ids, shared, message))
            size += message.size()
        text_at = shared_end
    return size


def read_chunk(view: ReadTransaction, chunk_id: bytes) -> list[bytes]:
    pieces = [piece for _, piece in view.scan(MESSAGES, chunk_id, chunk_id + b"\xff" * 4)]
    if not pieces:
        raise StorageError(f"message chunk {chunk_id.hex()} is missing from the store")
    blob = b"".join(pieces) if len(pieces) > 1 else pieces[0]
    (count,) = struct.unpack_from("<I", blob)
    lengths = struct.unpack_from(f"<{count}I", blob, 4)
    records = []
    at = 4 + 4 * count
    for length in lengths:
        records.append(blob[at : at + length])
        at += length
    return records


def row_chunks(row: bytes) -> list[bytes]:
    """The ids of the chunks a queue row refers to."""
    chunk_count: int = _ROW.unpack_from(row)[1]
    at: int = _ROW.size
    return [row[at + 8 * n : at + 8 * n + 8] for n in range(chunk_count)]


def owns_chunks(row: bytes) -> bool:
    """Whether no other row refers to the chunks of this one."""
    owner: bool = _ROW.unpack_from(row)[2]
    return owner


def trim_rows(transaction: WriteTransaction, session_id: int, upto: int) -> None:
    """Delete the rows which end at or below `upto`, and every chunk nobody needs any more."""
    doomed = []
    stop = u64(session_id, min(upto, SEQUENCE_MAX - 1) + 1)
    for key, row in transaction.scan(QUEUE, u64(session_id, 0), stop):
        if int.from_bytes(key[8:], "big") + _ROW.unpack_from(row)[0] - 1 > upto:
            break
        doomed.append((key, row_chunks(row), owns_chunks(row)))
    for key, chunk_ids, owner in doomed:
        transaction.delete(QUEUE, key)
        for chunk_id in chunk_ids:
            if not owner:
                transaction.delete(REFERENCES, chunk_id + key)
                if _is_referenced(transaction, chunk_id):
                    continue
            _free(transaction, chunk_id)


def _is_referenced(transaction: WriteTransaction, chunk_id: bytes) -> bool:
    return any(True for _ in transaction.scan(REFERENCES, chunk_id, chunk_id + b"\xff" * 16))


def _free(transaction: WriteTransaction, chunk_id: bytes) -> None:
    piece = 0
    while transaction.delete(MESSAGES, chunk_id + piece.to_bytes(4, "big")):
        piece += 1


def row_totals(
    view: ReadTransaction, session_id: int, settled_seq: int, settled: set[int]
) -> tuple[int, int]:
    """The last sequence in the queue of a session (0: none), and the bytes not yet settled."""
    last = 0
    size = 0
    for key, row in view.scan(QUEUE, u64(session_id, 0), u64(session_id, SEQUENCE_MAX)):
        count, _, _, row_size = _ROW.unpack_from(row)
        first = int.from_bytes(key[8:], "big")
        last = first + count - 1
        size += row_size
        if first <= settled_seq or not settled.isdisjoint(range(first, last + 1)):
            entries: list[StoredEntry] = []
            _read_row(view, first, row, first - 1, entries)
            for entry in entries:
                if entry.sequence <= settled_seq or entry.sequence in settled:
                    size -= entry.message.size()
    return last, size
