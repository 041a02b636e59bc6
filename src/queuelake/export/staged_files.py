"""Where staged rows lie: Arrow files in a folder for each batch.

    <data-dir>/staging/{hash of the job}/{batch}/{hash of the task}-{random}.arrow
                                                 {the same}.json    what it is, for people
                                                 {random}.prepared  for the broker, for a moment

No name which a caller chose is part of a path, and a file is there when all of it is on disk.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from queuelake.errors import RefusedError
from queuelake.flight import JOB_CHARACTERS_MAX, STAGE_KEPT_S, Stage, Staged

BATCH_MAX: Final = (1 << 63) - 1
TASK_CHARACTERS_MAX: Final = 1_000
FILES_MAX: Final = 100_000  # of one batch
FILE_BYTES_MAX: Final = 8 * 1024**3

_FILE: Final = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}\.arrow")


class StagedFiles:
    """The folder `staging` of a data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._root = data_dir / "staging"

    def folder(self, job: str, batch: int) -> Path:
        """
        Raises:
            RefusedError: a batch cannot be named so.
        """
        if not 0 < len(job) <= JOB_CHARACTERS_MAX:
            problem = f"job has {len(job)} characters; allowed: 1 to {JOB_CHARACTERS_MAX}"
            raise RefusedError(problem)
        if not 0 <= batch <= BATCH_MAX:
            raise RefusedError(f"batch {batch}: allowed: 0 to {BATCH_MAX}")
        name = hashlib.blake2b(job.encode("utf-8", "replace"), digest_size=16).hexdigest()
        return self._root / name / str(batch)

    def write(self, stage: Stage, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Staged:
        """Keep the rows of one task; they are durable when this returns."""
        folder = self.folder(stage.job, stage.batch)
        if len(stage.task) > TASK_CHARACTERS_MAX:
            problem = f"task has {len(stage.task)} characters; limit: {TASK_CHARACTERS_MAX}"
            raise RefusedError(problem)
        _make(folder)
        task = hashlib.blake2b(stage.task.encode("utf-8", "replace"), digest_size=8).hexdigest()
        path = folder / f"{task}-{secrets.token_hex(8)}.arrow"
        draft = path.with_suffix(".part")
        try:
            rows, size = _write_file(draft, schema, batches)
            staged = Staged(path.name, rows, size)
            about = msgspec.json.encode({"stage": stage, "staged": staged})
            path.with_suffix(".json").write_bytes(about)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        _sync(folder)
        return staged

    def paths(self, job: str, batch: int, files: list[str]) -> list[Path]:
        """The files of a batch, in the order in which they were named.

        Raises:
            RefusedError: one of them is none.
        """
        folder = self.folder(job, batch)
        if len(files) > FILES_MAX:
            raise RefusedError(f"batch of {len(files)} files; limit: {FILES_MAX}")
        if len(set(files)) < len(files):
            raise RefusedError("a file is named twice in one batch")
        found: list[Path] = []
        for name in files:
            if not _FILE.fullmatch(name) or not (folder / name).is_file():
                problem = f"file {name[:80]!r} was not staged for batch {batch} of job {job!r}"
                raise RefusedError(f"{problem}, or not lately: write it again")
            found.append(folder / name)
        return found

    def new_prepared(self, job: str, batch: int) -> Path:
        folder = self.folder(job, batch)
        _make(folder)
        return folder / f"{secrets.token_hex(8)}.prepared"

    def remove(self, job: str, batch: int) -> None:
        folder = self.folder(job, batch)
        shutil.rmtree(folder, ignore_errors=True)
        _remove_if_empty(folder.parent)

    def sweep(self, now_s: float | None = None) -> int:
        """Delete batches in which nothing was written for long; returns how many."""
        old_s = (time.time() if now_s is None else now_s) - STAGE_KEPT_S
        removed = 0
        for folder in self._root.glob("*/*"):
            try:
                newest = max([one.stat().st_mtime for one in [folder, *folder.iterdir()]])
            except OSError:
                continue  # it has just gone
            if newest < old_s:
                shutil.rmtree(folder, ignore_errors=True)
                _remove_if_empty(folder.parent)
                removed += 1
        return removed


def _write_file(
    path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> tuple[int, int]:
    rows = 0
    with path.open("xb") as file:
        with pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
                if file.tell() > FILE_BYTES_MAX:
                    raise RefusedError(
                        f"a task has written {file.tell()} bytes; limit: {FILE_BYTES_MAX};"
                        " use more partitions"
                    )
        file.flush()
        os.fsync(file.fileno())
        return rows, file.tell()


def _make(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for above in (folder.parent, folder.parent.parent, folder.parent.parent.parent):
            _sync(above)


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # other batches of the job are there
