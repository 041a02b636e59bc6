"""One blocking interface over different MQTT client libraries, so that one scenario serves all.

A witness is a client somebody else wrote, from its own reading of the standard. `publish` returns
when the server has acknowledged, `subscribe` when SUBACK is here; `drop` cuts the network without
DISCONNECT. The asynchronous libraries run on a loop in a thread of their own.
"""

from __future__ import annotations

import asyncio
import queue
import ssl
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

TIMEOUT_S = 15.0
SESSION_EXPIRY_S = 300
Result = TypeVar("Result")


@dataclass(frozen=True)
class Message:
    topic: str
    payload: bytes
    qos: int
    retain: bool


@dataclass(frozen=True)
class Endpoint:
    """Where and how to connect; for a Unix socket `host` is its path."""

    host: str
    port: int
    transport: Literal["tcp", "websockets", "unix"] = "tcp"
    tls: ssl.SSLContext | None = None


class Witness(Protocol):
    """A connected client."""

    session_present: bool

    def subscribe(self, filter_: str, qos: int) -> None: ...

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None: ...

    def next_message(self) -> Message:
        """The next message; raises queue.Empty when none comes in time."""

    def drop(self) -> None: ...

    def close(self) -> None: ...


class Connect(Protocol):
    """How a library makes a witness."""

    def __call__(
        self,
        endpoint: Endpoint,
        client_id: str,
        level: int,
        *,
        clean: bool = True,
        will: Message | None = None,
    ) -> Witness: ...


class Inbox:
    """Messages which arrived, handed from the library's thread to the test's."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Message] = queue.Queue()

    def put(self, message: Message) -> None:
        self._queue.put(message)

    def next_message(self) -> Message:
        return self._queue.get(timeout=TIMEOUT_S)


class LoopThread:
    """An event loop in a thread; `run` executes a coroutine there and waits for its result."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()
