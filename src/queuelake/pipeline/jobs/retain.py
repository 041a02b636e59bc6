"""What a lake keeps: rows up to an age, and nothing of a key that has to be forgotten.

Erasing ends with the removal of every file that is not part of the newest version, so that no
earlier version brings anything back. It goes from the tables which only point at a message to the
message itself: a run which dies in between is repeated, and finds what is left.
"""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from queuelake.errors import RefusedError
from queuelake.pipeline.failpoint import failpoint
from queuelake.pipeline.jobs import reprocess
from queuelake.pipeline.jobs.job import JobContext, Summary
from queuelake.pipeline.jobs.redrive import REDRIVES
from queuelake.pipeline.jobs.reprocess import without
from queuelake.pipeline.lake import definitions, sweep
from queuelake.pipeline.lake.definitions import Definition
from queuelake.pipeline.lake.files import DataFile
from queuelake.pipeline.lake.lake import Lake, read_rows
from queuelake.pipeline.lake.lease import HeldLease
from queuelake.pipeline.lake.ranges import source
from queuelake.pipeline.lake.rewrite import batches, rewrite
from queuelake.pipeline.lake.table import Change, LakeTable
from queuelake.pipeline.lake.tasks import Keep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGED: Final = (*definitions.ARCHIVED.values(), definitions.QUARANTINE)
KEYED: Final = (definitions.QUARANTINE, definitions.CURRENT, definitions.MESSAGES)
PLACE: Final = ["queue_id", "partition", "seqno", "key", "owner"]
Places = dict[tuple[str, int], list[int]]


class Options(Struct, frozen=True):
    older_than_s: float | None = None
    erase_keys: list[str] = []  # keys, or owners: devices and vehicles
    queue: str = "*"
    wait_s: float = 600.0


def run(context: JobContext, options: Options) -> Summary:
    if options.older_than_s is None and not options.erase_keys:
        raise RefusedError("nothing to do: say --older-than AGE, or --erase-key KEY, or both")
    lake = Lake(context.lake)
    gone: dict[str, int] = {}
    with lake.lease(context.connection, context.id, options.wait_s) as lease:
        check_settled(context, lake)
        reprocess.finish(context.spark, lake, lease)
        retention = Retention(context, lake, options.queue, lease)
        if options.older_than_s is not None:
            gone = retention.drop_older(time.time() - options.older_than_s)
        if options.erase_keys:
            for table, rows in retention.erase(options.erase_keys).items():
                gone[table] = gone.get(table, 0) + rows
    rows = sum(gone.values())
    context.progress.add(rows)
    return Summary(f"{rows:,} rows are gone from {lake.uri}", dict(gone))


def check_settled(context: JobContext, lake: Lake) -> None:
    """A round of the archive which died half way may bring back what is in quarantine."""
    messages = lake.table(definitions.MESSAGES)
    quarantine = lake.table(definitions.QUARANTINE)
    if quarantine.version == 0:
        return
    for shard in context.connection.shards("messages"):
        # Whatever its schema is by now: it may have been taken away since.
        if quarantine.applied(source(shard)) > messages.applied(source(shard)):
            raise RefusedError(
                f"the archive of {shard.queue} was interrupted: run `archive --once` first"
            )


