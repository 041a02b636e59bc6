"""Vehicles of a fan-out batch, in the order of the store: by the hash of their names."""

from __future__ import annotations

from pathlib import Path

from queuelake.errors import RefusedError


def prepare_ids(path: Path, staged: list[Path]) -> None:
    raise RefusedError("fan-out in bulk is not there yet")
