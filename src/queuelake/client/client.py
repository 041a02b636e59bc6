"""The client: a connection which comes back, queues, topics, requests and replies.

async with Client("127.0.0.1") as client:
    await client.queue("tasks/x").publish(b"work", key="user-123")
    async for message in client.queue("tasks/x").consume(group="workers"):
        await message.ack()
"""

from __future__ import annotations

import asyncio
import math
import ssl
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Self, TypedDict

from queuelake.client.connection import Endpoint
from queuelake.client.delivery import Delivery
from queuelake.client.errors import RequestTimeoutError
from queuelake.client.message import (
    Message,
    QueueMessage,
    message_fields,
    publish_properties,
    queue_message_fields,
)
from queuelake.client.queue import Queue
from queuelake.client.session import Session
from queuelake.client.subscription import Acknowledge, Subscription
from queuelake.errors import RefusedError
from queuelake.names import PREFIX, RESPONSES

PORT = 1883
PORT_TLS = 8883
SERVE_GROUP = "workers"
REPLY_GROUP = "requester"


class ClientOptions(TypedDict, total=False):
    """The keyword arguments of `Client`."""

    client_id: str | None
    username: str | None
    password: str | None
    tls: bool | ssl.SSLContext
    keepalive: int
    connect_timeout: float
    confirm_timeout: float
    reconnect_delay_min: float
    reconnect_delay_max: float
    receive_max: int


class Client:
    """A client of one broker. Use it with `async with`; one loop, any number of tasks."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int | None = None,
        *,
        client_id: str | None = None,
        username: str | None = None,
        password: str | None = None,
        tls: bool | ssl.SSLContext = False,
        keepalive: int = 60,
        connect_timeout: float = 10.0,
        confirm_timeout: float = 60.0,
        reconnect_delay_min: float = 0.1,
        reconnect_delay_max: float = 30.0,
        receive_max: int = 1000,
    ) -> None:
        """
        Args:
            port: 1883, with TLS 8883.
            client_id: generated when not given. The broker knows repeated messages by it, so a
                producer which must not double anything over its own restarts needs a fixed one.
            tls: True for the certificates this machine trusts, or a context of your own.
            confirm_timeout: seconds until a call without an answer is given up. It is less than
                the 2 minutes for which a queue remembers message ids, so that a publish which is
                sent again is always recognised.
            receive_max: messages which the broker may send before one is acknowledged, over all
                subscriptions of this client.
        """
        context = ssl.create_default_context() if tls is True else (tls or None)
        self._generated_id = not client_id
        endpoint = Endpoint(
            host,
            port if port is not None else (PORT if context is None else PORT_TLS),
            client_id or f"queuelake{uuid.uuid4().hex}",
            username,
            password,
            context,
            keepalive,
            connect_timeout,
            receive_max,
        )
        self._session = Session(
            endpoint,
            confirm_timeout_s=confirm_timeout,
            reconnect_delay_s_min=reconnect_delay_min,
            reconnect_delay_s_max=reconnect_delay_max,
        )

    async def __aenter__(self) -> Self:
        await self._session.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    @property
    def client_id(self) -> str:
        return self._session.endpoint.client_id

    @property
    def connected(self) -> bool:
        """Whether there is a connection now; calls wait for one when there is none."""
        return self._session.connected

    def queue(self, name: str) -> Queue:
        """A handle on the queue `$queue/{name}`; the broker makes it at its first use."""
        return Queue(self._session, name, needs_group=self._generated_id)

    async def publish(
        self,
        topic: str,
        payload: bytes | str,
        *,
        qos: int = 1,
        retain: bool = False,
        expiry: int | None = None,
        properties: Mapping[str, str] | None = None,
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
    ) -> None:
        """Publish to an ordinary topic, with QoS 0 or 1; returns when the broker has it.

        After a lost connection it is sent again, so subscribers may see it twice.
        """
        if qos not in (0, 1):
            raise ValueError(f"qos {qos}: must be 0 or 1")
        await self._session.publish(
            topic,
            payload.encode() if isinstance(payload, str) else payload,
            publish_properties(
                properties or {},
                expiry=expiry,
                content_type=content_type,
                response_topic=response_topic,
                correlation_data=correlation_data,
            ),
            qos=qos,
            retain=retain,
        )

    def subscribe(self, topic_filter: str, *, qos: int = 1) -> Subscription[Message]:
        """Messages of ordinary topics. What is published while disconnected is missed."""
        if qos not in (0, 1, 2):
            raise ValueError(f"qos {qos}: must be 0, 1 or 2")
        return Subscription(
            self._session,
            topic_filter,
            qos=qos,
            user_properties={},
            acknowledge=Acknowledge.WHEN_TAKEN,
            read=lambda _connection, received: Message(**message_fields(received)),
        )

    async def request(
        self,
        queue: str,
        payload: bytes | str,
        *,
        timeout: float = 5.0,
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> QueueMessage:
        """Send a request to a queue and return the reply.

        Nobody answers a request nobody waits for: it expires with its timeout.

        Raises:
            RequestTimeoutError: no reply within `timeout` seconds.
        """
        correlation = str(uuid.uuid4())
        replies = self.queue(RESPONSES + correlation).consume(group=REPLY_GROUP, ack_mode="puback")
        target = self.queue(queue)
        try:
            async with asyncio.timeout(timeout):
                await replies.start()
                await target.publish(
                    payload,
                    key=key,
                    expiry=max(1, math.ceil(timeout)),
                    properties=properties,
                    response_topic=replies.topic_filter,
                    correlation_data=correlation.encode(),
                )
                reply = await replies.get()
            await reply.ack()
        except TimeoutError:
            raise RequestTimeoutError(
                f"no reply to the request to {target.address!r} within {timeout:g} s"
            ) from None
        finally:
            await replies.close()
        return QueueMessage(**queue_message_fields(reply.hold.received))

    def serve(
        self, queue: str, *, group: str = SERVE_GROUP, prefetch: int | None = None
    ) -> Subscription[Delivery]:
        """Requests to answer with `reply()`; all who serve a queue share its requests."""
        return self.queue(queue).consume(group=group, prefetch=prefetch)

    async def reply(
        self,
        request: Delivery,
        payload: bytes | str,
        *,
        properties: Mapping[str, str] | None = None,
    ) -> bool:
        """Answer a request, then ack it; what `ack()` answers is returned."""
        topic = request.response_topic
        if topic is None:
            raise RefusedError(f"message {request.id!r} is no request: it has no response topic")
        prefix = PREFIX.decode()
        correlation = request.correlation_data
        if topic.startswith(prefix):
            await self.queue(topic).publish(
                payload, properties=properties, correlation_data=correlation
            )
        else:
            await self.publish(topic, payload, properties=properties, correlation_data=correlation)
        return await request.ack()
