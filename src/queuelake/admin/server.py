"""The HTTP server of the admin process: uvicorn with limits, and JSON for its own errors too."""

from __future__ import annotations

import asyncio

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from queuelake.admin.answers import JSON, problem_body

CONNECTIONS_MAX = 1024
HEAD_BYTES_MAX = 256 * 1024  # room for a client id of 65,535 bytes, each percent-encoded
WEBSOCKET_MESSAGE_BYTES_MAX = 8 * 1024 * 1024  # a message somebody publishes by hand
SHUTDOWN_TIMEOUT_S = 3


def make_server(app: ASGIApp) -> uvicorn.Server:
    """A server for `serve(sockets=[...])` or `run(sockets=[...])`."""
    config = uvicorn.Config(
        app,
        http=AdminHttpProtocol,
        ws="websockets-sansio",  # for the console: no other path takes one
        ws_max_size=WEBSOCKET_MESSAGE_BYTES_MAX,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        # Nobody stands in front of this server who could be believed about addresses.
        proxy_headers=False,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
    )
    return uvicorn.Server(config)


class AdminHttpProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, with a bound on connections and the one error shape."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.close()

    def send_400_response(self, msg: str) -> None:
        headers = [("content-type", JSON), ("connection", "close")]
        for event in (
            h11.Response(status_code=400, headers=headers),
            h11.Data(data=problem_body("BAD_REQUEST", msg)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
