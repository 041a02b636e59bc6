"""Rows which are staged: written aside by `do_put`, made visible by `commit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from queuelake.errors import RefusedError
from queuelake.flight import AbortAsked, CommitAsked, Committed, Stage


class Staging:
    """The staged batches of one data directory; its methods are called by any thread."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def do_put(self, stage: Stage, _reader: Any, _writer: Any) -> None:
        raise RefusedError(f"nothing can be staged for {stage.target!r} yet")

    def commit(self, asked: CommitAsked) -> Committed:
        raise RefusedError(f"nothing can be committed to {asked.target!r} yet")

    def abort(self, asked: AbortAsked) -> None:
        raise RefusedError(f"nothing was staged for job {asked.job!r}")
