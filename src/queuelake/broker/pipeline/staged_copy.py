"""Prepared chunks on their way into the store, where nobody sees them yet.

A slice goes into each commit, and the next one is read while the one before it is stored: others
who publish share these commits, and wait for a slice at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Final, final

from queuelake.broker.operation import stored
from queuelake.broker.queues.extending import StagedChunk
from queuelake.broker.runner import Runner
from queuelake.engine import commands as c
from queuelake.storage import api
from queuelake.storage.prepared import (
    HAS_PRIORITIES,
    IS_DELAYED,
    Prepared,
    PreparedReader,
    numbers,
)
from queuelake.storage.stage_tables import OPEN, stage_key, staged_rows

SLICE_BYTES: Final = 1024 * 1024


@final
class Plan:
    """Which chunks there are, and what the queue is asked for. Chunks which are to be seen later
    are in a stage of their own."""

    def __init__(self, summary: Prepared, stage: int, later_stage: int) -> None:
        partitions = numbers("H", summary.chunk_partitions)
        counts = numbers("I", summary.chunk_counts)
        self._sizes = numbers("I", summary.chunk_sizes)
        self._flags = summary.chunk_flags
        self.stage = stage
        self.later_stage = later_stage
        self.chunks: list[StagedChunk] = []
        added = [0] * summary.partitions
        delayed = 0
        for number, size in enumerate(self._sizes):
            flags = self._flags[number]
            if flags & IS_DELAYED:
                delayed += counts[number]
                continue
            added[partitions[number]] += counts[number]
            self.chunks.append(
                StagedChunk(
                    number,
                    partitions[number],
                    counts[number],
                    size,
                    flags & HAS_PRIORITIES != 0,
                )
            )
        has_priorities = any([chunk.has_priorities for chunk in self.chunks])
        self.command = c.Extend(added, summary.largest, summary.size, delayed, has_priorities)

    def stages(self) -> list[int]:
        return [self.stage, self.later_stage] if self.command.delayed else [self.stage]

    def slices(self) -> Iterator[list[tuple[int, int, int]]]:
        """Stage, number and bytes of the chunks which are copied together."""
        part: list[tuple[int, int, int]] = []
        total = 0
        for number, size in enumerate(self._sizes):
            if part and total + size > SLICE_BYTES:
                yield part
                part, total = [], 0
            is_delayed = self._flags[number] & IS_DELAYED
            part.append((self.later_stage if is_delayed else self.stage, number, size))
            total += size
        if part:
            yield part


async def copy(plan: Plan, prepared: PreparedReader, runner: Runner, threads: Executor) -> None:
    """All chunks into the store.

    Raises:
        StorageError: not all of them are there.
    """
    loop = asyncio.get_running_loop()
    before: asyncio.Future[None] | None = None
    for part in plan.slices():
        size = sum([one[2] for one in part])
        value = await loop.run_in_executor(threads, prepared.read, size)
        if before is not None:
            await before
        batch = runner.group.batch
        for stage in plan.stages():  # the last commit takes the marks away
            batch.put(api.STAGED, stage_key(stage) + OPEN, b"")
        rows = batch.tables[api.STAGED]
        at = 0
        for stage, number, length in part:
            rows.update(staged_rows(stage, number, value[at : at + length]))
            at += length
        runner.group.bytes += size
        before = stored(runner)
    if before is not None:
        await before
