"""The audit log: a line of JSON in `<data-dir>/audit.jsonl` for each change an operator made.

It is written where all of them pass, REST, gRPC, console and command line: at the control socket.
A line is on disk before the caller is answered. A file which is full becomes `audit.jsonl.1`, and
the one which had that name goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeVar

import msgspec

from queuelake import (
    control_access,
    control_admin,
    control_backup,
    control_cluster,
    control_ecq,
    control_mq,
    control_pipeline,
    control_queues,
    control_sdv,
)
from queuelake.control import Request
from queuelake.control_audit import ENTRIES_PER_PAGE_MAX, AuditEntry, AuditPage
from queuelake.errors import RefusedError

FILE_NAME: Final = "audit.jsonl"
FILE_BYTES_MAX: Final = 32 * 1024 * 1024
VALUE_BYTES_MAX: Final = 16 * 1024
LEVELS_MAX: Final = 50  # of a value; no good one has more than a few
READ_BYTES: Final = 64 * 1024
LOCAL: Final = "local"
HIDDEN: Final = "***"

T = TypeVar("T")

log = logging.getLogger(__name__)


class Change(NamedTuple):
    """An operation which changes something."""

    target: str = ""  # the argument which names what is changed
    before: str = ""  # the operation which tells, of the same arguments, how it was


CHANGES: Final = {
    "disconnect": Change("client_id"),
    control_admin.RETAINED_DELETE: Change("topic", control_admin.RETAINED_MESSAGE),
    control_admin.BAN_ADD: Change("value"),
    control_admin.BAN_REMOVE: Change("value"),
    control_access.USER_ADD: Change("name"),
    control_access.USER_CHANGE: Change("name", control_access.USER),
    control_access.USER_DELETE: Change("name", control_access.USER),
    control_access.ACL_REPLACE: Change("", control_access.ACL_RULES),
    control_backup.BACKUP_START: Change("name"),
    control_backup.BACKUP_DELETE: Change("name", control_backup.BACKUP),
    control_queues.QUEUE_CONFIGURE: Change("name", control_queues.QUEUE),
    control_queues.QUEUE_DELETE: Change("name", control_queues.QUEUE),
    control_queues.QUEUE_PURGE: Change("name"),
    control_queues.QUEUE_DLQ_RETRY: Change("name"),
    control_queues.QUEUE_DLQ_DISCARD: Change("name"),
    control_queues.QUEUE_DLQ_RETRY_MANY: Change("name"),
    control_queues.QUEUE_DLQ_DISCARD_MANY: Change("name"),
    control_queues.QUEUE_PUBLISH: Change("name"),
    control_queues.QUEUE_GROUP_DELETE: Change("name"),
    control_mq.MQ_CREATE: Change(),
    control_mq.MQ_UPDATE: Change("name", control_mq.MQ_QUEUE),
    control_mq.MQ_DELETE: Change("name", control_mq.MQ_QUEUE),
    control_mq.MQ_CONFIGURE: Change("", control_mq.MQ_CONFIG),
    control_mq.MQ_COLLECT_GARBAGE: Change(),
    control_ecq.ECQ_REWIND: Change("owner"),
    control_ecq.ECQ_GC: Change(),
    control_ecq.ECQ_CONFIGURE: Change("", control_ecq.ECQ_CONFIG),
    control_pipeline.JOB_START: Change("id"),
    control_pipeline.JOB_CANCEL: Change("id", control_pipeline.JOB),
    control_cluster.CLUSTER_TRANSFER: Change("node"),
    control_cluster.CLUSTER_REBALANCE: Change(),
    control_cluster.CLUSTER_DRAIN: Change(),
    control_cluster.CLUSTER_REMOVE: Change("node"),
    control_sdv.SDV_CANCEL: Change("request_id"),
    control_sdv.SDV_GC: Change(),
    control_sdv.SDV_CONFIGURE: Change("", control_sdv.SDV_CONFIG),
}

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(AuditEntry).decode


class Audit:
    """The log of one data directory; reading and writing happen in a thread of its own."""

    def __init__(self, data_dir: Path, now_ms: Callable[[], int]) -> None:
        self._path = data_dir / FILE_NAME
        self._older = data_dir / (FILE_NAME + ".1")
        self._now_ms = now_ms
        self._last_id = -1  # not known yet
        self._thread = ThreadPoolExecutor(1, "audit")
        self.written = 0  # since the start
        self.failures = 0

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    async def note(self, request: Request, before: object, after: object, refused: str) -> None:
        """Write down a change; one which cannot be written is in the log of the broker, at least.

        What was done is not undone for that.
        """
        change = CHANGES[request.op]
        entry = AuditEntry(
            0,
            self._now_ms(),
            request.caller or LOCAL,
            request.op,
            str(request.args.get(change.target, "")) if change.target else "",
            {
                name: HIDDEN if name in control_access.SECRETS and value else _shown(value)
                for name, value in request.args.items()
                if name != change.target
            },
            _shown(before),
            _shown(after),
            refused,
        )
        try:
            await self._in_thread(lambda: self._append(entry))
            self.written += 1
        except OSError as error:
            self.failures += 1
            log.error("audit: %s (%s)", _encode(entry).decode(), error)

    async def page(self, args: dict[str, object]) -> AuditPage:
        """The entries before `cursor`, the newest first; of one caller, operation or target."""
        limit, cursor = args.get("limit", 100), str(args.get("cursor", ""))
        if not isinstance(limit, int) or not 1 <= limit <= ENTRIES_PER_PAGE_MAX:
            raise RefusedError(f"limit {limit!r}: from 1 to {ENTRIES_PER_PAGE_MAX}")
        if cursor and not cursor.isdecimal():
            raise RefusedError(f"cursor {cursor!r} is none of ours")
        wanted = {name: args[name] for name in ("caller", "operation", "target") if args.get(name)}
        return await self._in_thread(lambda: self._read(limit, int(cursor or 0), wanted))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # In the thread

    def _append(self, entry: AuditEntry) -> None:
        if self._last_id < 0:
            self._last_id = next((former.id for former in self._backwards()), 0)
        self._last_id += 1
        line = _encode(msgspec.structs.replace(entry, id=self._last_id)) + b"\n"
        if self._path.exists() and self._path.stat().st_size + len(line) > FILE_BYTES_MAX:
            self._path.replace(self._older)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(descriptor, "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def _read(self, limit: int, before: int, wanted: dict[str, object]) -> AuditPage:
        entries: list[AuditEntry] = []
        for entry in self._backwards():
            if before and entry.id >= before:
                continue
            if any(getattr(entry, name) != value for name, value in wanted.items()):
                continue
            if len(entries) == limit:
                return AuditPage(entries, str(entries[-1].id))
            entries.append(entry)
        return AuditPage(entries)

    def _backwards(self) -> Iterator[AuditEntry]:
        for path in (self._path, self._older):
            try:
                with path.open("rb") as file:
                    for line in _lines_backwards(file):
                        with contextlib.suppress(
                            msgspec.MsgspecError, RecursionError
                        ):  # cut by a crash
                            yield _decode(line)
            except FileNotFoundError:
                continue


def _lines_backwards(file: BinaryIO) -> Iterator[bytes]:
    at = file.seek(0, os.SEEK_END)
    rest = b""
    while at > 0:
        size = min(READ_BYTES, at)
        at -= size
        file.seek(at)
        rest = file.read(size) + rest
        rest, *lines = rest.split(b"\n")
        yield from (line for line in reversed(lines) if line)
    if rest:
        yield rest


def _shown(value: object) -> object:
    """A value as the log keeps it: JSON where it is JSON, else text, and never too long."""
    if isinstance(value, bytes):
        value = _read(value)
    encoded = _encode(value)
    try:
        msgspec.msgpack.encode(value)  # as it will be answered
    except OverflowError:  # a number which no field can be
        return encoded[:VALUE_BYTES_MAX].decode(errors="replace")
    if len(encoded) > VALUE_BYTES_MAX:
        return f"{len(encoded)} bytes, from {encoded[:200].decode(errors='replace')}"
    return value


def _read(body: bytes) -> object:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body.decode(errors="replace")
    # Who reads the log has less room for levels than who wrote this.
    return body.decode() if _is_deep(value, LEVELS_MAX) else value


def _is_deep(value: object, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deep(one, levels - 1) for one in inner)
