"""The broker's side of the control socket: named operations, called by admin and the CLI.

An operation is a function of its arguments, plain or async; what it returns is the answer. A
`QueuelakeError` is an answer too. Anything else is our mistake: it goes to the log whole, and the
caller learns only that it happened. An operation that was begun runs to its end even when its
caller goes away, so that no operation has to be safe against being cut in the middle.

Start the server only when the store is open: the store's lock is what makes sure that a socket
found in the data directory belongs to a dead broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from queuelake.broker.audit import CHANGES, Audit
from queuelake.broker.operation import Operation, perform
from queuelake.control import (
    SOCKET_NAME,
    SOCKET_PATH_BYTES_MAX,
    SOCKET_POINTER_NAME,
    Failure,
    Request,
    Response,
    encode_frame,
    read_frame,
)
from queuelake.errors import FrameError, NotFoundError, QueuelakeError

CONNECTIONS_MAX = 64
REQUESTS_PER_CONNECTION_MAX = 64
PRIVATE_DIR_PREFIX = "queuelake-"


log = logging.getLogger(__name__)

_decode_request = msgspec.msgpack.Decoder(Request).decode


class ControlServer:
    """Serves `operations` on the control socket of one data directory."""

    def __init__(
        self, data_dir: Path, operations: Mapping[str, Operation], audit: Audit | None = None
    ) -> None:
        self._data_dir = data_dir
        self._operations = operations
        self._audit = audit
        self._server: asyncio.AbstractServer | None = None
        self._path: Path | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._running: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._path = _place(self._data_dir)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(str(self._path))
            # Between bind and listen nobody can connect, so the mode is never too wide.
            self._path.chmod(0o600)
            sock.setblocking(False)
            self._server = await asyncio.start_unix_server(self.serve, sock=sock)
        except BaseException:
            sock.close()
            raise

    async def close(self, timeout_s: float = 5.0) -> None:
        """Stop listening, drop the connections, and let running operations end in `timeout_s`."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for task in list(self._connections):
            task.cancel()
        ending = self._connections | self._running
        if ending:
            _, late = await asyncio.wait(ending, timeout=timeout_s)
            for task in late:
                task.cancel()
        _remove_socket(self._data_dir)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= CONNECTIONS_MAX:
            log.warning("control connection refused: %d are open", CONNECTIONS_MAX)
            writer.close()
            return
        self._connections.add(task)
        try:
            await self._read_requests(reader, writer)
        except (FrameError, msgspec.MsgspecError) as exc:
            log.warning("control connection closed: %s", exc)
        except asyncio.CancelledError:
            pass  # close() is the only one who cancels, and it waits for this end
        finally:
            self._connections.discard(task)
            writer.close()

    async def _read_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        slots = asyncio.Semaphore(REQUESTS_PER_CONNECTION_MAX)
        while (body := await read_frame(reader)) is not None:
            request = _decode_request(body)
            await slots.acquire()
            running = asyncio.create_task(self._answer(request, writer, slots))
            self._running.add(running)
            running.add_done_callback(self._running.discard)

    async def _answer(
        self, request: Request, writer: asyncio.StreamWriter, slots: asyncio.Semaphore
    ) -> None:
        try:
            frame = await self._perform(request)
            # The caller may be gone; there is nobody to tell then.
            if not writer.is_closing():
                with contextlib.suppress(ConnectionError):
                    writer.write(frame)
                    await writer.drain()
        finally:
            slots.release()

    async def _perform(self, request: Request) -> bytes:
        try:
            operation = self._operations.get(request.op)
            if operation is None:
                raise NotFoundError(f"there is no control operation {request.op!r}")
            if self._audit is not None and request.op in CHANGES:
                result = await self._change(self._audit, operation, request)
            else:
                result = await perform(operation, request.args)
            raw = msgspec.Raw(msgspec.msgpack.encode(result))
            return encode_frame(Response(request.id, True, result=raw))
        except QueuelakeError as exc:
            error = Failure(exc.code, str(exc), exc.http_status)
        except Exception:
            log.exception("control operation %r failed", request.op)
            error = Failure("INTERNAL_ERROR", f"{request.op} failed; see the broker's log", 500)
        return encode_frame(Response(request.id, False, error=error))

    async def _change(self, audit: Audit, operation: Operation, request: Request) -> object:
        """Run an operation which changes something, and write down what it did."""
        look = CHANGES[request.op].before
        before = None
        if look:
            with contextlib.suppress(QueuelakeError):  # there was nothing
                before = await perform(self._operations[look], request.args)
        try:
            result = await perform(operation, request.args)
        except QueuelakeError as exc:
            await audit.note(request, before, None, str(exc))
            raise
        await audit.note(request, before, result, "")
        return result


def _place(data_dir: Path) -> Path:
    """Clear away what a killed broker left, and choose where to listen."""
    _remove_socket(data_dir)
    path = data_dir.resolve() / SOCKET_NAME
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        return path
    path = Path(tempfile.mkdtemp(prefix=PRIVATE_DIR_PREFIX)) / SOCKET_NAME
    draft = data_dir / (SOCKET_POINTER_NAME + ".new")
    draft.write_text(f"{path}\n", encoding="utf-8")
    draft.replace(data_dir / SOCKET_POINTER_NAME)
    return path


def _remove_socket(data_dir: Path) -> None:
    (data_dir / SOCKET_NAME).unlink(missing_ok=True)
    pointer = data_dir / SOCKET_POINTER_NAME
    try:
        private_dir = Path(pointer.read_text(encoding="utf-8").strip()).parent
    except FileNotFoundError:
        return
    # The file may have been edited: only what looks like our own directory is removed.
    if private_dir.name.startswith(PRIVATE_DIR_PREFIX):
        shutil.rmtree(private_dir, ignore_errors=True)
    pointer.unlink(missing_ok=True)
