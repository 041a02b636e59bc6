"""What outlives a connection: unconfirmed publishes, subscriptions, and the will to reconnect.

- A publish stays in the outbox until its answer is here. After a reconnect the outbox is sent
  again in its order; the message ids in it let the broker recognise what it has already stored.
- A settlement belongs to the connection its delivery came by. When that is lost the broker has
  returned the delivery to its queue, so the settlement is given up: its answer is None.
- Subscriptions are made again. The MQTT session is always a clean one: a queue keeps what must be
  kept, and an unsettled delivery comes again.

Reconnecting ends only with `close()`, or when the broker does not want this client any more; then
every call that waits, and every later one, raises that error.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from typing import Protocol

from paho.mqtt.client import MQTTMessage
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from queuelake.client.connection import Answer, Connection, Endpoint, Outgoing
from queuelake.client.errors import (
    FAILURE_MIN,
    PACKET_TOO_LARGE,
    SESSION_TAKEN_OVER,
    ClientClosedError,
    ConfirmTimeoutError,
    MessageTooLargeError,
    SessionTakenOverError,
    publish_refusal,
)
from queuelake.errors import BrokerDownError, QueuelakeError
from queuelake.names import BadAddressError

UNCONFIRMED_MAX = 1000
PACKET_BYTES_MAX = 268_435_455
RECONNECT_FACTOR = 2.0
UNSUBSCRIBE_S_MAX = 2.0

log = logging.getLogger("queuelake.client")


class Subscriber(Protocol):
    """What a session needs to know about a subscription."""

    topic_filter: str
    options: SubscribeOptions
    properties: Properties

    def granted(self, answer: Answer) -> None: ...
    def deliver(self, connection: Connection, received: MQTTMessage) -> None: ...
    def connection_lost(self) -> None: ...
    def fail(self, error: QueuelakeError) -> None: ...


class Session:
    """A connection which comes back."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        confirm_timeout_s: float,
        reconnect_delay_s_min: float,
        reconnect_delay_s_max: float,
    ) -> None:
        self.endpoint = endpoint
        self.confirm_timeout_s = confirm_timeout_s
        self._delay_s_min = reconnect_delay_s_min
        self._delay_s_max = reconnect_delay_s_max
        self._delay_s = reconnect_delay_s_min
        self._adopted_at_s = 0.0
        self._connection: Connection | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._failure: QueuelakeError | None = ClientClosedError("the client is not open yet")
        self._room = asyncio.Semaphore(UNCONFIRMED_MAX)
        self._outbox: dict[Outgoing, asyncio.Future[Answer | None]] = {}
        self._settling: set[Outgoing] = set()
        self._subscribers: dict[int, Subscriber] = {}
        self._identifiers = itertools.count(1)

    @property
    def connected(self) -> bool:
        return self._connection is not None

    async def open(self) -> None:
        """Connect; the first attempt must succeed."""
        connection = Connection(self.endpoint, self._on_message, self._on_lost)
        await connection.open()
        self._failure = None
        self._adopt(connection)

    async def close(self) -> None:
        if self._failure is None:
            self._fail(ClientClosedError("the client is closed"))
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.gather(self._reconnecting, return_exceptions=True)
        self._subscribers.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # --- Publishing -----------------------------------------------------------------------------

    async def publish(
        self, topic: str, payload: bytes, properties: Properties, *, qos: int, retain: bool
    ) -> None:
        """Return when the broker has confirmed; sent again after every reconnect until then.

        Raises:
            RefusedError: the broker said no; its class tells more.
            ConfirmTimeoutError: no answer in time, connected or not.
        """
        self._check(topic, payload)
        what = f"publish to {topic!r}"
        try:
            async with asyncio.timeout(self.confirm_timeout_s), self._room:
                answer = await self._answer_to(topic, payload, properties, qos, retain)
        except TimeoutError:
            raise self._timeout(what) from None
        assert answer is not None, "only a settlement is given up"
        if answer.code >= FAILURE_MIN:
            raise publish_refusal(topic, answer.code, answer.reason)

    async def settle(
        self, connection: Connection, topic: str, properties: Properties
    ) -> Answer | None:
        """The broker's answer, or None when the delivery's connection is lost."""
        if self._failure is not None:
            raise self._failure
        if connection is not self._connection:
            return None
        try:
            async with asyncio.timeout(self.confirm_timeout_s):
                return await self._answer_to(topic, b"", properties, 1, False, settling=True)
        except TimeoutError:
            raise self._timeout(f"settlement at {topic!r}") from None

    async def _answer_to(
        self,
        topic: str,
        payload: bytes,
        properties: Properties,
        qos: int,
        retain: bool,
        *,
        settling: bool = False,
    ) -> Answer | None:
        if self._failure is not None:
            raise self._failure
        answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

        def on_answer(said: Answer) -> None:
            if not answer.done():
                answer.set_result(said)

        outgoing = Outgoing(topic, payload, qos, retain, properties, on_answer)
        self._outbox[outgoing] = answer
        if settling:
            self._settling.add(outgoing)
        try:
            if self._connection is not None:
                self._connection.publish(outgoing)
            return await answer
        finally:
            self._outbox.pop(outgoing, None)
            self._settling.discard(outgoing)

    def _check(self, topic: str, payload: bytes) -> None:
        if not topic or "+" in topic or "#" in topic or "\0" in topic:
            raise BadAddressError(f"publish to {topic!r}: not a topic name")
        limit = self._connection.packet_size_max if self._connection is not None else None
        limit = min(limit or PACKET_BYTES_MAX, PACKET_BYTES_MAX)
        if len(payload) > limit:
            raise MessageTooLargeError(
                f"publish to {topic!r}: {len(payload)} bytes, the broker's limit is {limit}"
            )

    def _timeout(self, what: str) -> ConfirmTimeoutError:
        state = "connected" if self.connected else "not connected"
        return ConfirmTimeoutError(
            f"{what}: no answer of {self.endpoint.address} within {self.confirm_timeout_s:g} s"
            f" ({state})"
        )

    # --- Subscribing ----------------------------------------------------------------------------

    def subscribe(self, subscriber: Subscriber) -> int:
        """Subscribe now or as soon as there is a connection; the answer goes to the subscriber."""
        if self._failure is not None:
            raise self._failure
        for other in self._subscribers.values():
            if other.topic_filter == subscriber.topic_filter:
                raise ValueError(
                    f"this client already subscribes to {subscriber.topic_filter!r}:"
                    " use another client, or close the other subscription first"
                )
        identifier = next(self._identifiers)
        subscriber.properties.SubscriptionIdentifier = identifier
        self._subscribers[identifier] = subscriber
        if self._connection is not None:
            self._subscribe_on(self._connection, identifier)
        return identifier

    async def unsubscribe(self, identifier: int) -> None:
        """Unsubscribe and wait until the broker did it; the connection may be lost meanwhile."""
        subscriber = self._subscribers.get(identifier)
        if subscriber is None:
            return
        done = asyncio.Event()
        try:
            if self._connection is not None:
                self._connection.unsubscribe(subscriber.topic_filter, lambda _answer: done.set())
                async with asyncio.timeout(UNSUBSCRIBE_S_MAX):
                    await done.wait()
        except TimeoutError:
            pass  # lost, or busy: a clean session forgets the subscription with the connection
        finally:
            # Only now: what came before UNSUBACK must find its subscriber, to be given back.
            self._subscribers.pop(identifier, None)

    def _subscribe_on(self, connection: Connection, identifier: int) -> None:
        subscriber = self._subscribers[identifier]

        def granted(answer: Answer) -> None:
            if answer.code >= FAILURE_MIN:
                self._subscribers.pop(identifier, None)
            subscriber.granted(answer)

        connection.subscribe(
            subscriber.topic_filter, subscriber.options, subscriber.properties, granted
        )

    def _on_message(self, connection: Connection, received: MQTTMessage) -> None:
        identifiers = getattr(received.properties, "SubscriptionIdentifier", ())
        subscribers = [self._subscribers[one] for one in identifiers if one in self._subscribers]
        for subscriber in subscribers:
            subscriber.deliver(connection, received)
        if not subscribers:
            connection.acknowledge(received)  # it was unsubscribed meanwhile

    # --- Connections come and go ----------------------------------------------------------------

    def _adopt(self, connection: Connection) -> None:
        self._connection = connection
        self._adopted_at_s = asyncio.get_running_loop().time()
        for identifier in self._subscribers:
            self._subscribe_on(connection, identifier)
        for outgoing in self._outbox:
            connection.publish(outgoing)

    def _on_lost(self, connection: Connection, answer: Answer) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        for outgoing in list(self._settling):
            self._give_up(outgoing)
        for subscriber in list(self._subscribers.values()):
            subscriber.connection_lost()
        if self._failure is not None:
            return
        if answer.code == SESSION_TAKEN_OVER:
            client_id = self.endpoint.client_id
            self._fail(SessionTakenOverError(f"another client connected as {client_id!r}"))
            return
        if answer.code == PACKET_TOO_LARGE:
            self._refuse_largest(answer)
        log.warning("connection to %s lost: %s", self.endpoint.address, answer.reason)
        self._reconnecting = asyncio.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        # A broker which accepts and closes at once is no reason to begin with short delays again.
        if asyncio.get_running_loop().time() - self._adopted_at_s > self._delay_s:
            self._delay_s = self._delay_s_min
        while True:
            # Clients of a broker which restarts must not come back in one instant.
            await asyncio.sleep(self._delay_s * random.uniform(0.5, 1.0))
            self._delay_s = min(self._delay_s * RECONNECT_FACTOR, self._delay_s_max)
            connection = Connection(self.endpoint, self._on_message, self._on_lost)
            try:
                await connection.open()
            except BrokerDownError as error:
                log.info("%s", error)
                continue
            except QueuelakeError as error:
                self._fail(error)
                return
            if not connection.lost:
                break
        log.warning("connected to %s again", self.endpoint.address)
        self._adopt(connection)

    def _fail(self, error: QueuelakeError) -> None:
        """Nothing comes after this: whoever waits gets the error."""
        self._failure = error
        for answer in list(self._outbox.values()):
            if not answer.done():
                answer.set_exception(error)
        for subscriber in list(self._subscribers.values()):
            subscriber.fail(error)

    def _give_up(self, outgoing: Outgoing) -> None:
        answer = self._outbox.pop(outgoing, None)
        if answer is not None and not answer.done():
            answer.set_result(None)

    def _refuse_largest(self, answer: Answer) -> None:
        """The broker closed over one packet and does not say which: sent again, it closes again."""
        if self._outbox:
            largest = max(self._outbox, key=lambda one: len(one.payload))
            largest.on_answer(answer)
            del self._outbox[largest]
