"""Batches of the pipeline become part of queues: all of a batch at once, and once.

The export process has the rows on disk, laid out as chunks (`storage/prepared.py`). They are copied
into the store in many small commits; nobody sees them there. Then one small commit points to them:
it gives the sequences, takes dead letters out of their queue, and says that (job, batch) was
committed. Whatever dies on the way, the caller asks again: the batch is known, or nothing of it is
there. What was copied for nothing is deleted a slice at a time, after a restart too.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, final

import msgspec

from queuelake import control_pipeline as ops
from queuelake import tables
from queuelake.broker.fanout.service import Fanout
from queuelake.broker.message_queues.host import MessageQueueHost
from queuelake.broker.message_queues.service import MessageQueues
from queuelake.broker.operation import Operation, stored
from queuelake.broker.pipeline import passing
from queuelake.broker.pipeline.passing import ChangedError
from queuelake.broker.pipeline.staged_copy import Plan, copy
from queuelake.broker.pipeline.staged_fanout import fan_out
from queuelake.broker.pipeline.staged_targets import StageTargets
from queuelake.broker.pipeline.staged_work import discard, forget_unnamed, move_delayed
from queuelake.broker.queues.extending import extend
from queuelake.broker.queues.host import HostedQueue
from queuelake.broker.queues.upkeep import QueueUpkeep
from queuelake.control_pipeline import BatchAsked, CommitStage, StagePart, StageTarget
from queuelake.errors import RefusedError, StorageError
from queuelake.flight import STAGE_KEPT_S, Committed
from queuelake.settings import Settings
from queuelake.storage import api
from queuelake.storage import stage_records as records
from queuelake.storage.chunk import Record, decode_chunk
from queuelake.storage.prepared import Letters, Prepared, PreparedIds, PreparedReader, numbers
from queuelake.storage.stage_tables import OPEN, open_stages, stage_key

COMMITS_MAX: Final = 4  # at a time
BATCHES_KEPT: Final = 1_000  # of each job, at least
FORGET_EVERY: Final = 100  # commits


@final
class Staging:
    """The operations about staged batches."""

    def __init__(
        self,
        message_queues: MessageQueues,
        fanout: Fanout,
        upkeep: QueueUpkeep,
        settings: Settings,
    ) -> None:
        self._queues = message_queues.queues
        self._runner = self._queues.runner
        self._targets = StageTargets(self._queues, message_queues)
        self._fanout = fanout
        self._upkeep = upkeep
        self._folder = Path(settings.data_dir).expanduser() / "staging"
        self._threads = ThreadPoolExecutor(COMMITS_MAX, "staging")
        self._slots = asyncio.Semaphore(COMMITS_MAX)
        self._running: dict[bytes, asyncio.Event] = {}  # batches, until they are done
        self._commits = 0

    def table(self) -> dict[str, Operation]:
        return {
            ops.STAGE_TARGET: self.target,
            ops.STAGE_LETTERS: self.letters,
            ops.COMMIT_STAGE: self.commit,
            ops.STAGE_PART: self.part,
            ops.BATCH: self.batch,
        }

    def start(self) -> None:
        """Go on where the last run ended."""
        with self._queues.store.view() as view:
            stale = open_stages(view)
            delays = records.all_delays(view)
        for stage in stale:
            self._upkeep.work_on(discard(self._queues, stage))
        for stage, one in delays.items():
            self._targets.wake(one.queue_id)
            self._upkeep.work_on(move_delayed(self._queues, stage))
        self._forget_unnamed()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    # What is asked before

    def target(self, args: dict[str, object]) -> StageTarget:
        return self._targets.describe(str(args.get("target", "")))

    def letters(self, args: dict[str, object]) -> list[Letters]:
        """Of dead letters, those which are gone."""
        asked = msgspec.convert(args.get("letters", []), list[Letters])
        return [one for one in map(self._targets.gone_letters, asked) if one.seqs]

    async def part(self, args: dict[str, object]) -> None:
        """Of a batch which was prepared at another node."""
        part = msgspec.convert(args, StagePart)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, passing.keep, self._folder, part)

    def batch(self, args: dict[str, object]) -> Committed | None:
        asked = msgspec.convert(args, BatchAsked)
        known = self._known(records.batch_key(asked.job, asked.batch), asked.target)
        if known is None:
            return None
        return Committed(known.rows, repeated=True, target=known.target)

    def _known(self, key: bytes, target: str) -> records.BatchRecord | None:
        """The batch, if it was committed; without a target, wherever to."""
        with self._queues.store.view() as view:
            value = view.get(api.BATCHES, key)
        if value is None:
            return None
        known = records.decode_batch(value)
        if target and known.target and known.target != target:
            raise RefusedError(
                f"job {known.job!r}, batch {known.batch} was committed to {known.target!r}, not to "
                f"{target!r}: a write of its own needs a job id of its own"
            )
        return known

    # The commit

    async def commit(self, args: dict[str, object]) -> Committed:
        asked = msgspec.convert(args, CommitStage)
        key = records.batch_key(asked.job, asked.batch)
        while (running := self._running.get(key)) is not None:
            await running.wait()
        known = self._known(key, asked.target)
        if known is not None:
            passing.forget(self._path(asked))
            return Committed(known.rows, repeated=True)
        done = self._running[key] = asyncio.Event()
        try:
            async with self._slots:
                known = await self._commit(asked, key)
        finally:
            passing.forget(self._path(asked))
            del self._running[key]
            done.set()
        self._forget_batches(asked.job)
        return Committed(known.rows)

    async def _commit(self, asked: CommitStage, key: bytes) -> records.BatchRecord:
        loop = asyncio.get_running_loop()
        path = self._path(asked)
        if not path.exists():
            raise ChangedError(f"prepared batch {path.name!r} is not at this node")
        prepared = await loop.run_in_executor(self._threads, PreparedReader, path)
        try:
            summary = prepared.summary
            if isinstance(summary, PreparedIds) and asked.target == tables.SDV_NAME:
                return await fan_out(self._fanout, asked, summary, path, key)
            if not isinstance(summary, Prepared) or asked.target == tables.SDV_NAME:
                raise ChangedError(f"this was not prepared for {asked.target!r}")
            host = self._host(asked, summary)
            if isinstance(host, MessageQueueHost) and host.machine.policy.is_last_value:
                return await self._insert(asked, summary, prepared, key)
            return await self._store(asked, summary, prepared, key)
        finally:
            prepared.close()

    def _path(self, asked: CommitStage) -> Path:
        return passing.path_of(self._folder, asked.job, asked.batch, asked.file)

    def _host(self, asked: CommitStage, summary: Prepared) -> HostedQueue:
        host = self._targets.find(asked.target)
        if host.id != summary.queue_id or len(host.machine.partitions) != summary.partitions:
            raise ChangedError(f"{asked.target!r} is not the queue it was")
        return host

    async def _store(
        self, asked: CommitStage, summary: Prepared, prepared: PreparedReader, key: bytes
    ) -> records.BatchRecord:
        plan = Plan(summary, self._queues.new_number(), self._queues.new_number())
        # Before anything is copied, and once more when it is.
        self._targets.refuse_without_room(self._host(asked, summary), plan.command)
        try:
            await copy(plan, prepared, self._runner, self._threads)
            host = self._host(asked, summary)
            known = self._show(asked, host, summary, plan, key)
        except BaseException:
            self._discard(plan)
            raise
        try:
            await stored(self._runner)
        except StorageError:
            # Nothing else: who stops waiting does not know whether something points to it now.
            self._discard(plan)
            raise
        if plan.command.delayed:
            self._upkeep.work_on(move_delayed(self._queues, plan.later_stage))
        await self._drop_surplus(host)
        return known

    def _discard(self, plan: Plan) -> None:
        for stage in plan.stages():
            self._upkeep.work_on(discard(self._queues, stage))

    def _show(
        self, asked: CommitStage, host: HostedQueue, summary: Prepared, plan: Plan, key: bytes
    ) -> records.BatchRecord:
        """The one group which makes the batch visible: nothing happens between these lines."""
        if any([self._targets.gone_letters(one).seqs for one in summary.letters]):
            raise ChangedError("some of the dead letters are gone")
        self._targets.refuse_without_room(host, plan.command)
        now_ms = self._queues.clock.now_ms()
        reply = extend(host, plan.command, plan.stage, plan.chunks, now_ms)
        assert reply == 0, "there was room"
        for letters in summary.letters:
            self._targets.remove_letters(letters, now_ms)
        for stage in plan.stages():
            self._runner.delete(api.STAGED, stage_key(stage) + OPEN)
        if plan.command.delayed:
            delays = records.Delays(host.id, now_ms, plan.command.delayed)
            self._runner.put(
                api.BATCHES, records.delays_key(plan.later_stage), records.encode(delays)
            )
        self._targets.count(host, summary.rows)
        return self._record(asked, summary.rows, key, now_ms)

    def _record(
        self, asked: CommitStage, rows: int, key: bytes, now_ms: int
    ) -> records.BatchRecord:
        known = records.BatchRecord(asked.job, asked.batch, rows, now_ms, asked.target)
        self._runner.put(api.BATCHES, key, records.encode(known))
        return known

    async def _insert(
        self, asked: CommitStage, summary: Prepared, prepared: PreparedReader, key: bytes
    ) -> records.BatchRecord:
        """Last values, one by one: which of them replaces what is known here only. There are so few
        that one commit has them all."""
        found: list[Record] = []
        for size in numbers("I", summary.chunk_sizes):
            found += decode_chunk(prepared.read(size))
        host = self._host(asked, summary)
        assert isinstance(host, MessageQueueHost)
        plan = Plan(summary, 0, 0)
        self._targets.refuse_without_room(host, plan.command)
        now_ms = self._queues.clock.now_ms()
        for record in found:
            record.ts_ms = now_ms
            host.insert(record, now_ms)
        self._targets.count(host, summary.rows)
        known = self._record(asked, summary.rows, key, now_ms)
        await stored(self._runner)
        return known

    # Afterwards

    async def _drop_surplus(self, host: HostedQueue) -> None:
        """Where the oldest messages make room they do so now; after a crash it takes longer."""
        idle = 0  # one tick may only load what the next one drops
        while idle < 3 and not host.is_deleted and host.machine.is_over():
            dropped = host.machine.counters.dropped
            host.tick(self._queues.clock.now_ms())
            idle = idle + 1 if host.machine.counters.dropped == dropped else 0
            await asyncio.sleep(0)

    def _forget_batches(self, job: str) -> None:
        """A job comes back for its latest batches only."""
        self._commits += 1
        if self._commits % FORGET_EVERY:
            return
        prefix = records.job_key(job)
        with self._queues.store.view() as view:
            known = list(view.scan_keys(api.BATCHES, prefix, prefix + b"\xff" * 9))
        for key in known[:-BATCHES_KEPT]:
            self._runner.delete(api.BATCHES, key)
        self._forget_unnamed()

    def _forget_unnamed(self) -> None:
        before_ms = self._queues.clock.now_ms() - 1000 * STAGE_KEPT_S
        self._upkeep.work_on(forget_unnamed(self._queues, before_ms))
