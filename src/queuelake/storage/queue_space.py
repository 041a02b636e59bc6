"""How the space of queues is freed, as part of the commit which asks for it.

Chunks are deleted one by one, trimmed from the old end of a partition, and merged: LMDB gives a
value whole pages, so a backlog which came a few messages at a time takes up to twice its size until
its chunks are joined. A dropped queue is marked and swept a slice at a time. Each step does a
limited amount of work in one commit, because everybody waits for a commit.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from queuelake.storage.api import CHUNKS, DOOMED, Batch, WriteTransaction
from queuelake.storage.chunk import Record, chunk_range, decode_chunk
from queuelake.storage.queue_tables import (
    CHUNK_PREFIX,
    KEY_BYTES_MAX,
    PIECE_BYTES,
    TABLES,
    TRIM_CHUNKS_MAX,
    chunk_rows,
    doomed_queues,
    first_of,
    queue_key,
    read_piece,
)

MERGE_BYTES_MAX: Final = 1024 * 1024  # for each partition and commit
_FULL_BYTES: Final = PIECE_BYTES * 7 // 8  # a chunk of this size is left as it is


def delete_chunks(transaction: WriteTransaction, prefixes: set[bytes]) -> None:
    """Delete all pieces of these chunks."""
    for prefix in prefixes:
        piece = 0
        while transaction.delete(CHUNKS, prefix + piece.to_bytes(2, "big")):
            piece += 1


def free_space(transaction: WriteTransaction, batch: Batch) -> None:
    """What a batch asks for when everything it puts is there."""
    for prefix, upto in batch.chunk_trims.items():
        _trim(transaction, prefix, upto)
    for prefix, (first, last) in batch.chunk_merges.items():
        _merge(transaction, prefix, first, last)
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


def _merge(transaction: WriteTransaction, prefix: bytes, first: int, last: int) -> None:
    assert 0 < first <= last
    start = prefix + first.to_bytes(8, "big")
    # The merge before this one ended with a chunk which may have been small.
    below = transaction.last_below(CHUNKS, prefix + (first - 1).to_bytes(8, "big") + b"\xff" * 2)
    if below is not None and below[0].startswith(prefix):
        start = below[0][:CHUNK_PREFIX]
    stop = prefix + last.to_bytes(8, "big") + b"\xff" * 3
    runs: list[list[bytes]] = []  # chunks without a gap between them, none of them full
    size = 0
    after = 0  # where a chunk must begin to belong to the run before it
    for key, value in transaction.scan(CHUNKS, start, stop):
        size += len(value)
        if size > MERGE_BYTES_MAX:
            break
        if len(value) >= _FULL_BYTES or key[CHUNK_PREFIX:] != b"\0\0":
            after = 0
            continue
        if first_of(key) != after:
            runs.append([])
        runs[-1].append(value)
        after = chunk_range(value)[1] + 1
    for run in runs:
        if len(run) > 1:
            _replace(transaction, prefix, run)


def _replace(transaction: WriteTransaction, prefix: bytes, chunks: list[bytes]) -> None:
    records: list[Record] = []
    for value in chunks:
        records += decode_chunk(value)
    for value in chunks:
        first = chunk_range(value)[0]
        transaction.delete(CHUNKS, prefix + first.to_bytes(8, "big") + b"\0\0")
    for key, value in chunk_rows(prefix, records[0].seq, records):
        transaction.put(CHUNKS, key, value)


def _sweep(transaction: WriteTransaction, rows_max: int) -> None:
    left = rows_max
    for queue_id in doomed_queues(transaction):
        prefix = queue_key(queue_id)
        for table in TABLES:
            keys = transaction.scan_keys(table, prefix, prefix + b"\xff" * KEY_BYTES_MAX)
            for key in list(islice(keys, left)):
                transaction.delete(table, key)
                left -= 1
        if left == 0:
            return  # its mark stays: there may be more
        transaction.delete(DOOMED, prefix)
