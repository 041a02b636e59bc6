"""Rows which are staged: written aside by `do_put`, made visible by `commit`.

What is staged is durable and of no account until it is committed. A commit lays the rows out for
the broker, which stores them and remembers (job, batch). Any step may be repeated, and this process
may die at any: until the broker has committed, the Arrow files are there to begin with again.

Where a node has several stores, rows for fan-out and message queues are divided among them
(`staged_parts`). Each store knows its part by (job, batch) and takes it once. The store which is
the home of the target is last: what it knows is committed everywhere.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from queuelake import control_pipeline as ops
from queuelake.control_pipeline import BatchAsked, CommitStage, StageTarget
from queuelake.errors import AnswerError, NotFoundError, RefusedError
from queuelake.export.preparing import prepare
from queuelake.export.staged_columns import COLUMNS, ID_COLUMNS, canonical, cast
from queuelake.export.staged_files import StagedFiles
from queuelake.export.staged_ids import prepare_ids
from queuelake.export.staged_parts import everything, part_of
from queuelake.export.stores import Stores
from queuelake.flight import AbortAsked, CommitAsked, Committed, Stage, encode
from queuelake.storage.prepared import Letters

PREPARES_MAX: Final = 2  # at a time: each needs some memory
ATTEMPTS_MAX: Final = 5  # while the queue changes under the batch
ASK_TIMEOUT_S: Final = 30.0
COMMIT_TIMEOUT_S: Final = 900.0
SWEEP_EVERY_S: Final = 3_600.0

log = logging.getLogger("queuelake.export")


class Staging:
    """The staged batches of one data directory; its methods are called by any thread."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._files = StagedFiles(stores.data_dir)
        self._preparing = threading.BoundedSemaphore(PREPARES_MAX)
        self._busy = _Busy()
        threading.Thread(target=self._sweep, name="sweep", daemon=True).start()

    def _sweep(self) -> None:
        """Now and then; what is being committed has just been written to."""
        pause = threading.Event()
        while True:
            try:
                if removed := self._files.sweep():
                    log.info("%d batches were staged and never committed; deleted", removed)
            except OSError as error:
                log.warning("staged batches cannot be swept: %s", error)
            pause.wait(SWEEP_EVERY_S)

    # Staging

    def do_put(self, stage: Stage, reader: Any, writer: Any) -> None:
        """Keep the rows of one task; the answer names their file."""
        target = self._target(stage.target, self._stores.home(stage.target))
        columns, required = (ID_COLUMNS, "id") if target.kind == "fanout" else (COLUMNS, "payload")
        schema = canonical(reader.schema, columns, required)
        rows = (_checked(cast(one.data, schema), target) for one in reader)
        staged = self._files.write(stage, schema, rows)
        writer.write(pa.py_buffer(encode(staged)))

    # Committing

    def commit(self, asked: CommitAsked) -> Committed:
        with self._busy.alone(asked.job, asked.batch):
            known = self._known(asked.job, asked.batch, asked.target)
            if known is None:
                known = self._commit(asked)
            self._files.remove(asked.job, asked.batch)
        return known

    def abort(self, asked: AbortAsked) -> None:
        with self._busy.alone(asked.job, asked.batch):
            self._files.remove(asked.job, asked.batch)

    def _commit(self, asked: CommitAsked) -> Committed:
        staged = self._files.paths(asked.job, asked.batch, asked.files)
        numbers = self._stores_for(asked.target)
        batch = _Batch(asked, staged, len(numbers) > 1)
        prepared = {one: self._files.new_prepared(asked.job, asked.batch) for one in numbers}
        try:
            # All before the first is committed: of a batch with a wrong row nothing is there.
            for number, path in prepared.items():
                self._prepare(batch, number, path)
            parts = [self._commit_part(batch, number, path) for number, path in prepared.items()]
        finally:
            for path in prepared.values():
                path.unlink(missing_ok=True)
        return parts[0] if len(parts) == 1 else Committed(sum([part.rows for part in parts]))

    def _stores_for(self, target: str) -> list[int]:
        """Which have a part of a batch for this target; its home is the last of them."""
        home = self._stores.home(target)
        if len(self._stores) == 1 or self._target(target, home).kind == "durable":
            return [home]
        return [*(one for one in range(len(self._stores)) if one != home), home]

    def _commit_part(self, batch: _Batch, number: int, path: Path) -> Committed:
        attempts = 0
        while True:
            try:
                return self._ask_commit(batch.asked, number, path)
            except AnswerError as error:
                attempts += 1
                if error.code != ops.CHANGED or attempts == ATTEMPTS_MAX:
                    raise
            path.unlink()
            self._prepare(batch, number, path)

    def _prepare(self, batch: _Batch, number: int, path: Path) -> None:
        asked, staged, is_divided = batch
        with self._preparing:
            target = self._target(asked.target, number)
            if is_divided and target.kind == "durable":
                raise RefusedError(
                    f"{asked.target!r} is not the same in all parts of the cluster yet"
                )
            choose = part_of(self._stores.placing, target, number) if is_divided else everything
            if target.kind == "fanout":
                prepare_ids(path, staged, choose)
                return
            store_id = self._stores.readers[number].id
            gone = partial(self._gone, number)
            try:
                prepare(path, staged, target, asked.job, store_id, gone, choose)
            except NotFoundError:
                if len(self._stores) == 1:
                    raise
                raise RefusedError(
                    f"some of these dead letters are in another part of the cluster than"
                    f" {asked.target!r}: a letter leaves its queue in one commit with its arrival"
                ) from None

    # The broker

    def batch(self, args: dict[str, object]) -> Committed | None:
        """What is known of a batch: the operation `batch`."""
        try:
            asked = msgspec.convert(args, BatchAsked)
        except msgspec.ValidationError as error:
            raise RefusedError(f"this is no BatchAsked: {error}") from None
        return self._known(asked.job, asked.batch, asked.target)

    def _known(self, job: str, batch: int, target: str) -> Committed | None:
        args: dict[str, object] = {"job": job, "batch": batch, "target": target}
        answers = [
            msgspec.convert(self._ask(number, ops.BATCH, args), Committed | None)
            for number in range(len(self._stores))
        ]
        found = [one for one in answers if one is not None]
        if not found or answers[self._stores.home(target or found[0].target)] is None:
            return None
        return replace(found[0], rows=sum([one.rows for one in found]))

    def _ask_commit(self, asked: CommitAsked, number: int, path: Path) -> Committed:
        order = CommitStage(
            asked.job,
            asked.batch,
            asked.target,
            path.name,
            asked.request,
            asked.data,
            asked.payload,
        )
        args = msgspec.structs.asdict(order)
        answer = self._ask(number, ops.COMMIT_STAGE, args, COMMIT_TIMEOUT_S)
        return msgspec.convert(answer, Committed)

    def _target(self, target: str, number: int) -> StageTarget:
        return msgspec.convert(self._ask(number, ops.STAGE_TARGET, {"target": target}), StageTarget)

    def _gone(self, number: int, letters: list[Letters]) -> list[Letters]:
        answer = self._ask(number, ops.STAGE_LETTERS, {"letters": letters})
        return msgspec.convert(answer, list[Letters])

    def _ask(
        self,
        number: int,
        operation: str,
        args: dict[str, object],
        timeout_s: float = ASK_TIMEOUT_S,
    ) -> object:
        return self._stores.ask(number, operation, args, timeout_s)


def _checked(batch: pa.RecordBatch, target: StageTarget) -> pa.RecordBatch:
    """A message which no commit could store is refused at once, in the queue's own words."""
    if "payload" in batch.schema.names and batch.num_rows:
        largest = pc.max(pc.binary_length(batch.column("payload"))).as_py() or 0
        if largest > target.message_bytes_max:
            limit = target.message_bytes_max
            raise RefusedError(
                f"message of {largest} bytes; queue {target.address!r} takes {limit}"
            )
    return batch


class _Batch(NamedTuple):
    """What is committed."""

    asked: CommitAsked
    staged: list[Path]
    is_divided: bool  # among all stores


class _Busy:
    """One call at a time for each batch."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._batches: set[tuple[str, int]] = set()

    @contextlib.contextmanager
    def alone(self, job: str, batch: int) -> Iterator[None]:
        key = (job, batch)
        with self._turn:
            self._turn.wait_for(lambda: key not in self._batches)
            self._batches.add(key)
        try:
            yield
        finally:
            with self._turn:
                self._batches.discard(key)
                self._turn.notify_all()
