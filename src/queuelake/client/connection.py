"""One MQTT 5 connection: a paho client on an asyncio loop, opened once and used until it is lost.

paho does the protocol, the loop watches its socket. aiomqtt would hide two things a queue client
needs: the reason code of a PUBACK, and when a message is acknowledged.

Answers go to the callback given with the packet. When the connection is lost, callbacks which wait
are forgotten and `on_lost` is called, once: what must outlive a connection is kept in `session`.
A publish waits here while the broker's Receive Maximum is used up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from queuelake.client.errors import connect_refusal
from queuelake.client.message import mqtt_properties
from queuelake.errors import BrokerDownError

RECEIVE_MAX_DEFAULT = 65535
TICK_S = 1.0
CLOSE_S_MAX = 2.0
DISCARD_BYTES = 65536


class Endpoint(NamedTuple):
    """Where to connect, and as whom."""

    host: str
    port: int
    client_id: str
    username: str | None
    password: str | None
    tls: ssl.SSLContext | None
    keepalive_s: int
    connect_timeout_s: float
    receive_max: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class Answer(NamedTuple):
    """A reason code of the broker and what it says about it."""

    code: int
    reason: str


OnAnswer = Callable[[Answer], None]


@dataclass(slots=True, eq=False)
class Outgoing:
    """A PUBLISH which waits for its answer."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties
    on_answer: OnAnswer


