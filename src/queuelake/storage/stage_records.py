"""What is known of a batch which was committed.

BATCHES    hash of a job, batch    -> BatchRecord
"""

from __future__ import annotations

import hashlib

import msgspec

JOB_DIGEST_BYTES = 16


class Delays(msgspec.Struct, array_like=True):
    """Messages of a batch which are to be seen later, and are still where they were staged: chunks
    `next` up to `end`, whose times are delays."""

    queue_id: int
    stage: int
    next: int
    sizes: list[int]  # of the chunks from `next` on
    partitions: list[int]
    counts: list[int]
    ts_ms: int  # when the delays began


class BatchRecord(msgspec.Struct, array_like=True):
    job: str
    batch: int
    rows: int
    committed_ms: int
    delays: Delays | None = None


encode = msgspec.msgpack.encode
decode_batch = msgspec.msgpack.Decoder(BatchRecord).decode


def job_key(job: str) -> bytes:
    return hashlib.blake2b(job.encode(), digest_size=JOB_DIGEST_BYTES).digest()


def batch_key(job: str, batch: int) -> bytes:
    return job_key(job) + batch.to_bytes(8, "big")
