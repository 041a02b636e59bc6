"""How quorum queues are laid out in the store, beside what they share with all queues.

Payloads are chunks of partition 0, what is gone is bits in SETTLED, as in `queue_tables`. To wake a
queue no payload is read: beside each chunk is a row with what the machine knows of its messages.

    QUORUM  queue, HEAD                   -> Head: of the queue itself
            queue, HEADERS, first sequence -> Headers: of the messages of one chunk
            queue, NOTE, sequence         -> Note: of a message which was not just enqueued

A message without a note is ready, or was handed out once when `Head.marks` says so.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import Final

import msgspec

from queuelake.storage.api import QUORUM, ReadTransaction
from queuelake.storage.chunk import Record

HEAD: Final = 0
HEADERS: Final = 1
NOTE: Final = 2

_HEAD_KEY: Final = struct.Struct(">QB")
_ROW_KEY: Final = struct.Struct(">QBQ")


class Head(msgspec.Struct, array_like=True):
    """`marks`: of each priority, the last sequence which was handed out of its line."""

    marks: dict[int, int]
    last_active_ms: int
    rejecting: bool
    moves: int  # how many notes were written so far


class Headers(msgspec.Struct, array_like=True):
    """Columns; one of a single value says that it is the same for all."""

    count: int
    sizes: list[int]
    priorities: list[int]
    expires_ms: list[int]


class Note(msgspec.Struct, array_like=True, omit_defaults=True):
    """`move`: its number among all notes, by which lines are in order again."""

    place: int
    move: int
    acquired: int
    failures: int
    due_ms: int = 0
    token: str = ""
    annotations: dict[str, str] | None = None


encode = msgspec.msgpack.encode
decode_head = msgspec.msgpack.Decoder(Head).decode
decode_headers = msgspec.msgpack.Decoder(Headers).decode
decode_note = msgspec.msgpack.Decoder(Note).decode


def head_key(queue_id: int) -> bytes:
    return _HEAD_KEY.pack(queue_id, HEAD)


def headers_key(queue_id: int, first: int) -> bytes:
    return _ROW_KEY.pack(queue_id, HEADERS, first)


def note_key(queue_id: int, seq: int) -> bytes:
    return _ROW_KEY.pack(queue_id, NOTE, seq)


def headers_of(records: list[Record]) -> bytes:
    headers = Headers(
        len(records),
        _column([record.size() for record in records]),
        _column([record.priority for record in records]),
        _column([record.expires_ms for record in records]),
    )
    return encode(headers)


def read_headers(
    view: ReadTransaction, queue_id: int, start: int, count: int
) -> list[tuple[int, Headers]]:
    """First sequence and headers of the next so many chunks from a sequence on, in order."""
    first, stop = headers_key(queue_id, start), _HEAD_KEY.pack(queue_id, HEADERS + 1)
    rows = islice(view.scan(QUORUM, first, stop), count)
    return [(int.from_bytes(key[9:], "big"), decode_headers(value)) for key, value in rows]


def read_notes(view: ReadTransaction, queue_id: int) -> dict[int, Note]:
    """By sequence."""
    start, stop = note_key(queue_id, 0), _HEAD_KEY.pack(queue_id, NOTE + 1)
    return {
        int.from_bytes(key[9:], "big"): decode_note(value)
        for key, value in view.scan(QUORUM, start, stop)
    }


def read_head(view: ReadTransaction, queue_id: int) -> Head:
    value = view.get(QUORUM, head_key(queue_id))
    return decode_head(value) if value is not None else Head({}, 0, False, 0)


def check_row(key: bytes, value: bytes) -> None:
    """Raises what a value raises which cannot be read."""
    kind = key[8]
    if kind == HEAD:
        decode_head(value)
    elif kind == HEADERS:
        decode_headers(value)
    else:
        decode_note(value)


def _column(values: list[int]) -> list[int]:
    return values[:1] if values.count(values[0]) == len(values) else values
