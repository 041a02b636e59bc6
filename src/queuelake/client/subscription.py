"""A subscription as an asynchronous iterator.

    async for message in subscription: ...        # subscribes first, unsubscribes at the end
    async with subscription: ...                  # the same, with a known beginning and end

Messages wait in a buffer until the application takes them. How many may wait is bounded by the
acknowledgements: a delivery of a queue is one of at most `prefetch` unsettled ones, a QoS 1 or 2
message of a topic is acknowledged when it is taken, and of QoS 0 messages the newest are dropped.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.subscribeoptions import SubscribeOptions

from queuelake.client.connection import Answer, Connection
from queuelake.client.errors import (
    FAILURE_MIN,
    ClientClosedError,
    ConfirmTimeoutError,
    subscribe_refusal,
)
from queuelake.client.message import mqtt_properties
from queuelake.client.session import Session
from queuelake.errors import QueuelakeError

QOS_0_BUFFER_MAX = 10_000

log = logging.getLogger("queuelake.client")
T = TypeVar("T")


class Acknowledge(enum.Enum):
    """When PUBACK is sent for a message."""

    AT_ONCE = enum.auto()  # a settlement will follow
    WHEN_TAKEN = enum.auto()
    BY_APPLICATION = enum.auto()  # it is the settlement


class Subscription(Generic[T]):
    """Messages of one topic filter, or of one queue. Iterate over it, or call `get()`."""

    def __init__(
        self,
        session: Session,
        topic_filter: str,
        *,
        qos: int,
        user_properties: dict[str, str],
        once_properties: dict[str, str] | None = None,
        acknowledge: Acknowledge,
        read: Callable[[Connection, MQTTMessage], T],
        give_back: Callable[[T], Awaitable[object]] | None = None,
    ) -> None:
        self.topic_filter = topic_filter
        self.options = SubscribeOptions(qos=qos)
        first = user_properties | (once_properties or {})
        self.properties = mqtt_properties(PacketTypes.SUBSCRIBE, first)
        self._again = user_properties
        self._session = session
        self._acknowledge = acknowledge
        self._read = read
        self._give_back = give_back
        self._identifier: int | None = None
        self._entered = False
        self._closed = False
        self._granted = asyncio.Event()
        self._arrived = asyncio.Event()
        self._failure: QueuelakeError | None = None
        self._buffer: deque[tuple[Connection, MQTTMessage]] = deque()
        self._dropped = 0

    async def __aenter__(self) -> Self:
        self._entered = True
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[T]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[T]:
        try:
            while True:
                yield await self.get()
        finally:
            if not self._entered:
                await self.close()

    async def start(self) -> None:
        """Subscribe and wait for the broker's consent; done by itself before the first message.

        Raises:
            RefusedError: the broker said no.
            ConfirmTimeoutError: it said nothing in time.
        """
        if self._identifier is None:
            self._identifier = self._session.subscribe(self)
        limit_s = self._session.confirm_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await self._granted.wait()
        except TimeoutError:
            await self.close()
            raise ConfirmTimeoutError(
                f"subscription to {self.topic_filter!r}: no answer within {limit_s:g} s"
            ) from None
        if self._failure is not None:
            raise self._failure

    async def get(self, timeout: float | None = None) -> T:
        """The next message.

        Raises:
            TimeoutError: none came within `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            await self.start()
            while not self._buffer:
                self._arrived.clear()
                await self._arrived.wait()
                if self._failure is not None:
                    raise self._failure
        connection, received = self._buffer.popleft()
        if self._acknowledge is Acknowledge.WHEN_TAKEN:
            connection.acknowledge(received)
        return self._read(connection, received)

    async def close(self) -> None:
        """Unsubscribe, and give back what was delivered but not taken."""
        if self._closed:
            return
        self._closed = True
        if self._failure is None:
            self.fail(ClientClosedError(f"the subscription to {self.topic_filter!r} is closed"))
        if self._identifier is not None:
            await self._session.unsubscribe(self._identifier)
        waiting = list(self._buffer)
        self._buffer.clear()
        if self._give_back is not None and self._session.connected:
            returns = [self._give_back(self._read(*one)) for one in waiting]
            await asyncio.gather(*returns, return_exceptions=True)
        if self._acknowledge is not Acknowledge.AT_ONCE:
            for connection, received in waiting:
                connection.acknowledge(received)

    # --- Called by the session, on its loop -----------------------------------------------------

    def granted(self, answer: Answer) -> None:
        if answer.code >= FAILURE_MIN:
            self.fail(subscribe_refusal(self.topic_filter, answer.code, answer.reason))
        self._granted.set()
        # After a reconnect it goes on where it was, not where it began.
        identifier = {"SubscriptionIdentifier": self._identifier}
        self.properties = mqtt_properties(PacketTypes.SUBSCRIBE, self._again, identifier)

    def deliver(self, connection: Connection, received: MQTTMessage) -> None:
        if received.qos == 0 and len(self._buffer) >= QOS_0_BUFFER_MAX:
            self._dropped += 1
            if self._dropped.bit_count() == 1:  # 1, 2, 4, 8: a flood fills no log
                log.warning("%s: %d messages of QoS 0 dropped", self.topic_filter, self._dropped)
            return
        if self._acknowledge is Acknowledge.AT_ONCE:
            connection.acknowledge(received)
        self._buffer.append((connection, received))
        self._arrived.set()

    def connection_lost(self) -> None:
        # The broker has returned them to their queue and delivers them again.
        if self._acknowledge is not Acknowledge.WHEN_TAKEN:
            self._buffer.clear()

    def fail(self, error: QueuelakeError) -> None:
        self._failure = error
        self._granted.set()
        self._arrived.set()
