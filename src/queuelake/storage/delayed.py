"""Messages which nobody may see before they are due, in the order in which they become due.

DELAYED     queue, due, number, piece -> partition, chunk of one record
"""

from __future__ import annotations

import struct
from typing import Final, final

from queuelake.storage.api import DELAYED, SEQUENCE_MAX, Batch, ReadTransaction, Store
from queuelake.storage.chunk import Record, decode_chunk, encode_chunk
from queuelake.storage.queue_tables import KEY_BYTES_MAX, PIECE_BYTES, queue_key

_PREFIX: Final = struct.Struct(">QQQ")
_PREFIX_BYTES: Final = 24  # the piece follows


@final
class Delayed:
    """A message which nobody may see before it is due. `number` tells those of one moment apart."""

    __slots__ = ("due_ms", "number", "partition", "pieces", "record")

    def __init__(
        self, due_ms: int, number: int, partition: int, record: Record, pieces: int = 1
    ) -> None:
        self.due_ms: int = due_ms
        self.number: int = number
        self.partition: int = partition
        self.record: Record = record
        self.pieces: int = pieces  # rows it has in the store


def put_delayed(batch: Batch, queue_id: int, delayed: Delayed) -> None:
    value = delayed.partition.to_bytes(2, "little") + encode_chunk(0, [delayed.record])
    prefix = _delayed_prefix(queue_id, delayed.due_ms, delayed.number)
    delayed.pieces = 0
    for at in range(0, len(value), PIECE_BYTES):
        key = prefix + delayed.pieces.to_bytes(2, "big")
        batch.put(DELAYED, key, value[at : at + PIECE_BYTES])
        delayed.pieces += 1


def delete_delayed(batch: Batch, queue_id: int, delayed: Delayed) -> None:
    prefix = _delayed_prefix(queue_id, delayed.due_ms, delayed.number)
    for piece in range(delayed.pieces):
        batch.delete(DELAYED, prefix + piece.to_bytes(2, "big"))


def read_delayed(
    view: ReadTransaction, queue_id: int, due_ms_max: int, count_max: int
) -> list[Delayed]:
    """What is due at `due_ms_max`, the longest overdue first."""
    found: list[Delayed] = []
    pieces: list[bytes] = []
    prefix = b""
    stop = _delayed_prefix(queue_id, due_ms_max, SEQUENCE_MAX) + b"\xff" * 3
    for key, value in view.scan(DELAYED, queue_key(queue_id), stop):
        if pieces and key[:_PREFIX_BYTES] != prefix:
            found.append(_delayed(prefix, pieces))
            pieces = []
            if len(found) == count_max:
                break
        prefix = key[:_PREFIX_BYTES]
        pieces.append(value)
    if pieces:
        found.append(_delayed(prefix, pieces))
    return found


def next_due_ms(view: ReadTransaction, queue_id: int) -> int:
    """When the first delayed message of a queue is due; 0: there is none."""
    prefix = queue_key(queue_id)
    for key in view.scan_keys(DELAYED, prefix, prefix + b"\xff" * KEY_BYTES_MAX):
        return int.from_bytes(key[8:16], "big")
    return 0


def delayed_queues(store: Store) -> list[int]:
    """Ids of all queues which have such messages; each view is short."""
    found: list[int] = []
    at = b""
    while True:
        with store.view() as view:
            key = next(view.scan_keys(DELAYED, at, b"\xff" * KEY_BYTES_MAX), None)
        if key is None:
            return found
        queue_id = int.from_bytes(key[:8], "big")
        found.append(queue_id)
        at = queue_key(queue_id + 1)


def due_and_number(key: bytes) -> tuple[int, int]:
    """Of the delayed message with this key."""
    _, due_ms, number = _PREFIX.unpack(key[:_PREFIX_BYTES])
    return due_ms, number


def _delayed_prefix(queue_id: int, due_ms: int, number: int) -> bytes:
    return _PREFIX.pack(queue_id, due_ms, number)


def _delayed(prefix: bytes, pieces: list[bytes]) -> Delayed:
    value = b"".join(pieces)
    due_ms, number = due_and_number(prefix)
    (record,) = decode_chunk(value[2:])
    return Delayed(due_ms, number, int.from_bytes(value[:2], "little"), record, len(pieces))
