"""Rows about jobs in the lake: table `jobs`, one row for each run, and the plans of some."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from queuelake.pipeline.jobs.job import JobContext, connect
from queuelake.pipeline.jobs.progress import Outcome
from queuelake.pipeline.lake.definitions import JOBS, Definition
from queuelake.pipeline.lake.files import Writer
from queuelake.pipeline.lake.lake import Lake, read_rows
from queuelake.pipeline.lake.lease import Leases
from queuelake.pipeline.lake.table import Change, Move, MovedError

if TYPE_CHECKING:
    from queuelake.pipeline.jobs.plan import Plan

PLANNED: Final = "planned"
WAIT_S: Final = 60.0


class Journal:
    """Adds rows to tables which only grow. Whoever runs a job may, under a lease of their own."""

    def __init__(self, context: JobContext, leases: Leases) -> None:
        self._context = context
        self._leases = leases
        self.lake = Lake(context.lake)

    def add(self, definition: Definition, rows: pa.Table, moves: dict[str, Move]) -> None:
        """Raises MovedError when the table is not where the moves begin: rows are there already."""
        table = self.lake.table(definition)
        with self.lake.journal_lease(self._leases, self._context.id, WAIT_S) as lease:
            writer = Writer(table.uri, definition, definition.schema(), lease.epoch)
            writer.write(rows)
            table.commit(Change(adds=writer.finish(), moves=moves), lease)

    def end(self, outcome: Outcome) -> None:
        """The row of a run which has ended."""
        detail = {name: str(value) for name, value in outcome.detail.items()}
        row = self._row(outcome.state, outcome.words, self._context.detail | detail)
        self.add(JOBS, row, {})

    def plan(self, job: str) -> Plan | None:
        """The plan of a job, if it has one."""
        from queuelake.pipeline.jobs.plan import Plan

        if not self.lake.has(JOBS.name):
            return None
        table = self.lake.table(JOBS)
        if not table.applied(_source(job)):
            return None
        for rows in read_rows(table, table.files(), ["id", "state", "detail"]):
            for row in rows.to_pylist():
                if row["id"] == job and row["state"] == PLANNED:
                    return msgspec.json.decode(dict(row["detail"])["plan"], type=Plan)
        return None

    def keep_plan(self, job: str, plan: Plan) -> Plan:
        """Make this the plan of the job; if it has got one meanwhile, that is the answer."""
        detail = {"plan": msgspec.json.encode(plan).decode()}
        try:
            self.add(JOBS, self._row(PLANNED, "", detail), {_source(job): Move(0, 1)})
        except MovedError:
            return self.plan(job) or plan
        return plan

    def _row(self, state: str, words: str, detail: dict[str, str]) -> pa.Table:
        context = self._context
        progress = context.progress
        row = {
            "id": context.id,
            "kind": context.kind,
            "state": state,
            "started": datetime.fromtimestamp(context.started_ms / 1000, UTC),
            "ended": None if state == PLANNED else datetime.now(UTC),
            "done": progress.done,
            "total": progress.total,
            "unit": progress.unit,
            "message": words,
            "detail": list(detail.items()),
        }
        return pa.Table.from_pylist([row], schema=JOBS.schema())


def keep_outcome(context: JobContext, outcome: Outcome) -> None:
    """The row of a run, if there is a lake to keep it."""
    if context.place.lake:
        # A broker which does not answer now may be why the job ended: do not wait for it again.
        with connect(context.place, retry_s="2") as leases:
            Journal(context, leases).end(outcome)


def _source(job: str) -> str:
    return f"plan:{job}"
