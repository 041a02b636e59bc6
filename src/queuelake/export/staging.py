"""Rows which are staged: written aside by `do_put`, made visible by `commit`.

What is staged is durable and of no account until it is committed. A commit lays the rows out for
the broker, which stores them and remembers (job, batch). Any step may be repeated, and this process
may die at any: until the broker has committed, the Arrow files are there to begin with again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from queuelake import control_client
from queuelake import control_pipeline as ops
from queuelake.control_pipeline import CommitStage, StageTarget
from queuelake.errors import AnswerError, RefusedError
from queuelake.export.preparing import prepare
from queuelake.export.staged_columns import COLUMNS, ID_COLUMNS, canonical, cast
from queuelake.export.staged_files import StagedFiles
from queuelake.export.staged_ids import prepare_ids
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

    def __init__(self, data_dir: Path, store_id: str) -> None:
        self._data_dir = data_dir
        self._store_id = store_id
        self._files = StagedFiles(data_dir)
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
        target = self._target(stage.target)
        columns, required = (ID_COLUMNS, "id") if target.kind == "fanout" else (COLUMNS, "payload")
        schema = canonical(reader.schema, columns, required)
        rows = (_checked(cast(one.data, schema), target) for one in reader)
        staged = self._files.write(stage, schema, rows)
        writer.write(pa.py_buffer(encode(staged)))

    # Committing

    def commit(self, asked: CommitAsked) -> Committed:
        with self._busy.alone(asked.job, asked.batch):
            known = self._known(asked)
            if known is None:
                known = self._commit(asked)
            self._files.remove(asked.job, asked.batch)
        return known

    def abort(self, asked: AbortAsked) -> None:
        with self._busy.alone(asked.job, asked.batch):
            self._files.remove(asked.job, asked.batch)

    def _commit(self, asked: CommitAsked) -> Committed:
        staged = self._files.paths(asked.job, asked.batch, asked.files)
        attempts = 0
        while True:
            path = self._files.new_prepared(asked.job, asked.batch)
            try:
                with self._preparing:
                    self._prepare(asked, staged, path)
                return self._ask_commit(asked, path)
            except AnswerError as error:
                attempts += 1
                if error.code != ops.CHANGED or attempts == ATTEMPTS_MAX:
                    raise
            finally:
                path.unlink(missing_ok=True)

    def _prepare(self, asked: CommitAsked, staged: list[Path], path: Path) -> None:
        target = self._target(asked.target)
        if target.kind == "fanout":
            prepare_ids(path, staged)
        else:
            prepare(path, staged, target, asked.job, self._store_id, self._gone)

    # The broker

    def _ask_commit(self, asked: CommitAsked, path: Path) -> Committed:
        order = CommitStage(
            asked.job,
            asked.batch,
            asked.target,
            path.name,
            asked.request,
            asked.data,
            asked.payload,
        )
        return msgspec.convert(
            self._ask(ops.COMMIT_STAGE, msgspec.structs.asdict(order), COMMIT_TIMEOUT_S), Committed
        )

    def _known(self, asked: CommitAsked) -> Committed | None:
        args: dict[str, object] = {"job": asked.job, "batch": asked.batch, "target": asked.target}
        answer = self._ask(ops.BATCH, args)
        return None if answer is None else msgspec.convert(answer, Committed)

    def _target(self, target: str) -> StageTarget:
        return msgspec.convert(self._ask(ops.STAGE_TARGET, {"target": target}), StageTarget)

    def _gone(self, letters: list[Letters]) -> list[Letters]:
        return msgspec.convert(self._ask(ops.STAGE_LETTERS, {"letters": letters}), list[Letters])

    def _ask(
        self, operation: str, args: dict[str, object], timeout_s: float = ASK_TIMEOUT_S
    ) -> object:
        return control_client.call(self._data_dir, operation, args, timeout_s)


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
