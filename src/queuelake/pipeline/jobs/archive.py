"""Queues become tables: `messages`, `events` and `stats`, exactly once.

There is no checkpoint. How far each shard is in a table is part of the table's own commits; a
round asks the broker how far the shards reach, takes what lies between, lets Spark's tasks write
it, commits, and tells the broker what it need not keep any longer. Wherever a round ends, the
next one, of whichever process, begins at what is committed.

Rows whose payload does not fit are committed to `quarantine` before the others are to `messages`.
Is `quarantine` ahead after a crash, then the split of that range is settled: what is in
quarantine stays there, all else goes to `messages`, and only then things go on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import reduce
from typing import Final

import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from queuelake.errors import LeaseLostError
from queuelake.flight import ArchivedTold, Mark, PayloadSchema, Shard
from queuelake.pipeline.failpoint import failpoint
from queuelake.pipeline.jobs import archive_tasks
from queuelake.pipeline.jobs.archive_tasks import Target
from queuelake.pipeline.jobs.job import JobContext, Summary
from queuelake.pipeline.lake import definitions, ranges, sweep
from queuelake.pipeline.lake.files import DataFile
from queuelake.pipeline.lake.lake import Lake, read_rows
from queuelake.pipeline.lake.lease import HeldLease
from queuelake.pipeline.lake.ranges import Reach, Slice
from queuelake.pipeline.lake.table import Change, LakeTable, Move, MovedError
from queuelake.pipeline.lake.tasks import Written, collected, parallelism
from queuelake.pipeline.payloads import PayloadReader, extend_value
from queuelake.tables import Table

log = logging.getLogger(__name__)

TABLES: Final[tuple[Table, ...]] = ("messages", "events", "stats")
MARKS_MAX: Final = 5000  # in one call
# Between two rounds with a backlog, so that others who wait for the lake get it.
PAUSE_S: Final = 0.5


class Options(Struct, frozen=True):
    once: bool = False  # up to where the queues are now, then end
    interval_s: float = 10.0  # between two looks at queues which have nothing new
    rows_max: int = 1_000_000  # of one table in one round
    queue: str = "*"
    adopt: bool = False  # this lake takes the place of the one the broker knows
    wait_s: float = 600.0  # for somebody else who changes the lake


def run(context: JobContext, options: Options) -> Summary:
    archive = Archive(context, options)
    while True:
        context.check()
        try:
            with archive.lake.lease(context.connection, context.id, options.wait_s) as lease:
                behind = archive.round(lease)
        except LeaseLostError as error:
            # This process was held up for long: what it had begun is void, its work is not.
            log.warning("archive: %s", error)
            continue
        if behind == 0 and options.once:
            return archive.summary()
        if not options.once:
            context.wait(options.interval_s if behind == 0 else PAUSE_S)


class Archive:
    """The rounds of one run."""

    def __init__(self, context: JobContext, options: Options) -> None:
        self.lake = Lake(context.lake)
        self._context = context
        self.options = options
        self._epoch = 0  # of the round before
        self._rows = dict.fromkeys((*TABLES, "quarantine"), 0)
        self._lost = 0
        self.ahead: set[str] = set()  # sources of which the lake has more than the broker
        self._ends: dict[str, dict[str, int]] = {}  # with `once`: where each table ends
        self._told: dict[tuple[str, str], int] = {}  # marks the broker has from us
        self._introduced: set[Table] = set()  # tables the broker knows as its lake's

    def round(self, lease: HeldLease) -> int:
        """Move each table on; the number of rows which are still to come."""
        if lease.epoch != self._epoch + 1:
            self._sweep(lease)  # somebody else was here in between, and may have died
        self._epoch = lease.epoch
        behind = 0
        for name in TABLES:
            try:
                behind += TableRound(self, self._context, name, lease).run()
            except MovedError as error:
                # A job whose lease had ended came first with the same rows: they are there.
                log.info("archive: %s", error)
                behind += 1
        progress = self._context.progress
        progress.lag = behind
        progress.total = progress.done + behind
        return behind

    def summary(self) -> Summary:
        rows = sum(self._rows.values())
        detail: dict[str, object] = {name: count for name, count in self._rows.items() if count}
        if self.ahead:
            detail["shards where the lake is ahead of the broker"] = len(self.ahead)
        if self._lost:
            detail["lost before they were archived"] = self._lost
        return Summary(f"{rows:,} rows are in {self.lake.uri}", detail)

    def shards(self, table: Table) -> list[Shard]:
        """What there is to take, with `once` no further than at the first look."""
        found = self._context.connection.shards(table, self.options.queue)
        if not self.options.once:
            return found
        ends = self._ends.setdefault(table, {ranges.source(one): one.upto for one in found})
        return [
            shard if (end := ends.get(ranges.source(shard), 0)) >= shard.upto else until(shard, end)
            for shard in found
        ]

    def count(self, table: str, rows: int) -> None:
        self._rows[table] += rows
        self._context.progress.add(rows)

    def lose(self, reach: Reach) -> None:
        """Say what was promised to the archive and is gone."""
        for after, upto in reach.shard.lost:
            rows = min(upto, reach.upto) - max(after, reach.committed)
            if rows > 0:
                self._lost += rows
                place = f"{reach.shard.queue} shard {reach.shard.shard}"
                log.warning("archive: %s: rows (%d, %d] are lost", place, after, upto)

    def tell(self, table: Table, lake_id: str, marks: list[Mark]) -> None:
        """The broker may forget these rows.

        The first time it is told in any case, before anything is written: it refuses a lake which
        is not its own, or forgets how far another one was.
        """
        news = [mark for mark in marks if self._told.get(told_key(table, mark), 0) < mark.upto]
        parts = [news[begin : begin + MARKS_MAX] for begin in range(0, len(news), MARKS_MAX)]
        for part in parts or [[]] * (table not in self._introduced):
            told = ArchivedTold(table, lake_id, part, self.options.adopt)
            self._context.connection.archived(told)
            self._told |= {told_key(table, mark): mark.upto for mark in part}
        self._introduced.add(table)

    def _sweep(self, lease: HeldLease) -> None:
        for definition in (*definitions.ARCHIVED.values(), definitions.QUARANTINE):
            removed = sweep.sweep(self.lake.table(definition), lease)
            if removed:
                log.info("archive: removed %d files of batches which failed", removed)


def told_key(table: str, mark: Mark) -> tuple[str, str]:
    return table, f"{mark.queue_id}:{mark.shard}"


def until(shard: Shard, upto: int) -> Shard:
    return replace(shard, upto=upto)


class TableRound:
    """One table in one round."""

    def __init__(self, archive: Archive, context: JobContext, name: Table, lease: HeldLease):
        self._archive = archive
        self._context = context
        self._name: Table = name
        self._lease = lease
        self._table = archive.lake.table(definitions.ARCHIVED[name])
        self._quarantine = archive.lake.table(definitions.QUARANTINE)

    def run(self) -> int:
        shards = self._archive.shards(self._name)
        reached = [self._reach(shard) for shard in shards]
        self._tell(reached)  # a run before may have ended between its commit and this
        moving = ranges.plan(reached, self._archive.options.rows_max)
        if not moving:
            return 0
        failpoint(f"archive:{self._name}:before_write")
        written = self._write(moving)
        failpoint(f"archive:{self._name}:before_commit")
        self._commit(moving, written)
        failpoint(f"archive:{self._name}:before_mark")
        self._tell(moving)
        return sum(self._left(shard) for shard in shards)

    def _left(self, shard: Shard) -> int:
        """Rows which are still to come."""
        return max(0, shard.upto - max(shard.after, self._table.applied(ranges.source(shard))))

    def _reach(self, shard: Shard) -> Reach:
        committed = self._table.applied(ranges.source(shard))
        upto = shard.upto
        if upto < committed:
            self._archive.ahead.add(ranges.source(shard))
            words = "%s shard %d ends at %d, the lake is at %d: is this an old copy of the store?"
            log.warning("archive: " + words, shard.queue, shard.shard, upto, committed)
        settled = self._settled(shard)
        if settled > committed:
            upto = settled  # first this, on its own
        return Reach(shard, committed, upto)

    def _settled(self, shard: Shard) -> int:
        """How far it is decided which rows do not fit; 0 for tables without payloads."""
        if self._name != "messages" or self._quarantine.version == 0:
            return 0
        return self._quarantine.applied(ranges.source(shard))

    def _write(self, moving: list[Reach]) -> list[Written]:
        """The files with the rows of this round."""
        by_schema: dict[PayloadSchema | None, list[Slice]] = {}
        for reach in moving:
            self._archive.lose(reach)
            if reach.pending:
                schema = reach.shard.schema if self._name == "messages" else None
                if schema is not None and schema.format == "binary":
                    schema = None
                by_schema.setdefault(schema, []).append(self._slice(reach))
        if not by_schema:
            return []
        spark = self._context.spark
        rows = sum(part.rows for parts in by_schema.values() for part in parts)
        length = ranges.task_rows(rows, parallelism(spark))
        endpoint = self._context.connection.endpoint
        target = Target(endpoint, self._archive.lake.uri, self._name, self._lease.epoch)
        jobs = []
        for schema, slices in by_schema.items():
            work = list(ranges.packed(slices, length))
            if schema is None:
                jobs.append(archive_tasks.plain(spark, target, work))
            else:
                reader = self._reader(schema)
                jobs.append(archive_tasks.valued(spark, target, work, reader))
        return collected(reduce(lambda one, other: one.unionAll(other), jobs))

    def _slice(self, reach: Reach) -> Slice:
        shard = reach.shard
        settled = self._settled(shard) > reach.committed
        skip = self._quarantined(reach) if settled else []
        return Slice(
            shard.queue, shard.queue_id, shard.shard, reach.after, reach.upto, settled, skip
        )

    def _quarantined(self, reach: Reach) -> list[int]:
        """Which rows of this range are in quarantine."""
        shard = reach.shard
        files = [
            file for file in self._quarantine.files() if file.partition["queue"] == shard.queue
        ]
        found: list[int] = []
        for rows in read_rows(self._quarantine, files, ["queue_id", "partition", "seqno"]):
            same = pc.and_(
                pc.equal(rows["queue_id"], shard.queue_id),
                pc.equal(rows["partition"], shard.shard),
            )
            places = rows.filter(same)["seqno"].to_pylist()
            found += [place for place in places if reach.after < place <= reach.upto]
        return found

    def _reader(self, schema: PayloadSchema) -> PayloadReader:
        """Reads such payloads; the table has a column for everything they may hold."""
        reader = PayloadReader(self._context.spark, schema)
        if reader.problem:
            log.warning("archive: %s", reader.problem)
        extend_value(self._table, reader, self._lease)
        return reader

    def _commit(self, moving: list[Reach], written: list[Written]) -> None:
        by_table: dict[str, list[DataFile]] = {}
        for one in written:
            by_table.setdefault(one.table, []).append(one.file)
        unfit = by_table.pop("quarantine", [])
        judged = [reach for reach in moving if self._name == "messages" and reach.shard.schema]
        if judged:
            moves = self._moves(self._quarantine, judged)
            self._quarantine.commit(Change(unfit, moves=moves), self._lease)
            failpoint("archive:messages:between")
        files = by_table.pop(self._name, [])
        assert not by_table, f"files of other tables: {sorted(by_table)}"
        moves = {ranges.source(reach.shard): Move(reach.committed, reach.upto) for reach in moving}
        self._table.commit(Change(files, moves=moves), self._lease)
        self._archive.count("quarantine", sum(file.rows for file in unfit))
        self._archive.count(self._name, sum(file.rows for file in files))

    def _moves(self, table: LakeTable, moving: Iterable[Reach]) -> dict[str, Move]:
        """Where the other table gets with this round; it may be there already."""
        moves = {}
        for reach in moving:
            source = ranges.source(reach.shard)
            before = table.applied(source)
            if before < reach.upto:
                moves[source] = Move(before, reach.upto)
        return moves

    def _tell(self, reached: list[Reach]) -> None:
        marks = []
        for reach in reached:
            shard = reach.shard
            upto = self._table.applied(ranges.source(shard))
            # What it says of the lake which is replaced does not count.
            if upto > (0 if self._archive.options.adopt else shard.archived):
                marks.append(Mark(shard.queue_id, shard.shard, upto))
        self._archive.tell(self._name, self._table.id, marks)
