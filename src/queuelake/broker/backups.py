"""Backups which the broker makes: copies of the store in `<data-dir>/backups/NAME`, one at a time.

The copying is the work of a child process, which opens the store for itself. A backup which was
interrupted has no `store` in its directory and is never taken for one. Of a node with several
shards all stores are copied, that one last.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from queuelake import control_backup as ops
from queuelake.broker.operation import Operation
from queuelake.control_backup import NAME_PATTERN, BackupInfo, BackupList
from queuelake.errors import ConflictError, NotFoundError, RefusedError, StorageError
from queuelake.storage import shards
from queuelake.storage.api import Store
from queuelake.storage.backup import STORE_NAME
from queuelake.storage.backup_child import copy_in_child

DIRECTORY: Final = "backups"

_NAME: Final = re.compile(NAME_PATTERN)


class Backups:
    """Each method of the table answers one named request."""

    def __init__(self, data_dir: Path, store: Store) -> None:
        self._data_dir = data_dir
        self._directory = data_dir / DIRECTORY
        self._store = store
        self._running = ""  # the name of the one which is being made
        self._bytes_max = 0
        self._failed: dict[str, str] = {}  # why, by name
        self._work: asyncio.Task[None] | None = None
        self.on_end: Callable[[], None] = lambda: None  # a child has left the store

    def table(self) -> dict[str, Operation]:
        return {
            ops.BACKUPS: self.backups,
            ops.BACKUP: self.backup,
            ops.BACKUP_START: self.start,
            ops.BACKUP_DELETE: self.delete,
        }

    async def close(self) -> None:
        """What is being made is given up."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])

    def backups(self, _: dict[str, object]) -> BackupList:
        return BackupList([self._info(name) for name in sorted(self._names())])

    def backup(self, args: dict[str, object]) -> BackupInfo:
        return self._info(self._existing(args))

    async def start(self, args: dict[str, object]) -> BackupInfo:
        name = str(args.get("name") or time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime()))
        if not _NAME.fullmatch(name):
            raise RefusedError(
                f"backup name {name!r}: 1 to 64 letters, digits, dots, dashes and underscores"
            )
        if self._running:
            raise ConflictError(f"backup {self._running!r} is being made; one at a time")
        if len(self._names()) >= ops.BACKUPS_MAX:
            raise ConflictError(f"there are {ops.BACKUPS_MAX} backups, the most; delete some")
        directory = self._directory / name
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            directory.mkdir(mode=0o700)
        except FileExistsError:
            raise ConflictError(f"backup {name!r} is there already") from None
        except OSError as error:
            raise RefusedError(f"backup {name!r}: {directory}: {error.strerror}") from error
        self._failed.pop(name, None)
        self._bytes_max = self._store.size_bytes()[0] + self._other_bytes()
        self._running = name
        self._work = asyncio.create_task(self._copy(name, directory))
        self._work.add_done_callback(self._ended)
        return self._info(name)

    async def delete(self, args: dict[str, object]) -> None:
        name = self._existing(args)
        if name == self._running:
            raise ConflictError(f"backup {name!r} is being made; it can be deleted afterwards")
        try:
            await asyncio.to_thread(shutil.rmtree, self._directory / name)
        except OSError as error:
            raise RefusedError(f"backup {name!r} cannot be deleted: {error.strerror}") from error
        self._failed.pop(name, None)

    async def _copy(self, name: str, directory: Path) -> None:
        try:
            for shard in reversed(range(shards.count(self._data_dir))):
                place = shards.directory_of(directory, shard)
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                source = shards.directory_of(self._data_dir, shard) / STORE_NAME
                await copy_in_child(source, place)
        except StorageError as error:
            self._failed[name] = str(error)

    def _other_bytes(self) -> int:
        """What the stores of other shards take of the disk, for they may be somebody else's."""
        found = (self._data_dir / shards.FOLDER).glob(f"*/{STORE_NAME}/data.mdb")
        return sum([data.stat().st_blocks * 512 for data in found])

    def _ended(self, _: asyncio.Task[None]) -> None:
        self._running = ""
        self.on_end()

    def _names(self) -> list[str]:
        try:
            return [path.name for path in self._directory.iterdir() if _NAME.fullmatch(path.name)]
        except FileNotFoundError:
            return []

    def _existing(self, args: dict[str, object]) -> str:
        name = str(args.get("name", ""))
        if not _NAME.fullmatch(name) or not (self._directory / name).is_dir():
            raise NotFoundError(f"there is no backup {name!r}")
        return name

    def _info(self, name: str) -> BackupInfo:
        directory = self._directory / name
        running = name == self._running
        done = (directory / STORE_NAME).is_dir() and not running
        size, changed = 0, 0.0
        with contextlib.suppress(OSError):
            changed = directory.stat().st_mtime
            size = sum([data.stat().st_size for data in directory.glob("**/data.mdb")])
        error = self._failed.get(name, "")
        return BackupInfo(
            name,
            "running" if running else "done" if done else "failed" if error else "incomplete",
            str(directory),
            size,
            self._bytes_max if running else 0,
            int(changed * 1000),
            error,
        )
