"""The store of another node, copied through a tunnel: for a new replica, or one too far behind.

The node which has it makes a copy as a backup does, one at a time, and sends its size, its bytes
and their SHA-256; the copy is deleted when the tunnel ends. The position in the log is in the copy,
and so is the id of the store: a replica is the same store.

The node which asks writes to `store.partial` beside its own store. It is a store when everything
was checked and synced, and in use when `install_copy` has put it into its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from queuelake.cluster.tunnel_transport import Tunnel
from queuelake.cluster.tunnels import Tunnels
from queuelake.errors import StorageError
from queuelake.storage.backup import PARTIAL_NAME, STORE_NAME, sync_path
from queuelake.storage.backup_child import copy_in_child

log = logging.getLogger("queuelake.copying")

KIND: Final = "store"
DIRECTORY: Final = "copying"  # in the data directory, while there is a copy
DATA_NAME: Final = "data.mdb"
OLD_NAME: Final = "store.old"
CHUNK_BYTES: Final = 256 * 1024
SIZE_BYTES: Final = 8

Progress = Callable[[int, int], None]  # bytes which are here, bytes in all


class StoreCopies:
    """Serves copies of the store in `data_dir`: `accept` is for tunnels of kind "store".

    `on_end` is called when a child has left the store.
    """

    def __init__(self, data_dir: Path, on_end: Callable[[], None] = lambda: None) -> None:
        self._source = data_dir / STORE_NAME
        self._directory = data_dir / DIRECTORY
        self._on_end = on_end
        self._sending: set[asyncio.Task[None]] = set()
        self._busy_for = ""  # the node which gets one
        self._at_work: asyncio.Task[None] | None = None

    def accept(self, info: dict[str, object]) -> asyncio.Protocol:
        return _Sender(self)

    async def close(self) -> None:
        """Give up what is being sent."""
        for task in self._sending:
            self.give_up(task)
        if self._sending:
            await asyncio.wait(self._sending)

    def send(self, tunnel: Tunnel, may_write: asyncio.Event) -> asyncio.Task[None]:
        task = asyncio.create_task(self._send(tunnel, may_write))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        return task

    def give_up(self, task: asyncio.Task[None]) -> None:
        """Who asked is gone, or has everything."""
        if task is self._at_work:  # it may be deleting its copy, which is not to be disturbed
            task.cancel()

    async def _send(self, tunnel: Tunnel, may_write: asyncio.Event) -> None:
        node = str(tunnel.get_extra_info("node"))
        if self._busy_for:
            tunnel.reset(f"a copy for node {self._busy_for} is being made; one at a time")
            return
        self._busy_for = node
        self._at_work = asyncio.current_task()
        try:
            await self._make()
            with open(self._directory / STORE_NAME / DATA_NAME, "rb") as file:
                await _send_file(file, tunnel, may_write)
            log.info("node %s has a copy of the store", node)
        except (StorageError, OSError) as error:
            log.error("node %s gets no copy of the store: %s", node, error)
            tunnel.reset(str(error))
        finally:
            self._at_work = None
            tunnel.close()
            await _delete(self._directory)
            self._busy_for = ""

    async def _make(self) -> None:
        await _delete(self._directory)  # left by a process which was killed
        self._directory.mkdir(mode=0o700)
        try:
            await copy_in_child(self._source, self._directory, keep_id=True)
        finally:
            self._on_end()


class _Sender(asyncio.Protocol):
    """The serving end of a tunnel: nothing is read from it."""

    def __init__(self, copies: StoreCopies) -> None:
        self._copies = copies
        self._may_write = asyncio.Event()
        self._may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Tunnel)
        self._task = self._copies.send(transport, self._may_write)

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._copies.give_up(self._task)


async def _send_file(file: BinaryIO, tunnel: Tunnel, may_write: asyncio.Event) -> None:
    size = left = os.fstat(file.fileno()).st_size
    digest = hashlib.sha256()

    def next_chunk() -> bytes:
        data = file.read(min(CHUNK_BYTES, left))
        digest.update(data)
        return data

    tunnel.write(size.to_bytes(SIZE_BYTES))
    while left:
        data = await asyncio.to_thread(next_chunk)
        if not data:
            raise StorageError(f"the copy ended {left} bytes before its size of {size}")
        left -= len(data)
        tunnel.write(data)
        await may_write.wait()
    tunnel.write(digest.digest())


async def fetch_copy(
    tunnels: Tunnels,
    node: str,
    directory: Path,
    progress: Progress = lambda done, total: None,
    *,
    shard: int = 0,
) -> Path:
    """Copy the store of that node to `directory/store.partial`; returns where it is.

    Raises:
        StorageError: there is no copy, and nothing is left of it.
    """
    partial = directory / PARTIAL_NAME
    reader = asyncio.StreamReader(limit=CHUNK_BYTES)
    tunnel = tunnels.open(node, KIND, {"shard": shard}, asyncio.StreamReaderProtocol(reader))
    try:
        await _delete(partial)
        partial.mkdir(mode=0o700)
        descriptor = os.open(partial / DATA_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            await _receive_file(reader, file, directory, progress)
            await asyncio.to_thread(_sync_file, file)
        for path in (partial, directory):
            sync_path(path)
    except BaseException as error:
        await _delete(partial)
        if isinstance(error, asyncio.IncompleteReadError):
            error = StorageError("it ended too early")
        if isinstance(error, (StorageError, OSError)):
            raise StorageError(f"copy of the store of node {node}: {error}") from None
        raise
    finally:
        tunnel.abort()
    return partial


async def _receive_file(
    reader: asyncio.StreamReader, file: BinaryIO, directory: Path, progress: Progress
) -> None:
    total = int.from_bytes(await reader.readexactly(SIZE_BYTES))
    free = shutil.disk_usage(directory).free
    if total > free:
        raise StorageError(f"it has {total} bytes, and {directory} {free} which are free")
    digest = hashlib.sha256()
    done = 0

    def keep(data: bytes) -> None:
        digest.update(data)
        file.write(data)

    while done < total:
        data = await reader.read(min(CHUNK_BYTES, total - done))
        if not data:
            raise StorageError(f"it ended after {done} of {total} bytes")
        await asyncio.to_thread(keep, data)
        done += len(data)
        progress(done, total)
    if await reader.readexactly(digest.digest_size) != digest.digest():
        raise StorageError(f"its {total} bytes are not those which were sent")


async def _delete(directory: Path) -> None:
    """In a thread: to free a large file takes time."""
    await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


def _sync_file(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def install_copy(directory: Path) -> None:
    """Put what `fetch_copy` has made into the place of the store, which nobody has open.

    A crash in the middle may leave no store at all: a node without one fetches a copy anyway.
    """
    store, old = directory / STORE_NAME, directory / OLD_NAME
    shutil.rmtree(old, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        store.rename(old)
    (directory / PARTIAL_NAME).rename(store)
    sync_path(directory)
    shutil.rmtree(old, ignore_errors=True)