class Connection:
    """Connect with `open()`; everything else may be called between that and `on_lost`."""

    def __init__(
        self,
        endpoint: Endpoint,
        on_message: Callable[[Connection, paho.MQTTMessage], None],
        on_lost: Callable[[Connection, Answer], None],
    ) -> None:
        self._endpoint = endpoint
        self._on_message = on_message
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[Answer] = self._loop.create_future()
        self._gone = asyncio.Event()
        self._lost = False
        self._tick: asyncio.TimerHandle | None = None
        self._waiting: deque[Outgoing] = deque()
        self._unconfirmed: dict[int, Outgoing] = {}
        self._subscribing: dict[int, OnAnswer] = {}
        self._unsubscribing: dict[int, OnAnswer] = {}
        self._send_max = RECEIVE_MAX_DEFAULT
        self.packet_size_max: int | None = None
        self._client = self._make_client()

    @property
    def lost(self) -> bool:
        return self._lost

    async def open(self) -> None:
        """Connect and wait for CONNACK.

        Raises:
            BrokerDownError: nobody answers there, or the broker cannot serve now.
            RefusedError: the broker does not want this client.
        """
        address = self._endpoint.address
        try:
            async with asyncio.timeout(self._endpoint.connect_timeout_s):
                # paho looks up the name and connects in blocking calls.
                await self._loop.run_in_executor(None, self._connect)
                self._watch()
                answer = await self._opened
        except TimeoutError:
            self._drop()
            limit = f"{self._endpoint.connect_timeout_s:g} s"
            raise BrokerDownError(f"{address}: no CONNACK within {limit}") from None
        except OSError as error:
            self._drop()
            raise BrokerDownError(
                f"cannot connect to {address}: {error.strerror or error}"
            ) from None
        except BaseException:
            self._drop()
            raise
        if answer.code != 0:
            self._drop()
            raise connect_refusal(address, answer.code, answer.reason)

    def publish(self, outgoing: Outgoing) -> None:
        """Send, now or when the broker has room; a QoS 0 message is answered when it is written."""
        if self._waiting or len(self._unconfirmed) >= self._send_max:
            self._waiting.append(outgoing)
        else:
            self._send(outgoing)

    def subscribe(
        self, topic_filter: str, options: SubscribeOptions, properties: Properties, then: OnAnswer
    ) -> None:
        _, mid = self._client.subscribe(topic_filter, options=options, properties=properties)
        if mid is not None:  # else the connection is lost, and on_lost is on its way
            self._subscribing[mid] = then

    def unsubscribe(self, topic_filter: str, then: OnAnswer) -> None:
        _, mid = self._client.unsubscribe(topic_filter)
        if mid is not None:
            self._unsubscribing[mid] = then

    def acknowledge(self, received: paho.MQTTMessage) -> None:
        """Send PUBACK (QoS 1) or PUBCOMP (QoS 2), unless the connection is lost."""
        if not self._lost:
            self._client.ack(received.mid, received.qos)

    async def close(self) -> None:
        """Send DISCONNECT and let the broker close first.

        Closing with unread messages would make the kernel reset the connection, and the broker
        could lose acknowledgements which are on their way to it.
        """
        wire = self._client.socket()
        if wire is None or self._lost:
            self._drop()
            return
        with socket.socket(fileno=os.dup(wire.fileno())) as kept:  # paho closes only its own
            kept.setblocking(False)
            self._client.disconnect()
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(CLOSE_S_MAX):
                    await self._gone.wait()
                    kept.shutdown(socket.SHUT_WR)
                    while await self._loop.sock_recv(kept, DISCARD_BYTES):
                        pass
        self._drop()

    def _make_client(self) -> paho.Client:
        end = self._endpoint
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=end.client_id,
            protocol=paho.MQTTv5,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.max_inflight_messages = 0  # the limit is the broker's, known only after CONNACK
        client.connect_timeout = end.connect_timeout_s
        if end.username is not None or end.password is not None:
            client.username_pw_set(end.username or "", end.password)
        if end.tls is not None:
            client.tls_set_context(end.tls)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        client.on_unsubscribe = self._on_unsubscribe
        client.on_message = lambda _client, _data, received: self._on_message(self, received)
        return client

    def _connect(self) -> None:
        properties = mqtt_properties(
            PacketTypes.CONNECT, {}, {"ReceiveMaximum": self._endpoint.receive_max}
        )
        end = self._endpoint
        self._client.connect(end.host, end.port, end.keepalive_s, "", 0, True, properties)

    # --- The socket on the loop -----------------------------------------------------------------

    def _watch(self) -> None:
        wire = self._client.socket()
        if wire is None:
            raise OSError("closed while connecting")
        if isinstance(wire, socket.socket):
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client.on_socket_close = self._unwatch
        self._client.on_socket_register_write = self._watch_write
        self._client.on_socket_unregister_write = self._unwatch_write
        self._loop.add_reader(wire.fileno(), self._read)
        if self._client.want_write():
            self._loop.add_writer(wire.fileno(), self._write)
        self._tick = self._loop.call_later(TICK_S, self._on_tick)

    def _unwatch(self, _client: Any, _data: Any, wire: Any) -> None:
        self._loop.remove_reader(wire.fileno())
        self._loop.remove_writer(wire.fileno())

    def _watch_write(self, _client: Any, _data: Any, wire: Any) -> None:
        self._loop.add_writer(wire.fileno(), self._write)

    def _unwatch_write(self, _client: Any, _data: Any, wire: Any) -> None:
        self._loop.remove_writer(wire.fileno())

    def _read(self) -> None:
        self._client.loop_read()
        # TLS may hold decrypted packets which no event of the socket announces.
        wire: Any = self._client.socket()
        while isinstance(wire, ssl.SSLSocket) and wire.pending() and not self._lost:
            self._client.loop_read()
            wire = self._client.socket()

    def _write(self) -> None:
        self._client.loop_write()

    def _on_tick(self) -> None:
        self._client.loop_misc()  # keep-alive
        if not self._lost:
            self._tick = self._loop.call_later(TICK_S, self._on_tick)

    def _drop(self) -> None:
        """Make sure that nothing of this connection is left on the loop."""
        self._lost = True
        if self._tick is not None:
            self._tick.cancel()
        wire: Any = self._client.socket()
        if wire is not None and wire.fileno() >= 0:
            self._unwatch(None, None, wire)
            wire.close()

    # --- What paho reports ----------------------------------------------------------------------

    def _on_connect(self, _c: Any, _u: Any, _flags: Any, reason: Any, properties: Any) -> None:
        self._send_max = getattr(properties, "ReceiveMaximum", RECEIVE_MAX_DEFAULT)
        self.packet_size_max = getattr(properties, "MaximumPacketSize", None)
        if not self._opened.done():
            self._opened.set_result(_answer(reason, properties))

    def _on_disconnect(self, _c: Any, _u: Any, _flags: Any, reason: Any, properties: Any) -> None:
        self._gone.set()
        if self._lost:
            return
        self._lost = True
        if self._tick is not None:
            self._tick.cancel()
        if not self._opened.done():
            self._opened.set_exception(OSError("closed before CONNACK"))
        else:
            self._on_lost(self, _answer(reason, properties))

    def _on_publish(self, _c: Any, _u: Any, mid: int, reason: Any, properties: Any) -> None:
        outgoing = self._unconfirmed.pop(mid, None)
        if outgoing is not None:
            outgoing.on_answer(_answer(reason, properties))
        # paho is in the middle of its own bookkeeping: send when it is through.
        if self._waiting:
            self._loop.call_soon(self._send_waiting)

    def _on_subscribe(self, _c: Any, _u: Any, mid: int, reasons: Any, properties: Any) -> None:
        then = self._subscribing.pop(mid, None)
        if then is not None:
            then(_answer(reasons[0], properties))

    def _on_unsubscribe(self, _c: Any, _u: Any, mid: int, reasons: Any, properties: Any) -> None:
        then = self._unsubscribing.pop(mid, None)
        if then is not None:
            then(_answer(reasons[0], properties))

    def _send(self, outgoing: Outgoing) -> None:
        info = self._client.publish(
            outgoing.topic, outgoing.payload, outgoing.qos, outgoing.retain, outgoing.properties
        )
        self._unconfirmed[info.mid] = outgoing

    def _send_waiting(self) -> None:
        while self._waiting and len(self._unconfirmed) < self._send_max and not self._lost:
            self._send(self._waiting.popleft())


def _answer(reason: Any, properties: Any) -> Answer:
    return Answer(reason.value, getattr(properties, "ReasonString", None) or str(reason))
