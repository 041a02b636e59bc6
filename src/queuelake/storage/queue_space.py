"""How the space of queues is freed, as part of the commit which asks for it.

Chunks are deleted one by one, or trimmed from the old end of a partition; with a pointer goes what
it points to. A dropped queue is marked and swept a slice at a time. Each step does a limited amount
of work in one commit, because everybody waits for a commit.
"""

from __future__ import annotations

from itertools import islice

from queuelake.storage.api import CHUNKS, DOOMED, STAGED, Batch, WriteTransaction
from queuelake.storage.chunk import chunk_range
from queuelake.storage.queue_tables import (
    CHUNK_PREFIX,
    KEY_BYTES_MAX,
    TABLES,
    TRIM_CHUNKS_MAX,
    doomed_queues,
    first_of,
    queue_key,
    read_piece,
)
from queuelake.storage.stage_tables import free_staged, is_first_piece, is_pointer, read_pointer


def delete_chunks(transaction: WriteTransaction, prefixes: set[bytes]) -> None:
    """Delete all pieces of these chunks."""
    if not prefixes:
        return
    points = transaction.count(STAGED) > 0
    for prefix in prefixes:
        if points:
            _free_pointed(transaction, prefix + b"\0\0")
        piece = 0
        while transaction.delete(CHUNKS, prefix + piece.to_bytes(2, "big")):
            piece += 1


def _free_pointed(transaction: WriteTransaction, key: bytes) -> int:
    """Delete what a row of CHUNKS points to, if it does; returns how many rows it were."""
    value = transaction.get(CHUNKS, key)
    if value is None or not is_pointer(value) or not is_first_piece(key):
        return 0
    return free_staged(transaction, read_pointer(value))


def free_space(transaction: WriteTransaction, batch: Batch) -> None:
    """What a batch asks for when everything it puts is there."""
    for prefix, upto in batch.chunk_trims.items():
        _trim(transaction, prefix, upto)
    if batch.sweep_rows > 0:
        _sweep(transaction, batch.sweep_rows)


def _trim(transaction: WriteTransaction, prefix: bytes, upto: int) -> None:
    """Delete the oldest chunks of a partition which end at or below `upto`.

    A chunk ends before the next one begins, so only the last one has to be read.
    """
    chunks: set[bytes] = set()
    last = b""
    for key in transaction.scan_keys(CHUNKS, prefix, prefix + b"\xff" * KEY_BYTES_MAX):
        if key[:CHUNK_PREFIX] == last:
            continue
        if last:
            if first_of(key) > upto + 1:
                break
            chunks.add(last)
        if len(chunks) == TRIM_CHUNKS_MAX or first_of(key) > upto:
            last = b""
            break
        last = key[:CHUNK_PREFIX]
    if last and chunk_range(read_piece(transaction, last, 0))[1] <= upto:
        chunks.add(last)
    delete_chunks(transaction, chunks)


def _sweep(transaction: WriteTransaction, rows_max: int) -> None:
    left = rows_max
    points = transaction.count(STAGED) > 0
    for queue_id in doomed_queues(transaction):
        prefix = queue_key(queue_id)
        for table in TABLES:
            keys = transaction.scan_keys(table, prefix, prefix + b"\xff" * KEY_BYTES_MAX)
            for key in list(islice(keys, max(0, left))):
                if points and table == CHUNKS:
                    left -= _free_pointed(transaction, key)
                transaction.delete(table, key)
                left -= 1
        if left <= 0:
            return  # its mark stays: there may be more
        transaction.delete(DOOMED, prefix)
