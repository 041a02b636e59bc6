"""paho-mqtt 2.x as a witness: levels 3, 4 and 5 over TCP, TLS, WebSocket and Unix sockets."""

from __future__ import annotations

import socket
import threading
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.interop.witness import SESSION_EXPIRY_S, TIMEOUT_S, Endpoint, Inbox, Message

UNLIMITED = 0


def session_expiry() -> Properties:
    """CONNECT properties which keep the session after the connection."""
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = SESSION_EXPIRY_S
    return properties


class PahoWitness:
    """A paho client with its network loop in a thread."""

    def __init__(
        self,
        endpoint: Endpoint,
        client_id: str,
        level: int,
        *,
        clean: bool = True,
        will: Message | None = None,
        username: str | None = None,
    ) -> None:
        self.session_present = False
        self._open_now = True
        self.refused = ""
        self._inbox = Inbox()
        self._connected = threading.Event()
        self._subscribed = threading.Event()
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=MQTTProtocolVersion(level),
            transport=endpoint.transport,
            clean_session=clean if level < 5 else None,
            reconnect_on_failure=False,
        )
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.max_queued_messages_set(UNLIMITED)
        if endpoint.transport == "websockets":
            self._client.ws_set_options(path="/mqtt")
        if endpoint.tls is not None:
            self._client.tls_set_context(endpoint.tls)
        if username is not None:
            self._client.username_pw_set(username)
        if will is not None:
            self._client.will_set(will.topic, will.payload, will.qos, will.retain)
        self._connect(endpoint, level, clean)

    def _connect(self, endpoint: Endpoint, level: int, clean: bool) -> None:
        # The port of a Unix socket is not used, but paho insists on one.
        fields: dict[str, Any] = {"host": endpoint.host, "port": endpoint.port or 1}
        if level == 5:
            fields["clean_start"] = clean
            fields["properties"] = None if clean else session_expiry()
        self._client.connect(**fields)
        self._client.loop_start()
        assert self._connected.wait(TIMEOUT_S), "no CONNACK"
        if self.refused:
            self._client.loop_stop()
            raise ConnectionRefusedError(self.refused)

    def _on_connect(
        self, client: object, data: object, flags: paho.ConnectFlags, reason: Any, _: object
    ) -> None:
        self.session_present = flags.session_present
        if reason.is_failure:
            self.refused = str(reason)
        self._connected.set()

    def _on_message(self, client: object, data: object, message: paho.MQTTMessage) -> None:
        self._inbox.put(Message(message.topic, bytes(message.payload), message.qos, message.retain))

    def subscribe(self, filter_: str, qos: int) -> None:
        self._subscribed.clear()
        self._client.subscribe(filter_, qos)
        assert self._subscribed.wait(TIMEOUT_S), "no SUBACK"

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        *,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        sent = self._client.publish(topic, payload, qos, retain, properties)
        sent.wait_for_publish(TIMEOUT_S)
        assert sent.is_published(), f"QoS {qos} publish was not acknowledged"

    def next_message(self) -> Message:
        return self._inbox.next_message()

    def drop(self) -> None:
        self._open_now = False
        sock = self._client.socket()
        assert sock is not None
        if isinstance(sock, socket.socket):
            sock.shutdown(socket.SHUT_RDWR)
        else:
            sock.close()
        self._client.loop_stop()

    def close(self) -> None:
        if not self._open_now:
            return
        self._open_now = False
        self._client.disconnect()
        self._client.loop_stop()