class Retention:
    """The deletions of one run."""

    def __init__(self, context: JobContext, lake: Lake, queue: str, lease: HeldLease) -> None:
        self._context = context
        self._lake = lake
        self._queue = queue
        self._lease = lease

    @property
    def _spark(self) -> SparkSession:
        return self._context.spark

    def drop_older(self, cutoff_s: float) -> dict[str, int]:
        """Rows from before this time, from every table but `current`, which has no past."""
        cutoff_us = int(cutoff_s * 1_000_000)
        gone = {}
        for definition in AGED:
            self._context.check()
            table = self._lake.table(definition)
            files = [file for file in self._files(table) if file.bounds.ts_min_us < cutoff_us]
            whole = [file for file in files if file.bounds.ts_max_us < cutoff_us]
            if whole:
                table.commit(Change(removes=whole), self._lease)
            part = [[file] for file in files if file.bounds.ts_max_us >= cutoff_us]
            rows = rewrite(self._spark, table, part, self._lease, keep=younger(cutoff_us))
            gone[definition.name] = sum(file.rows for file in whole) + rows
        return gone

    def erase(self, keys: list[str]) -> dict[str, int]:
        """Every trace of these keys and owners, in all versions of all tables."""
        gone: dict[str, int] = {}
        holding: dict[str, list[DataFile]] = {}
        places: Places = {}
        for definition in KEYED:
            holding[definition.name] = self._holding(definition, keys, places)
        gone["events"] = self._erase_events(keys, places)
        failpoint("retain:after_events")
        for definition in KEYED:
            self._context.check()
            table = self._lake.table(definition)
            groups = [[file] for file in holding[definition.name]]
            keep = without_keys(keys)
            gone[definition.name] = rewrite(self._spark, table, groups, self._lease, keep=keep)
        if self._lake.has(REDRIVES.name):
            gone[REDRIVES.name] = self._erase_redrives(keys)
        failpoint("retain:before_vacuum")
        for definition in (*KEYED, definitions.EVENTS):
            table = self._lake.table(definition)
            sweep.sweep(table, self._lease)
            sweep.vacuum(table, self._lease, 0)
        return gone

    def _files(self, table: LakeTable) -> list[DataFile]:
        return [
            file
            for file in table.files()
            if fnmatchcase(file.partition.get("queue") or "", self._queue)
        ]

    def _holding(self, definition: Definition, keys: list[str], places: Places) -> list[DataFile]:
        """Files with rows of these keys; `places` gets where the rows are."""
        table = self._lake.table(definition)
        found: list[DataFile] = []
        for file in self._files(table):
            for rows in batches(table.uri, [file], PLACE):
                named = rows.filter(named_by(rows, keys))
                if named.num_rows:
                    if file not in found[-1:]:
                        found.append(file)
                    for row in named.to_pylist():
                        place = (row["queue_id"], row["partition"])
                        places.setdefault(place, []).append(row["seqno"])
        return found

    def _erase_events(self, keys: list[str], places: Places) -> int:
        table = self._lake.table(definitions.EVENTS)
        queues = {queue_id for queue_id, _ in places}
        owners = pa.array(keys, pa.string())
        groups = []
        for file in self._files(table):
            for rows in batches(table.uri, [file], ["consumer"]):
                told = pc.any(pc.is_in(rows["consumer"], value_set=owners)).as_py()
                if told or file.bounds.queue_id in queues:
                    groups.append([file])
                    break
        keep = without_steps(keys, places)
        return rewrite(self._spark, table, groups, self._lease, keep=keep)

    def _erase_redrives(self, keys: list[str]) -> int:
        """Rows about dead letters which were sent again; they have a lease of their own."""
        wanted = pa.array(keys, pa.string())
        table = self._lake.table(REDRIVES)
        with self._lake.journal_lease(self._context.connection, self._context.id) as lease:
            table.refresh()
            groups = [
                [file]
                for file in table.files()
                for rows in read_rows(table, [file], ["key"])
                if pc.any(pc.is_in(rows["key"], value_set=wanted)).as_py()
            ]
            keep = without_redriven(keys, self._queue)
            gone = rewrite(self._spark, table, groups, lease, keep=keep)
            sweep.vacuum(table, lease, 0)
        return gone


def without_redriven(keys: list[str], pattern: str) -> Keep:
    wanted = pa.array(keys, pa.string())

    def keep(rows: pa.Table) -> pa.Table:
        queues = [name for name in rows["from_queue"].unique().to_pylist() if name is not None]
        meant = pa.array([name for name in queues if fnmatchcase(name, pattern)], pa.string())
        gone = pc.and_(
            pc.is_in(rows["key"], value_set=wanted), pc.is_in(rows["from_queue"], value_set=meant)
        )
        return rows.filter(pc.invert(gone))

    return keep


def younger(cutoff_us: int) -> Keep:
    def keep(rows: pa.Table) -> pa.Table:
        return rows.filter(pc.greater_equal(rows["ts"].cast(pa.int64()), cutoff_us))

    return keep


def named_by(rows: pa.Table, keys: list[str]) -> pa.ChunkedArray:
    wanted = pa.array(keys, pa.string())
    return pc.or_(
        pc.is_in(rows["key"], value_set=wanted), pc.is_in(rows["owner"], value_set=wanted)
    )


def without_keys(keys: list[str]) -> Keep:
    def keep(rows: pa.Table) -> pa.Table:
        return rows.filter(pc.invert(named_by(rows, keys)))

    return keep


def without_steps(keys: list[str], places: Places) -> Keep:
    """Events of messages at these places, and of the owners themselves, are not let through."""
    owners = pa.array(keys, pa.string())
    others = without(places, "message_seqno")

    def keep(rows: pa.Table) -> pa.Table:
        return others(rows.filter(pc.invert(pc.is_in(rows["consumer"], value_set=owners))))

    return keep
