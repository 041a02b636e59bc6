"""What the export and admin processes may ask about the archive, leases and jobs: the operations of
control_pipeline.py, but for staged batches.

An operation which changes something answers when the change is durable.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from queuelake import control_pipeline as ops
from queuelake import names
from queuelake.broker.operation import Operation
from queuelake.broker.pipeline.archive import Archive
from queuelake.broker.pipeline.holding import Holding
from queuelake.broker.pipeline.jobs import Jobs
from queuelake.broker.pipeline.lease import Leases
from queuelake.control_pipeline import ArchivedQueue, ArchiveFigures, ArchiveLag, QueueFlags
from queuelake.control_queues import OTHER
from queuelake.errors import RefusedError
from queuelake.flight import ArchivedTold, JobAnswer, JobTold, Lease, LeaseAsked
from queuelake.storage import queue_tables as t
from queuelake.storage.api import Store

T = TypeVar("T", bound=msgspec.Struct)


class PipelineOperations:
    """Each method answers one named request; `durable` waits for the commit."""

    def __init__(
        self,
        store: Store,
        archive: Archive,
        leases: Leases,
        jobs: Jobs,
        durable: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._archive = archive
        self._leases = leases
        self._jobs = jobs
        self._durable = durable

    def table(self) -> dict[str, Operation]:
        return {
            ops.QUEUE_FLAGS: self.queue_flags,
            ops.LAKE_ARCHIVED: self.archived,
            ops.LAKE_LEASE: self.lease,
            ops.LAKE_RELEASE: self.release,
            ops.JOB_START: self.start_job,
            ops.JOB_TOLD: self.job_told,
            ops.JOBS: self.jobs,
            ops.JOB: self.job,
            ops.JOB_CANCEL: self.cancel_job,
            ops.ARCHIVE_LAG: self.archive_lag,
        }

    def queue_flags(self, _: dict[str, object]) -> list[QueueFlags]:
        return list(self._archive.flags.values())

    # The lake

    async def archived(self, args: dict[str, object]) -> None:
        self._archive.told(_read(args, ArchivedTold))
        await self._durable()

    async def lease(self, args: dict[str, object]) -> Lease:
        lease = self._leases.ask(_read(args, LeaseAsked))
        await self._durable()
        return lease

    async def release(self, args: dict[str, object]) -> None:
        self._leases.release(_read(args, Lease))
        await self._durable()

    # Jobs

    async def start_job(self, args: dict[str, object]) -> JobTold:
        told = _read(args, JobTold)
        self._jobs.start(told)
        await self._durable()
        return self._jobs.get(told.id)

    async def job_told(self, args: dict[str, object]) -> JobAnswer:
        told = _read(args, JobTold)
        answer = self._jobs.tell(told)
        if told.state != "running":
            await self._durable()
        return answer

    def jobs(self, args: dict[str, object]) -> ops.JobPage:
        limit = args.get("limit", 100)
        if not isinstance(limit, int) or not 1 <= limit <= ops.JOBS_PER_PAGE_MAX:
            raise RefusedError(f"limit is {limit!r}, may be 1 to {ops.JOBS_PER_PAGE_MAX}")
        return self._jobs.page(limit, str(args.get("cursor") or ""))

    def job(self, args: dict[str, object]) -> JobTold:
        return self._jobs.get(str(args.get("id", "")))

    async def cancel_job(self, args: dict[str, object]) -> JobTold:
        job = self._jobs.cancel(str(args.get("id", "")))
        await self._durable()
        return job

    # Lag

    async def archive_lag(self, _: dict[str, object]) -> ArchiveLag:
        archive = self._archive
        found = [
            (holding, self._queue(holding, holding.upto())) for holding in self._furthest_behind()
        ]
        oldest = await asyncio.to_thread(self._oldest, [queue for _, queue in found])
        return ArchiveLag(
            [
                msgspec.structs.replace(queue, oldest_ms=oldest_ms)
                for (_, queue), oldest_ms in zip(found, oldest, strict=True)
            ],
            archive.held_bytes,
            archive.settings.archive_hold_bytes_max,
            archive.settings.hold,
            archive.alarm(),
            archive.told_ms,
        )

    def _furthest_behind(self) -> list[Holding]:
        promised = [one for one in self._archive.holdings.values() if one.promises]
        return heapq.nlargest(ops.ARCHIVED_QUEUES_MAX, promised, key=lambda one: one.lag())

    def _queue(self, holding: Holding, upto: list[int]) -> ArchivedQueue:
        return ArchivedQueue(
            names.address(holding.name),
            self._archive.queue_id(holding.queue_id),
            upto,
            [shard.mark for shard in holding.shards],
            holding.lag(),
            holding.bytes(),
            sum([shard.lost_count() for shard in holding.shards]),
        )

    def _oldest(self, queues: list[ArchivedQueue]) -> list[int | None]:
        """When the first message came which the lake does not have; in a thread."""
        found: list[int | None] = []
        for queue in queues:
            number = int(queue.queue_id.rpartition("-")[2])
            times: list[int] = []
            for shard, mark in enumerate(queue.archived):
                if shard < len(queue.upto) and queue.upto[shard] > mark:
                    with self._store.view() as view:
                        records = t.read_chunk_at(view, number, shard, mark + 1)
                    times += [record.ts_ms for record in records if record.seq > mark][:1]
            found.append(min(times, default=None))
        return found

    def figures(self, queues_max: int) -> ArchiveFigures:
        archive = self._archive
        promised = [one for one in archive.holdings.values() if one.promises]
        lags = [(one.lag(), names.address(one.name)) for one in promised]
        named = heapq.nlargest(queues_max, lags)
        behind = {name: lag for lag, name in named}
        if len(lags) > len(named):
            behind[OTHER] = sum([lag for lag, _ in lags]) - sum(behind.values())
        return ArchiveFigures(
            archive.held_bytes,
            archive.settings.archive_hold_bytes_max,
            archive.alarm(),
            archive.lost,
            behind,
            archive.told_ms / 1000,
            self._jobs.count(),
        )


def _read(args: dict[str, object], kind: type[T]) -> T:
    try:
        return msgspec.convert(args, kind)
    except msgspec.ValidationError as error:
        raise RefusedError(f"this is no {kind.__name__}: {error}") from None
