"""A batch as bytes: what a node of a cluster sends, so that others apply the same rows.

One byte with the version, then MessagePack. Everything a commit looks at is in it; `replaced`,
which a commit finds out, is not. The same batch gives the same bytes in every process: sets are
sorted, dicts keep the order in which they were filled.
"""

from __future__ import annotations

from typing import Final

import msgspec

from queuelake.errors import StorageError
from queuelake.storage.api import TABLE_NAMES, Batch

VERSION: Final = b"\x01"


class BadBatchError(StorageError):
    """These bytes are no batch this version can apply: another version wrote them, or they are
    damaged."""


def encode_batch(batch: Batch) -> bytes:
    tables = {number: rows for number, rows in enumerate(batch.tables) if rows}
    changes = _Changes(
        tables,
        batch.trims,
        sorted(batch.chunk_deletes),
        batch.chunk_trims,
        batch.sweep_rows,
        sorted(batch.replaces),
    )
    encoded = bytearray(VERSION)
    _ENCODER.encode_into(changes, encoded, len(encoded))
    return bytes(encoded)


def decode_batch(data: bytes) -> Batch:
    """Raises BadBatchError."""
    if data[:1] != VERSION:
        raise BadBatchError(
            f"batch of version {data[:1].hex() or 'none'}, known is {VERSION.hex()}"
        )
    try:
        changes = _DECODER.decode(memoryview(data)[1:])
    except msgspec.DecodeError as error:
        raise BadBatchError(f"batch of {len(data)} bytes cannot be read: {error}") from None
    batch = Batch()
    for number, rows in changes.tables.items():
        if not 0 <= number < len(TABLE_NAMES):
            raise BadBatchError(f"batch has rows of table {number}, known are {len(TABLE_NAMES)}")
        batch.tables[number] = rows
    batch.trims = changes.trims
    batch.chunk_deletes = set(changes.chunk_deletes)
    batch.chunk_trims = changes.chunk_trims
    batch.sweep_rows = changes.sweep_rows
    batch.replaces = set(changes.replaces)
    return batch


class _Changes(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    tables: dict[int, dict[bytes, bytes | None]]
    trims: dict[int, int]
    chunk_deletes: list[bytes]
    chunk_trims: dict[bytes, int]
    sweep_rows: int
    replaces: list[bytes]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Changes)
