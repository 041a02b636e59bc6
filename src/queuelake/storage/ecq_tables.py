"""Rows of device mailboxes; owners and keys may be long, so they are found by their digests.

ECQ_SEQNO    owner -> no sequence from here on was given, when it was written to, the owner's name
ECQ_STATE    owner -> acknowledged sequence, when that was, the owner's name
ECQ_INDEX    owner, sequence -> when written, until when, bytes of the entry, key
ECQ_PAYLOAD  owner, key, sequence, when written -> until when, properties, payload

Sequences are claimed ahead in ECQ_SEQNO, so that most writes leave it alone: the last one which was
given is that of the newest entry, or when there is none the one before that in ECQ_SEQNO.

There is one entry of a key. Older ones go in the commit which brings the newer one, by a look at
the store from within (`Batch.replaces` and `replace_entries`): nobody has to read it before.
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache
from typing import Final, final

from mypy_extensions import mypyc_attr

from queuelake.storage.api import (
    ECQ_INDEX,
    ECQ_PAYLOAD,
    ECQ_SEQNO,
    ECQ_STATE,
    SEQUENCE_MAX,
    Batch,
    ReadTransaction,
    WriteTransaction,
)
from queuelake.storage.chunk import Record

DIGEST_BYTES: Final = 16
HIGH_WATER: Final = b"ecq_next"  # in META: no owner whose rows were dropped came this far

_STATE: Final = struct.Struct(">QQ")
_PLACE: Final = struct.Struct(">QQ")
_INDEX: Final = struct.Struct(">QQI")
_PAYLOAD: Final = struct.Struct(">QI")
_ENTRY: Final = struct.Struct(">QQQIQI")  # the numbers of all three, by one call
_CACHED_KEY_BYTES_MAX: Final = 64


@final
@mypyc_attr(acyclic=True)
class IndexRow:
    """One entry, without what it says. `expires_ms` 0: only when it is too old."""

    __slots__ = ("expires_ms", "key", "seq", "size", "ts_ms")

    def __init__(self, seq: int, ts_ms: int, expires_ms: int, size: int, key: bytes) -> None:
        self.seq: int = seq
        self.ts_ms: int = ts_ms
        self.expires_ms: int = expires_ms
        self.size: int = size
        self.key: bytes = key

    def is_over(self, oldest_ms: int, now_ms: int) -> bool:
        """Whether nobody may get it any more."""
        return self.ts_ms < oldest_ms or (self.expires_ms != 0 and self.expires_ms <= now_ms)


def digest(name: bytes) -> bytes:
    return hashlib.blake2b(name, digest_size=DIGEST_BYTES).digest()


def key_digest(key: bytes) -> bytes:
    """Owners mostly have the same keys, so those are asked for over and over."""
    return _cached_digest(key) if len(key) <= _CACHED_KEY_BYTES_MAX else digest(key)


@lru_cache(maxsize=4096)
def _cached_digest(key: bytes) -> bytes:
    return digest(key)


def entry_size(key: bytes, record: Record) -> int:
    """What an entry counts against the limit of its owner."""
    return len(key) + len(record.properties) + len(record.payload)


def put_entry(batch: Batch, prefix: bytes, record: Record) -> bytes:
    """Write an entry, which replaces those of the same key; `prefix` is the digests of owner and
    key. Returns the key of its payload."""
    properties, expires_ms = record.properties, record.expires_ms
    size = entry_size(record.key, record)
    numbers = _ENTRY.pack(record.seq, record.ts_ms, expires_ms, size, expires_ms, len(properties))
    tables = batch.tables  # each call of a method would be interpreted
    batch.replaces.add(prefix)
    tables[ECQ_INDEX][prefix[:DIGEST_BYTES] + numbers[:8]] = numbers[8:28] + record.key
    key = prefix + numbers[:16]
    tables[ECQ_PAYLOAD][key] = numbers[28:] + properties + record.payload
    return key


def delete_entry(batch: Batch, owner: bytes, row: IndexRow) -> None:
    place = _PLACE.pack(row.seq, row.ts_ms)
    batch.delete(ECQ_INDEX, owner + place[:8])
    batch.delete(ECQ_PAYLOAD, owner + key_digest(row.key) + place)


def replace_entries(transaction: WriteTransaction, batch: Batch) -> None:
    """Delete the entries of keys which this batch writes anew, before it does."""
    former = transaction.delete_below(ECQ_PAYLOAD, sorted(batch.replaces))
    for key in former:
        transaction.delete(ECQ_INDEX, key[:DIGEST_BYTES] + key[32:40])
    batch.replaced = len(former)


def put_seqno(batch: Batch, owner: bytes, next_seq: int, ts_ms: int, name: bytes) -> None:
    batch.put(ECQ_SEQNO, owner, _STATE.pack(next_seq, ts_ms) + name)


def put_state(batch: Batch, owner: bytes, acked: int, ts_ms: int, name: bytes) -> None:
    batch.put(ECQ_STATE, owner, _STATE.pack(acked, ts_ms) + name)


def read_numbers(value: bytes) -> tuple[int, int, bytes]:
    """A row of ECQ_SEQNO or ECQ_STATE: the sequence, the time, the owner's name."""
    seq, ts_ms = _STATE.unpack_from(value)
    return seq, ts_ms, value[16:]


