"""What is known of batches which were committed.

BATCHES    hash of a job, batch    -> BatchRecord
BATCHES    (zeros), stage          -> Delays
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from queuelake.storage.api import BATCHES, ReadTransaction

JOB_DIGEST_BYTES: Final = 16
_NO_JOB: Final = bytes(JOB_DIGEST_BYTES)
_LAST: Final = b"\xff" * 8
LAST_BATCH: Final = b"\xff" * (JOB_DIGEST_BYTES + 9)  # above every key


class BatchRecord(msgspec.Struct, array_like=True):
    job: str
    batch: int
    rows: int
    committed_ms: int
    target: str = ""  # empty: it is not known


class Delays(msgspec.Struct, array_like=True):
    """Messages of a batch which are to be seen later, and are still where they were staged. They
    have a stage of their own; the times of its chunks are delays, and their first sequence is the
    partition."""

    queue_id: int
    ts_ms: int  # when the delays began
    left: int  # messages


encode = msgspec.msgpack.encode
decode_batch = msgspec.msgpack.Decoder(BatchRecord).decode
decode_delays = msgspec.msgpack.Decoder(Delays).decode


def job_key(job: str) -> bytes:
    return hashlib.blake2b(job.encode(), digest_size=JOB_DIGEST_BYTES).digest()


def batch_key(job: str, batch: int) -> bytes:
    return job_key(job) + batch.to_bytes(8, "big")


def delays_key(stage: int) -> bytes:
    return _NO_JOB + stage.to_bytes(8, "big")


def as_batch(key: bytes, value: bytes) -> BatchRecord | None:
    """None: the row is another one."""
    return None if key.startswith(_NO_JOB) else decode_batch(value)


def check_row(key: bytes, value: bytes) -> None:
    """Raises msgspec.DecodeError when it is no row of BATCHES."""
    if key.startswith(_NO_JOB):
        decode_delays(value)
    else:
        decode_batch(value)


def all_delays(
    view: ReadTransaction, changing: dict[bytes, bytes | None] | None = None
) -> dict[int, Delays]:
    """By stage; there are few, and mostly none. `changing`: rows on their way to the store."""
    rows: dict[bytes, bytes | None] = dict(view.scan(BATCHES, _NO_JOB, _NO_JOB + _LAST + b"\0"))
    for key, value in (changing or {}).items():
        if key.startswith(_NO_JOB):
            rows[key] = value
    return {
        int.from_bytes(key[JOB_DIGEST_BYTES:], "big"): decode_delays(value)
        for key, value in rows.items()
        if value is not None
    }


def delayed_count(view: ReadTransaction, queue_id: int) -> int:
    """How many messages of a queue are to be seen later and are not where it looks for them."""
    return sum([one.left for one in all_delays(view).values() if one.queue_id == queue_id])
