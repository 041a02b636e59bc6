"""Calling a broker over its control connection; `control` says what may be asked."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from queuelake.control import (
    CALLER,
    LENGTH_BYTES,
    Failure,
    Request,
    Response,
    encode_frame,
    frame_length,
    read_frame,
    socket_path,
)
from queuelake.errors import AnswerError, BrokerDownError, FrameError

T = TypeVar("T")

_decode_response = msgspec.msgpack.Decoder(Response).decode

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Calls:
    """Calls a broker from asyncio code: many calls at a time over one connection.

    The connection is made by the first call, and again by the first call after it was lost.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Streams]], broker: str, timeout_s: float
    ) -> None:
        self._connect = connect
        self._broker = broker  # in words: which one it is
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._connecting = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._receiving: asyncio.Task[None] | None = None

    async def call(
        self,
        op: str,
        kind: type[T],
        args: dict[str, object] | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """Run one operation of the broker and return its answer as `kind`.

        Raises:
            BrokerDownError: nobody listens, the connection broke, or the time is over; whether
                the operation was done is not known in the last two cases.
            AnswerError: the broker said no.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        request = Request(next(self._ids), op, args or {}, CALLER.get())
        frame = encode_frame(request)
        try:
            async with asyncio.timeout(limit_s):
                response = await self._exchange(request.id, frame)
        except TimeoutError:
            raise _too_slow(op, limit_s) from None
        except OSError as exc:
            raise _unreachable(self._broker, exc) from exc
        finally:
            self._waiting.pop(request.id, None)
        return _result(op, response, kind)

    async def close(self) -> None:
        receiving, self._receiving = self._receiving, None
        if receiving is not None:
            receiving.cancel()
            await asyncio.wait([receiving])

    async def _exchange(self, request_id: int, frame: bytes) -> Response:
        writer = await self._connection()
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        writer.write(frame)
        # A connection which is lost here ends the answer as well, with its reason.
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        return await answer

    async def _connection(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer is None:
                reader, self._writer = await self._connect()
                self._receiving = asyncio.create_task(self._receive(reader, self._writer))
            return self._writer

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reason = "the broker closed the control connection"
        try:
            while (body := await read_frame(reader)) is not None:
                response = _decode_response(body)
                waiting = self._waiting.get(response.id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(response)
        except (FrameError, msgspec.MsgspecError) as exc:
            reason = f"the broker sent what is not an answer: {exc}"
        finally:
            self._writer = None
            writer.close()
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(BrokerDownError(reason))


class ControlClient(Calls):
    """Calls the broker of a data directory."""

    def __init__(self, data_dir: Path, timeout_s: float = 5.0) -> None:
        async def connect() -> Streams:
            return await asyncio.open_unix_connection(str(socket_path(data_dir)))

        super().__init__(connect, _in_words(data_dir), timeout_s)


def call(data_dir: Path, op: str, args: dict[str, object], timeout_s: float) -> object:
    """Run one operation of the broker from code without an event loop; errors as ControlClient.

    The answer is made of plain dicts and lists; `msgspec.convert` turns it into a Struct.
    """
    deadline = time.monotonic() + timeout_s
    frame = encode_frame(Request(1, op, args, CALLER.get()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.settimeout(timeout_s)
            sock.connect(str(socket_path(data_dir)))
            sock.sendall(frame)
            length = frame_length(_receive_exactly(sock, LENGTH_BYTES, deadline))
            response = _decode_response(_receive_exactly(sock, length, deadline))
        except TimeoutError:
            raise _too_slow(op, timeout_s) from None
        except OSError as exc:
            raise _unreachable(_in_words(data_dir), exc) from exc
        except (FrameError, msgspec.MsgspecError) as exc:
            raise BrokerDownError(f"the broker sent what is not an answer: {exc}") from exc
    return _result(op, response, object)


def _receive_exactly(sock: socket.socket, size: int, deadline: float) -> bytes:
    received = bytearray()
    while len(received) < size:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        sock.settimeout(left_s)
        part = sock.recv(min(size - len(received), 256 * 1024))
        if not part:
            raise BrokerDownError("the broker closed the control connection")
        received += part
    return bytes(received)


def _result(op: str, response: Response, kind: type[T]) -> T:
    if not response.ok:
        error = response.error or Failure("INTERNAL_ERROR", f"{op} failed without a reason", 500)
        raise AnswerError(error.code, error.message, error.http_status)
    try:
        return msgspec.msgpack.decode(response.result, type=kind)
    except msgspec.MsgspecError as exc:
        # Only when the package was replaced under a running broker.
        raise BrokerDownError(f"the answer to {op!r} is of another version: {exc}") from exc


def _too_slow(op: str, limit_s: float) -> BrokerDownError:
    return BrokerDownError(f"the broker did not answer {op!r} within {limit_s:g} s")


def _in_words(data_dir: Path) -> str:
    return f"broker answers for data directory '{data_dir}'"


def _unreachable(broker: str, exc: OSError) -> BrokerDownError:
    return BrokerDownError(f"no {broker}: {exc.strerror or exc}")
