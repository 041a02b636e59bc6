"""A staged batch of vehicles becomes a trigger: the same rows, rules and counts as if a platform
had published it. The slice which makes its rows count also says that (job, batch) was committed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from queuelake.broker.fanout.service import Fanout
from queuelake.broker.fanout.trigger import check_name, data_id_problem
from queuelake.broker.fanout.vehicles import FiledVehicles
from queuelake.broker.operation import stored
from queuelake.control_pipeline import CommitStage
from queuelake.errors import RefusedError, StorageError
from queuelake.storage import api
from queuelake.storage import stage_records as records
from queuelake.storage.prepared import FIRST, PreparedIds, numbers


async def fan_out(
    fanout: Fanout, asked: CommitStage, summary: PreparedIds, path: Path, key: bytes
) -> records.BatchRecord:
    """
    Raises:
        RefusedError: there is no such request or data id.
        StorageError: the rows do not count; what is there of them is deleted later.
    """
    check_name("request_id", asked.request)
    if problem := data_id_problem(asked.data):
        raise RefusedError(f"trigger: {problem}")
    runner = fanout.runner
    if asked.payload:
        fanout.store_data(asked.data, asked.payload, fanout.clock.now_ms())
        await stored(runner)
    counts = numbers("I", summary.bucket_counts)
    vehicles = FiledVehicles(str(path), FIRST, counts, numbers("I", summary.bucket_sizes))
    now_ms = fanout.clock.now_ms()
    known = records.BatchRecord(asked.job, asked.batch, 0, now_ms, asked.target)
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def record(rows: int) -> None:
        known.rows = rows
        runner.put(api.BATCHES, key, records.encode(known))

    def answer(is_stored: bool) -> None:
        if not done.done():
            done.set_result(is_stored)

    fanout.storing.add_in_bulk(vehicles, asked.request, asked.data, now_ms, record, answer)
    if not await done:
        raise StorageError(f"not stored so far: {runner.failure}")
    return known
