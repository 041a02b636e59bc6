"""gmqtt as a witness: levels 4 and 5 over TCP and TLS, a codec of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import gmqtt
from gmqtt.mqtt.constants import MQTTv50, MQTTv311

from tests.interop.witness import SESSION_EXPIRY_S, Endpoint, Inbox, LoopThread, Message


class GmqttWitness:
    """A gmqtt client on a loop of its own."""

    def __init__(
        self,
        endpoint: Endpoint,
        client_id: str,
        level: int,
        *,
        clean: bool = True,
        will: Message | None = None,
    ) -> None:
        self.session_present = False
        self._open_now = True
        self._inbox = Inbox()
        self._thread = LoopThread()
        self._thread.run(self._open(endpoint, client_id, level, clean, will))

    async def _open(
        self, endpoint: Endpoint, client_id: str, level: int, clean: bool, will: Message | None
    ) -> None:
        properties = {} if clean or level < 5 else {"session_expiry_interval": SESSION_EXPIRY_S}
        testament = None
        if will is not None:
            testament = gmqtt.Message(will.topic, will.payload, qos=will.qos, retain=will.retain)
        self._subscribed = asyncio.Event()
        self._client = gmqtt.Client(
            client_id, clean_session=clean, will_message=testament, **properties
        )
        self._client.set_config({"reconnect_retries": 0, "reconnect_delay": 60})
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        version = MQTTv50 if level == 5 else MQTTv311
        tls = endpoint.tls if endpoint.tls is not None else False
        await self._client.connect(endpoint.host, endpoint.port, ssl=tls, version=version)

    def _on_connect(self, client: object, flags: int, reason: int, properties: object) -> None:
        self.session_present = bool(flags & 1)

    def _on_message(
        self, client: object, topic: str, payload: bytes, qos: int, properties: dict[str, Any]
    ) -> int:
        self._inbox.put(Message(topic, bytes(payload), qos, bool(properties.get("retain"))))
        return 0

    def subscribe(self, filter_: str, qos: int) -> None:
        self._thread.run(self._subscribe(filter_, qos))

    async def _subscribe(self, filter_: str, qos: int) -> None:
        self._subscribed.clear()
        self._client.subscribe(filter_, qos=qos)
        await self._subscribed.wait()

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        self._thread.run(self._publish(topic, payload, qos, retain))

    async def _publish(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        self._client.publish(topic, payload, qos=qos, retain=retain)
        # gmqtt has no acknowledgement to wait for but this: nothing unacknowledged is stored.
        await self._client._persistent_storage.wait_empty()

    def next_message(self) -> Message:
        return self._inbox.next_message()

    def drop(self) -> None:
        self._open_now = False
        self._thread.run(self._abort())
        self._thread.close()

    async def _abort(self) -> None:
        self._client.stop_reconnect()
        self._client._connection._transport.abort()

    def close(self) -> None:
        if not self._open_now:
            return
        self._open_now = False
        self._thread.run(self._client.disconnect())
        self._thread.close()
