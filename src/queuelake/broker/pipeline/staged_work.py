"""What is done with stages a slice at a time: moving messages which are to be seen later to where
their queue looks for them, deleting what came to nothing, forgetting batches.

All go by what the store says, so that they can be interrupted anywhere: a slice which was not
stored is done again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from queuelake.broker.queues.registry import Queues
from queuelake.broker.runner import Runner
from queuelake.flight import UNNAMED_JOB
from queuelake.storage import api
from queuelake.storage import queue_tables as t
from queuelake.storage.chunk import Record, decode_chunk
from queuelake.storage.delayed import Delayed, put_delayed
from queuelake.storage.stage_records import (
    LAST_BATCH,
    Delays,
    as_batch,
    decode_delays,
    delays_key,
    encode,
)
from queuelake.storage.stage_tables import OPEN, first_chunk, stage_key, stage_keys

ROWS_PER_SLICE: Final = 200
RECORDS_PER_ROW: Final = 2  # as long as it takes to look at so many
RECORDS_PER_MOVE: Final = 4


def discard(queues: Queues, stage: int) -> Iterator[int]:
    """Delete a stage to which nothing points, which its mark says; the mark goes last."""
    runner = queues.runner
    while True:
        with queues.store.view() as view:
            if view.get(api.STAGED, stage_key(stage) + OPEN) is None:
                return
            keys = stage_keys(view, stage, ROWS_PER_SLICE)
        for key in keys:
            runner.delete(api.STAGED, key)
        yield RECORDS_PER_ROW * len(keys)
        yield from _wait(runner)


def forget_unnamed(queues: Queues, before_ms: int) -> Iterator[int]:
    """Batches of writes without a job id: what is so old is not asked for again."""
    runner = queues.runner
    begin = b""
    while True:
        with queues.store.view() as view:
            rows = list(islice(view.scan(api.BATCHES, begin, LAST_BATCH), ROWS_PER_SLICE))
        for key, value in rows:
            known = as_batch(key, value)
            if known is not None and known.job.startswith(UNNAMED_JOB):
                if known.committed_ms < before_ms:
                    runner.delete(api.BATCHES, key)
            begin = key + b"\0"
        if len(rows) < ROWS_PER_SLICE:
            return
        yield RECORDS_PER_ROW * len(rows)


def move_delayed(queues: Queues, stage: int) -> Iterator[int]:
    """A chunk with each commit, until none is left; or the queue does not want them any more."""
    runner = queues.runner
    while True:
        # A purge which is on its way to the store counts already.
        while _is_changing(runner, delays_key(stage)):
            yield 0
        with queues.store.view() as view:
            value = view.get(api.BATCHES, delays_key(stage))
            if value is None:
                break  # the queue was purged
            delays = decode_delays(value)
            keys, chunk = first_chunk(view, stage)
            is_wanted = view.get(api.QUEUES, t.queue_key(delays.queue_id)) is not None
        if not keys or not is_wanted:
            runner.delete(api.BATCHES, delays_key(stage))
            if keys:
                runner.put(api.STAGED, stage_key(stage) + OPEN, b"")
            yield from _wait(runner)
            break
        records = decode_chunk(chunk)
        _move(queues, stage, delays, records, keys)
        runner.group.bytes += len(chunk)
        yield RECORDS_PER_MOVE * len(records)
        yield from _wait(runner)
    yield from discard(queues, stage)


def _move(
    queues: Queues, stage: int, delays: Delays, records: list[Record], keys: list[bytes]
) -> None:
    batch = queues.runner.group.batch
    partition = records[0].seq
    for record in records:
        due_ms = delays.ts_ms + record.ts_ms
        record.expires_ms = delays.ts_ms + record.expires_ms if record.expires_ms else 0
        record.ts_ms = delays.ts_ms
        delayed = Delayed(due_ms, queues.new_number(), partition, record)
        put_delayed(batch, delays.queue_id, delayed)
    for key in keys:
        batch.delete(api.STAGED, key)
    left = Delays(delays.queue_id, delays.ts_ms, delays.left - len(records))
    queues.runner.put(api.BATCHES, delays_key(stage), encode(left))


def _is_changing(runner: Runner, key: bytes) -> bool:
    return key in runner.group.batch.tables[api.BATCHES] or key in runner.committing(api.BATCHES)


def _wait(runner: Runner) -> Iterator[int]:
    """Until what was collected so far is stored, or was given up."""
    number = runner.number
    while runner.durable < number:
        yield 0