def read_index_row(key: bytes, value: bytes) -> IndexRow:
    ts_ms, expires_ms, size = _INDEX.unpack_from(value)
    return IndexRow(int.from_bytes(key[DIGEST_BYTES:], "big"), ts_ms, expires_ms, size, value[20:])


def read_index(view: ReadTransaction, owner: bytes, after: int, rows_max: int) -> list[IndexRow]:
    """The rows of an owner above a sequence, in order."""
    rows: list[IndexRow] = []
    for key, value in view.scan(ECQ_INDEX, index_key(owner, after + 1), index_end(owner)):
        rows.append(read_index_row(key, value))
        if len(rows) == rows_max:
            break
    return rows


def last_row(view: ReadTransaction, owner: bytes) -> IndexRow | None:
    found = view.last_below(ECQ_INDEX, index_key(owner, SEQUENCE_MAX))
    if found is None or found[0][:DIGEST_BYTES] != owner:
        return None
    return read_index_row(*found)


def last_written(view: ReadTransaction, owner: bytes, numbers: bytes) -> tuple[int, int]:
    """The last sequence an owner was given, and when; `numbers` is its row of ECQ_SEQNO."""
    row = last_row(view, owner)
    if row is not None:
        return row.seq, row.ts_ms
    next_seq, ts_ms, _ = read_numbers(numbers)
    return next_seq - 1, ts_ms


def index_key(owner: bytes, seq: int) -> bytes:
    return owner + seq.to_bytes(8, "big")


def index_end(owner: bytes) -> bytes:
    return owner + b"\xff" * 9


def payload_key(owner: bytes, row: IndexRow) -> bytes:
    return owner + key_digest(row.key) + _PLACE.pack(row.seq, row.ts_ms)


def read_entry(view: ReadTransaction, owner: bytes, row: IndexRow) -> Record | None:
    """The entry of an index row; None: it is gone."""
    value = view.get(ECQ_PAYLOAD, payload_key(owner, row))
    if value is None:
        return None
    properties, payload, expires_ms = read_payload(value)
    return Record(b"", row.key, b"", b"", properties, payload, 1, 0, row.ts_ms, expires_ms, row.seq)


def read_payload(value: bytes) -> tuple[bytes, bytes, int]:
    """Properties, payload, until when."""
    expires_ms, length = _PAYLOAD.unpack_from(value)
    end = 12 + length
    return value[12:end], value[end:], expires_ms


def check_payload(value: bytes) -> None:
    """Raise when it cannot be one."""
    _, length = _PAYLOAD.unpack_from(value)
    if 12 + length > len(value):
        raise ValueError(f"properties of {length} bytes in a value of {len(value)}")
