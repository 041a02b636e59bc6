"""aiomqtt as a witness: levels 4 and 5 over TCP, TLS, WebSocket and Unix sockets."""

from __future__ import annotations

import asyncio
import socket

import aiomqtt
from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY

from tests.interop.paho_witness import session_expiry
from tests.interop.witness import Endpoint, Inbox, LoopThread, Message


class AiomqttWitness:
    """An aiomqtt client on a loop of its own; a task moves messages to the inbox."""

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
        self._client = aiomqtt.Client(
            endpoint.host,
            endpoint.port or 1,  # paho wants a port for a Unix socket too, and ignores it
            identifier=client_id,
            protocol=aiomqtt.ProtocolVersion(level),
            clean_session=clean if level < 5 else None,
            clean_start=clean if level == 5 else MQTT_CLEAN_START_FIRST_ONLY,
            properties=session_expiry() if level == 5 and not clean else None,
            transport=endpoint.transport,
            tls_context=endpoint.tls,
            websocket_path="/mqtt" if endpoint.transport == "websockets" else None,
            will=None
            if will is None
            else aiomqtt.Will(will.topic, will.payload, will.qos, will.retain),
        )
        await self._client.__aenter__()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for message in self._client.messages:
                payload = message.payload
                assert isinstance(payload, bytes)
                self._inbox.put(Message(str(message.topic), payload, message.qos, message.retain))
        except aiomqtt.MqttError:
            return

    def subscribe(self, filter_: str, qos: int) -> None:
        self._thread.run(self._client.subscribe(filter_, qos))

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        self._thread.run(self._client.publish(topic, payload, qos, retain))

    def next_message(self) -> Message:
        return self._inbox.next_message()

    def drop(self) -> None:
        self._open_now = False
        # aiomqtt offers no way to lose a connection; its paho client has the socket.
        sock = self._client._client.socket()
        if isinstance(sock, socket.socket):
            sock.shutdown(socket.SHUT_RDWR)
        self._thread.run(self._wait_for_reader())
        self._thread.close()

    async def _wait_for_reader(self) -> None:
        await self._reading

    def close(self) -> None:
        if not self._open_now:
            return
        self._open_now = False
        self._thread.run(self._leave())
        self._thread.close()

    async def _leave(self) -> None:
        self._reading.cancel()
        await self._client.__aexit__(None, None, None)
