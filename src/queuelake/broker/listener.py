"""Where clients connect: TCP, TLS, WebSocket, secure WebSocket, Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from queuelake.broker.certificates import load_certificate, make_context
from queuelake.errors import ConfigError
from queuelake.settings import Listener, Settings

log = logging.getLogger("queuelake.listener")

BACKLOG = 4096
WEBSOCKET_PATH = "/mqtt"


class ClientProtocol(Protocol):
    """What serves one client: a `Connection`, or who passes its bytes on to one."""

    def connection_made(self, transport: asyncio.Transport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool: ...

    def connection_lost(self, error: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def leave(self, why: str, clean: bool) -> None:
        """The client is gone, or must go, whatever its transport says yet."""
        ...


ProtocolFactory = Callable[[str], ClientProtocol]  # from the scheme of a listener


class Listeners:
    """Every open listener. They are kept here: a server nobody refers to is closed."""

    def __init__(self, make_protocol: ProtocolFactory, settings: Settings) -> None:
        self._make_protocol = make_protocol
        self._settings = settings
        self._servers: list[asyncio.AbstractServer] = []
        self._context: ssl.SSLContext | None = None
        self._unix_path = ""
        self._addresses: list[str] = []

    async def open(self) -> list[str]:
        """Open all of them; returns their addresses, for people and for the `ready` line."""
        listeners = self._settings.listeners
        await self._open_tcp("mqtt", listeners.mqtt, None)
        await self._open_tcp("ws", listeners.ws, None)
        if self._settings.tls.certificate:
            self._context = make_context(self._settings.tls)
            await self._open_tcp("mqtts", listeners.mqtts, self._context)
            await self._open_tcp("wss", listeners.wss, self._context)
        if listeners.unix.path:
            await self._open_unix(listeners.unix.path, int(listeners.unix.mode, 8))
        return self._addresses

    def _factory(self, scheme: str) -> Callable[[], asyncio.BaseProtocol]:
        make = self._make_protocol
        # asyncio asks for the methods of a protocol, not for its base class.
        if scheme in ("ws", "wss"):
            return lambda: _over_websocket(make(scheme))
        return lambda: make(scheme)  # type: ignore[return-value]

    async def _open_tcp(
        self, scheme: str, listener: Listener, context: ssl.SSLContext | None
    ) -> None:
        if not listener.enabled:
            return
        try:
            server = await asyncio.get_running_loop().create_server(
                self._factory(scheme),
                listener.bind,
                listener.port,
                ssl=context,
                backlog=BACKLOG,
                reuse_address=True,
            )
        except OSError as error:
            raise ConfigError(
                [
                    f"listeners.{scheme}: cannot listen on {listener.bind}:{listener.port}: "
                    f"{error.strerror or error}"
                ]
            ) from None
        self._servers.append(server)
        path = WEBSOCKET_PATH if scheme in ("ws", "wss") else ""
        for opened in server.sockets:
            host, port = opened.getsockname()[:2]
            host = f"[{host}]" if opened.family == socket.AF_INET6 else host
            self._addresses.append(f"{scheme}://{host}:{port}{path}")

    async def _open_unix(self, path: str, mode: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            if Path(path).is_socket():
                os.unlink(path)  # left by a broker which was killed; the store's lock is ours
        try:
            server = await asyncio.get_running_loop().create_unix_server(
                self._factory("unix"), path, backlog=BACKLOG
            )
            os.chmod(path, mode)
        except OSError as error:
            raise ConfigError(
                [f"listeners.unix: cannot listen on {path!r}: {error.strerror or error}"]
            ) from None
        self._unix_path = path
        self._servers.append(server)
        self._addresses.append(f"unix://{path}")

    def reload_certificate(self) -> None:
        """Connections from now on get the new certificate; those which are open stay."""
        if self._context is not None:
            load_certificate(self._context, self._settings.tls)

    def close(self) -> None:
        for server in self._servers:
            server.close()
        if self._unix_path:
            with contextlib.suppress(OSError):
                os.unlink(self._unix_path)


def _over_websocket(client: ClientProtocol) -> asyncio.BaseProtocol:
    # The library is a tenth of what a broker imports: it is for those who have such clients.
    from queuelake.broker.websocket import WebSocketAdapter

    return WebSocketAdapter(client)  # type: ignore[return-value]
