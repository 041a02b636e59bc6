"""A prepared batch on its way to the node which takes it, where a cluster has several shards.

Rows are staged at any node; the owner of their shard may be another one. It gets the file in parts
before the order to commit it, and deletes it after that. When the owner changes in between the file
is missing at the new one: the batch is prepared again, and passed to whoever it is then.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from queuelake import control_pipeline as ops
from queuelake.control_pipeline import CommitStage, StagePart
from queuelake.errors import BrokerDownError, RefusedError
from queuelake.flight import Committed

PART_BYTES: Final = 512 * 1024
PASSED: Final = ".passed"  # how the file is called at the owner
COMMIT_TIMEOUT_S: Final = 900.0  # as long as whoever asked waits
AGAIN_S: Final = 1.0

T = TypeVar("T")


class Node(Protocol):
    """What is needed of a node with several shards."""

    name: str

    def owner(self, shard: int) -> str: ...

    async def ask(self, shard: int, name: str, args: dict[str, object], kind: type[T]) -> T: ...


class ChangedError(RefusedError):
    """What was prepared does not fit any more: prepare it again."""

    http_status = 409
    code = ops.CHANGED


def path_of(staging: Path, job: str, batch: int, file: str) -> Path:
    """Below our own folder, whatever the caller says."""
    folder = hashlib.blake2b(job.encode(), digest_size=16).hexdigest()
    return staging / folder / str(batch) / Path(file).name


# At the node which was asked


async def commit_stage(node: Node, data_dir: Path, args: dict[str, object]) -> Committed:
    """The operation of that name for the shard in the arguments."""
    shard = msgspec.convert(args.get("shard", 0), int)
    owner = node.owner(shard)
    if owner and owner != node.name:
        args = {**args, "file": await _pass(node, shard, data_dir / "staging", args)}
    loop = asyncio.get_running_loop()
    until = loop.time() + COMMIT_TIMEOUT_S
    while True:
        try:
            return await node.ask(shard, ops.COMMIT_STAGE, args, Committed)
        except BrokerDownError:
            # It may take longer than the answer is waited for: then this asks how it ended.
            if node.owner(shard) != owner or not owner or loop.time() > until:
                raise
        await asyncio.sleep(AGAIN_S)


async def _pass(node: Node, shard: int, staging: Path, args: dict[str, object]) -> str:
    asked = msgspec.convert(args, CommitStage)
    path = path_of(staging, asked.job, asked.batch, asked.file)
    name = path.with_suffix(PASSED).name
    at = 0
    while True:
        data = await asyncio.to_thread(_read, path, at)
        if not data:
            return name
        part = StagePart(asked.job, asked.batch, name, at, data)
        await node.ask(shard, ops.STAGE_PART, msgspec.structs.asdict(part), type(None))
        at += len(data)


def _read(path: Path, at: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        file.seek(at)
        return file.read(PART_BYTES)


# At the owner


def keep(staging: Path, part: StagePart) -> None:
    """
    Raises:
        RefusedError: this part does not follow the one before it.
    """
    path = path_of(staging, part.job, part.batch, part.file)
    if path.suffix != PASSED:
        raise RefusedError(f"file {path.name!r} is none which is passed on")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with path.open("r+b" if part.at else "wb") as file:
            if file.seek(0, os.SEEK_END) != part.at:
                raise ChangedError(f"part of a batch at {part.at}; {file.tell()} bytes are there")
            file.write(part.data)
    except FileNotFoundError:
        raise ChangedError("the first parts of a batch are not here") from None


def forget(path: Path) -> None:
    """A file of another node, when its batch was committed or not."""
    if path.suffix == PASSED:
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others of the batch, or of the job, are there
            path.parent.rmdir()
            path.parent.parent.rmdir()
