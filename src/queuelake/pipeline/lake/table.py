"""A table of the lake: what is in it, and the one way to change it.

Every change is one commit of the Delta log and holds three things: files which come and go, how
far the sources are in the table (application transactions, whose versions never go down), and
the epoch of the lease. A commit looks at the newest version of the table, checks all three
against it and succeeds only as the very next version; when somebody else was faster, it looks
again. So of two jobs with the same rows one commits, and the other is told that they are there.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction
from msgspec import Struct
from pyarrow import fs

from queuelake.errors import LeaseLostError, RefusedError, StorageError
from queuelake.pipeline.lake.definitions import Definition
from queuelake.pipeline.lake.files import Bounds, DataFile, epoch_of, sync
from queuelake.pipeline.lake.lease import HeldLease

EPOCH: Final = "lease"
ATTEMPTS_MAX: Final = 20
EPOCH_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


class MovedError(RefusedError):
    """The table went on meanwhile: what was prepared no longer fits it. Plan anew."""

    http_status = 409
    code = "TABLE_MOVED"


class FilesMissingError(StorageError):
    """Files which a commit names are not there, or not whole."""


class Move(Struct, frozen=True):
    """How far a source is in the table: from here to there, or nothing is changed."""

    before: int
    after: int


class Change(Struct, frozen=True):
    """What one commit does."""

    adds: list[DataFile] = []
    removes: list[DataFile] = []
    moves: dict[str, Move] = {}
    rewrite: bool = False  # the same rows in other files


class LakeTable:
    """One Delta table. It exists, empty at least, as soon as there is an object of it."""

    def __init__(self, uri: str, definition: Definition, delta: DeltaTable | None = None) -> None:
        self.uri = uri
        self.definition = definition
        self._delta = delta or opened(uri, definition)
        if delta is None:
            self._sync_log()  # who committed this version may have died before it did so
        self._applied: dict[str, int] = {}  # as of the version that is loaded

    @property
    def id(self) -> str:
        return str(self._delta.metadata().id)

    @property
    def version(self) -> int:
        return self._delta.version()

    def refresh(self) -> None:
        version = self.version
        self._delta.update_incremental()
        if self.version != version:
            self._applied.clear()
            self._sync_log(version + 1)

    def applied(self, source: str) -> int:
        """How far a source is in the table; 0 when nothing of it is."""
        known = self._applied.get(source)
        if known is None:
            known = self._applied[source] = self._delta.transaction_version(source) or 0
        return known

    def schema(self) -> pa.Schema:
        return pa.schema(self._delta.schema().to_arrow())

    def files(self) -> list[DataFile]:
        """The files of the version that is loaded."""
        actions = pa.table(self._delta.get_add_actions(flatten=True)).to_pylist()
        return [stored(action, self.definition) for action in actions]

    def leftovers(self, before_epoch: int) -> list[str]:
        """Files no version of the table names, written under earlier leases than this one."""
        unused = self._delta.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
        named = set(self.replaced(0))
        return [path for path in unused if path not in named and 0 < epoch_of(path) < before_epoch]

    def replaced(self, hours: int) -> list[str]:
        """Files of earlier versions only, which were replaced at least so long ago."""
        return self._delta.vacuum(hours, dry_run=True, enforce_retention_duration=False)

    def extend(self, field: pa.Field, lease: HeldLease) -> None:
        """Add a column, or fields to a column which is a struct."""
        lease.check()
        self.refresh()
        self._check(Change(), lease)
        fields = Schema.from_arrow(pa.schema([field])).fields
        self._delta.alter.add_columns(fields, commit_properties=self._properties({}, lease))
        self._sync_log()  # it is loaded already
        self.refresh()

    def fence(self, lease: HeldLease) -> None:
        """After this no earlier lease commits anything here."""
        if self.applied(EPOCH) < lease.epoch:
            self.commit(Change(), lease)

    def commit(self, change: Change, lease: HeldLease) -> None:
        """Raises:
        LeaseLostError: somebody else may change the lake now.
        MovedError: the table is not where the change begins.
        FilesMissingError: a file to be added is not there.
        """
        for _ in range(ATTEMPTS_MAX):
            lease.check()
            self.refresh()
            self._check(change, lease)
            check_files(self.uri, change.adds)
            try:
                self._delta.create_write_transaction(
                    actions(change),
                    "append",
                    self._delta.schema(),
                    partition_by=list(self.definition.partition_by),
                    commit_properties=self._properties(change.moves, lease),
                )
            except CommitFailedError:
                continue  # somebody else committed this version: look at it, then try the next
            known = self._applied
            self.refresh()  # what was committed is durable now
            self._applied = known | {source: move.after for source, move in change.moves.items()}
            self._applied[EPOCH] = lease.epoch
            return
        raise MovedError(f"table {self.definition.name}: {ATTEMPTS_MAX} commits came before ours")

    def _check(self, change: Change, lease: HeldLease) -> None:
        name = self.definition.name
        if self.applied(EPOCH) > lease.epoch:
            raise LeaseLostError(
                f"table {name}: lease {self.applied(EPOCH)} came after ours, {lease.epoch}"
            )
        for source, move in change.moves.items():
            assert move.after >= move.before, f"{source} would go back to {move.after}"
            if self.applied(source) != move.before:
                where = f"is at {self.applied(source)}, not at {move.before}"
                raise MovedError(f"table {name}: {source} {where}")
        if change.removes:
            there = {file.path for file in self.files()}
            gone = [file.path for file in change.removes if file.path not in there]
            if gone:
                raise MovedError(f"table {name}: {gone[0]} was replaced meanwhile")

    def _properties(self, moves: dict[str, Move], lease: HeldLease) -> CommitProperties:
        transactions = [Transaction(source, move.after) for source, move in moves.items()]
        transactions.append(Transaction(EPOCH, lease.epoch))
        # No second try inside: it would commit without a look at what came between.
        return CommitProperties(app_transactions=transactions, max_commit_retries=0)

    def _sync_log(self, first: int | None = None) -> None:
        """The version that is loaded and those since `first`, whoever committed them: marks which
        are told to the broker rely on them."""
        files, root = fs.FileSystem.from_uri(self.uri)
        if isinstance(files, fs.LocalFileSystem):
            last = self.version
            for version in range(last if first is None else first, last + 1):
                path = os.path.join(root, "_delta_log", f"{version:020}.json")
                if os.path.exists(path):
                    sync(path, 2)


def opened(uri: str, definition: Definition) -> DeltaTable:
    return DeltaTable.create(
        uri,
        Schema.from_arrow(definition.schema()),
        mode="ignore",
        name=definition.name,
        partition_by=list(definition.partition_by),
    )


def check_files(uri: str, adds: list[DataFile]) -> None:
    if not adds:
        return
    files, root = fs.FileSystem.from_uri(uri)
    found = files.get_file_info([f"{root}/{file.path}" for file in adds])
    for file, info in zip(adds, found, strict=True):
        if info.type is not fs.FileType.File or info.size != file.size:
            raise FilesMissingError(f"{info.path}: {info.size or 0} of {file.size} bytes are there")


def actions(change: Change) -> list[AddAction | RemoveAction]:
    now_ms = int(time.time() * 1000)
    data_change = not change.rewrite
    adds = [
        AddAction(file.path, file.size, file.partition, now_ms, data_change, statistics(file))
        for file in change.adds
    ]
    removes = [
        RemoveAction(file.path, data_change, now_ms, file.size, file.partition)
        for file in change.removes
    ]
    return [*adds, *removes]


def statistics(file: DataFile) -> str:
    """The bounds of a file in the words of Delta."""
    least: dict[str, object] = {}
    greatest: dict[str, object] = {}
    bounds = file.bounds
    if bounds.queue_id:
        least |= {"queue_id": bounds.queue_id, "partition": bounds.partition_min}
        least |= {"seqno": bounds.seqno_min, "ts": timestamp(bounds.ts_min_us)}
        greatest |= {"queue_id": bounds.queue_id, "partition": bounds.partition_max}
        greatest |= {"seqno": bounds.seqno_max, "ts": timestamp(bounds.ts_max_us)}
    told = {"numRecords": file.rows, "minValues": least, "maxValues": greatest}
    return msgspec.json.encode(told).decode()


def timestamp(us: int) -> str:
    moment = datetime.fromtimestamp(us // 1_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{us % 1_000_000:06}Z"


def stored(action: dict[str, Any], definition: Definition) -> DataFile:
    """A file as the log tells of it; files others have added may lack bounds."""
    partition = {name: action[f"partition.{name}"] for name in definition.partition_by}

    def bound(side: str, name: str) -> int:
        value = action.get(f"{side}.{name}")
        if isinstance(value, datetime):
            return (value - EPOCH_TIME) // timedelta(microseconds=1)
        return value or 0

    return DataFile(
        path=action["path"],
        size=action["size_bytes"],
        rows=action["num_records"],
        partition={k: None if v is None else str(v) for k, v in partition.items()},
        bounds=Bounds(
            action.get("min.queue_id") or "",
            bound("min", "partition"),
            bound("max", "partition"),
            bound("min", "seqno"),
            bound("max", "seqno"),
            bound("min", "ts"),
            bound("max", "ts"),
        ),
    )
