"""The SDK without asyncio: the same names, each call returns when it is done.

    with Client("127.0.0.1") as client:
        client.queue("tasks/x").publish(b"work", key="user-123")
        for message in client.queue("tasks/x").consume(group="workers"):
            message.ack()

An asynchronous client runs on a loop in a thread of its own and keeps the connection alive,
however long the application works on a message. Any thread may call.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from queuelake.client import client as asynchronous
from queuelake.client import delivery, queue, subscription
from queuelake.client.errors import ClientClosedError
from queuelake.client.message import Message, QueueMessage

if TYPE_CHECKING:
    from typing import Unpack

    from queuelake.client.client import ClientOptions
    from queuelake.client.queue import ConsumeOptions, PublishOptions

S = TypeVar("S")
T = TypeVar("T")

__all__ = ["Client", "Delivery", "Message", "Queue", "QueueMessage", "Subscription"]


class Client:
    """As `queuelake.client.Client`, with `with` instead of `async with`."""

    def __init__(
        self, host: str = "127.0.0.1", port: int | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        self._client = asynchronous.Client(host, port, **options)
        self._loop = _LoopThread()

    def __enter__(self) -> Self:
        self._loop.start()
        try:
            self._loop.run(self._client.__aenter__())
        except BaseException:
            self._loop.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._loop.run(self._client.__aexit__(kind, error, trace))
        finally:
            self._loop.stop()

    @property
    def client_id(self) -> str:
        return self._client.client_id

    @property
    def connected(self) -> bool:
        return self._client.connected

    def queue(self, name: str) -> Queue:
        return Queue(self._loop, self._client.queue(name))

    def publish(
        self,
        topic: str,
        payload: bytes | str,
        *,
        qos: int = 1,
        retain: bool = False,
        expiry: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._loop.run(
            self._client.publish(
                topic, payload, qos=qos, retain=retain, expiry=expiry, properties=properties
            )
        )

    def subscribe(self, topic_filter: str, *, qos: int = 1) -> Subscription[Message, Message]:
        return Subscription(
            self._loop, self._client.subscribe(topic_filter, qos=qos), lambda message: message
        )

    def request(
        self,
        queue: str,
        payload: bytes | str,
        *,
        timeout: float = 5.0,
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> QueueMessage:
        return self._loop.run(
            self._client.request(queue, payload, timeout=timeout, key=key, properties=properties)
        )

    def serve(
        self, queue: str, *, group: str = asynchronous.SERVE_GROUP, prefetch: int | None = None
    ) -> Subscription[delivery.Delivery, Delivery]:
        return self.queue(queue).consume(group=group, prefetch=prefetch)

    def reply(
        self,
        request: Delivery,
        payload: bytes | str,
        *,
        properties: Mapping[str, str] | None = None,
    ) -> bool:
        return self._loop.run(self._client.reply(request.origin, payload, properties=properties))


class Queue:
    """As `queuelake.client.Queue`."""

    def __init__(self, loop: _LoopThread, origin: queue.Queue) -> None:
        self._loop = loop
        self._origin = origin

    @property
    def name(self) -> str:
        return self._origin.name

    @property
    def address(self) -> str:
        return self._origin.address

    def publish(self, payload: bytes | str, **options: Unpack[PublishOptions]) -> str:
        return self._loop.run(self._origin.publish(payload, **options))

    def consume(
        self, **options: Unpack[ConsumeOptions]
    ) -> Subscription[delivery.Delivery, Delivery]:
        def wrap(origin: delivery.Delivery) -> Delivery:
            names = [one.name for one in dataclasses.fields(QueueMessage)]
            fields = {name: getattr(origin, name) for name in names}
            return Delivery(origin=origin, loop=self._loop, **fields)

        return Subscription(self._loop, self._origin.consume(**options), wrap)

    def configure(self, settings: Mapping[str, Any]) -> None:
        self._loop.run(self._origin.configure(settings))


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery(QueueMessage):
    """As `queuelake.client.Delivery`."""

    origin: delivery.Delivery = field(repr=False, compare=False)
    loop: _LoopThread = field(repr=False, compare=False)

    def ack(self) -> bool:
        return self.loop.run(self.origin.ack())

    def nack(self, delay: float = 0.0) -> bool:
        return self.loop.run(self.origin.nack(delay))

    def reject(self, reason: str = "") -> bool:
        return self.loop.run(self.origin.reject(reason))


class Subscription(Generic[S, T]):
    """As `queuelake.client.Subscription`: iterate over it, or call `get()`."""

    def __init__(
        self,
        loop: _LoopThread,
        origin: subscription.Subscription[S],
        wrap: Callable[[S], T],
    ) -> None:
        self._loop = loop
        self._origin = origin
        self._wrap = wrap
        self._entered = False

    def __enter__(self) -> Self:
        self._entered = True
        self._loop.run(self._origin.start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[T]:
        try:
            while True:
                yield self.get()
        finally:
            if not self._entered:
                self.close()

    def start(self) -> None:
        self._loop.run(self._origin.start())

    def get(self, timeout: float | None = None) -> T:
        return self._wrap(self._loop.run(self._origin.get(timeout)))

    def close(self) -> None:
        self._loop.run_last(self._origin.close())


class _LoopThread:
    """An event loop in a thread; `run` executes a coroutine there and waits for its result."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="queuelake-client", daemon=True
        )
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = self._submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupt ends the call as well, not only the wait for it
            raise

    def run_last(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run what cleans up: needless on a closed client, whose session is gone."""
        try:
            future = self._submit(coroutine)
        except ClientClosedError:
            return
        # The garbage collector may end an iteration in the loop's own thread.
        if threading.current_thread() is not self._thread:
            future.result()

    def stop(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        with self._lock:  # what is submitted before stop() is run before it
            if self._loop is None:
                coroutine.close()
                raise ClientClosedError("the client is not open: use it inside `with`")
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
