"""MQTT over WebSocket: an adapter which is a protocol to the network and a transport to MQTT.

MQTT packets need not align with frames: the payloads of binary frames are one stream of bytes. The
framing is done by the sans-io core of `websockets`.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any

from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from queuelake.broker.listener import WEBSOCKET_PATH, ClientProtocol

log = logging.getLogger("queuelake.websocket")
_quiet = logging.getLogger("queuelake.websocket.frames")
_quiet.setLevel(logging.CRITICAL)

SUBPROTOCOLS = [Subprotocol("mqtt"), Subprotocol("mqttv3.1")]
FRAME_BYTES_MAX = 16 * 1024 * 1024
UNREAD_BYTES_MAX = 64 * 1024 * 1024
UNSUPPORTED_DATA = 1003


class WebSocketAdapter(asyncio.Transport):
    """Between a network transport and a protocol for MQTT."""

    def __init__(self, connection: ClientProtocol) -> None:
        super().__init__()
        self._connection = connection
        self._frames = ServerProtocol(
            subprotocols=SUBPROTOCOLS, max_size=FRAME_BYTES_MAX, logger=_quiet
        )
        self._transport: asyncio.Transport | None = None
        self._open = False
        self._closing = False

    # Towards the network

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._connection.connection_made(self)

    def data_received(self, data: bytes) -> None:
        self._frames.receive_data(data)
        payloads: list[bytes] = []
        for event in self._frames.events_received():
            if isinstance(event, Request):
                self._handshake(event)
            elif isinstance(event, Frame):
                self._on_frame(event, payloads)
        self._flush()
        self._deliver(payloads)

    def _handshake(self, request: Request) -> None:
        if request.path.partition("?")[0] != WEBSOCKET_PATH:
            response = self._frames.reject(HTTPStatus.NOT_FOUND, f"MQTT is at {WEBSOCKET_PATH}\n")
        else:
            try:
                response = self._frames.accept(request)
            except InvalidHandshake as error:  # not expected: accept() answers by itself
                response = self._frames.reject(HTTPStatus.BAD_REQUEST, f"{error}\n")
        self._frames.send_response(response)
        self._open = self._frames.state is State.OPEN

    def _on_frame(self, frame: Frame, payloads: list[bytes]) -> None:
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            payloads.append(bytes(frame.data))
        elif frame.opcode is Opcode.TEXT:
            self._deliver(payloads)
            self._frames.fail(UNSUPPORTED_DATA, "MQTT needs binary frames")
            self._connection.leave("protocol", False)
        elif frame.opcode is Opcode.CLOSE:
            self._deliver(payloads)  # a DISCONNECT may stand right before the close
            self._connection.leave("lost", False)

    def _deliver(self, payloads: list[bytes]) -> None:
        if payloads and not self._closing:
            self._connection.data_received(b"".join(payloads))
        payloads.clear()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None:
            return
        parts = self._frames.data_to_send()
        data = b"".join(parts)
        if data:
            transport.write(data)
            if transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
                transport.abort()  # pings without end from a peer which reads no pong
        if parts and parts[-1] == b"":  # the sans-io way to say: nothing will follow
            transport.close()

    def eof_received(self) -> bool:
        self._frames.receive_eof()
        self._flush()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._connection.connection_lost(error)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    # Towards MQTT

    def write(self, data: Any) -> None:
        # The peer may have sent its close frame already: nothing may follow ours.
        if self._open and not self._closing and self._frames.state is State.OPEN:
            self._frames.send_binary(bytes(data))
            self._flush()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if self._open and self._frames.state is State.OPEN:
            self._frames.send_close(1000)
            self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=high, low=low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._transport is None else self._transport.get_extra_info(name)
