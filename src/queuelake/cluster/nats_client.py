"""nats-py as a cluster needs it, in one place: which server, how to log in, what is lost with a
connection, and nothing between a message and the socket.

Theirs gives what is sent to one task and what is received to another; a client waits for both, for
each of its messages. Four of its inner methods are replaced, each for a reason given there. The
tests of the engine fail when a later nats-py has them no more.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from nats import errors
from nats.aio.client import NATS_HDR_LINE, Client, Server, ServerVersion
from nats.aio.msg import Msg
from nats.protocol import command

from queuelake.cluster_settings import ClusterConfig

CONNECT_TIMEOUT_S: Final = 2
# A server is given up when this many pings in a row had no answer.
PING_INTERVAL_S: Final = 1
PINGS_MAX: Final = 3
RECONNECT_DELAY_S_MIN: Final = 0.1
RECONNECT_DELAY_S_MAX: Final = 1.0

log = logging.getLogger("queuelake.cluster")

Receiver = Callable[[Msg], None]


class NatsClient(Client):
    """A connection which is dropped at once when it is lost, with all that was not sent yet."""

    def __init__(self, config: ClusterConfig) -> None:
        super().__init__()
        self._config = config
        self._lost_server = ""
        self._attempts = 0
        self._receivers: dict[int, Receiver] = {}  # by the number of the subscription

    def connect_options(self) -> dict[str, Any]:
        """What `connect()` takes, but for the callbacks."""
        config = self._config
        return {
            "servers": config.urls,
            "name": f"queuelake {config.node_name}",
            "user": config.user or None,
            "password": config.password or None,
            "token": config.token or None,
            "user_credentials": Path(config.credentials_file) if config.credentials_file else None,
            "nkeys_seed": config.nkey_seed_file or None,
            "tls": _tls_context(config),
            "reconnect_to_server_handler": self._choose_server,
            "connect_timeout": CONNECT_TIMEOUT_S,
            "reconnect_time_wait": 1,
            "max_reconnect_attempts": -1,
            "ping_interval": PING_INTERVAL_S,
            "max_outstanding_pings": PINGS_MAX,
            "dont_randomize": True,  # the first one is the nearest
            "pending_size": 0,  # nothing waits for a connection
        }

    def version(self) -> tuple[int, int]:
        """Of the server we are connected to."""
        version: ServerVersion = self.connected_server_version
        return version.major, version.minor

    @property
    def unsent_bytes(self) -> int:
        """What the socket has not taken yet."""
        stream = self._stream()
        return 0 if stream is None else stream.get_write_buffer_size()

    def post(self, subject: str, data: bytes, reply: str, headers: dict[str, str]) -> None:
        """Send at once. Who posts asks `unsent_bytes` before: nothing waits here."""
        if headers:
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            head = NATS_HDR_LINE + f"\r\n{lines}\r\n".encode()
            message = command.hpub_cmd(subject, reply, head, data)
        else:
            message = command.pub_cmd(subject, reply, data)
        stream = self._stream()
        if stream is not None:
            stream.write(message)

    async def receive(self, subject: str, receiver: Receiver) -> None:
        """Call back for each message from now on, over all connections to come."""
        subscription = await self.subscribe(subject)
        self._receivers[subscription._id] = receiver

    def abort(self) -> None:
        """Drop the connection. To close it would first send what is left, which may take for ever
        when the other side hangs."""
        stream = self._stream()
        if stream is not None:
            stream.abort()

    def _stream(self) -> asyncio.WriteTransport | None:
        """What is below their transport: that one can only be awaited."""
        writer: asyncio.StreamWriter | None = getattr(self._transport, "_io_writer", None)
        return None if writer is None else writer.transport

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        """Theirs puts it into a queue, for a task of its own."""
        receiver = self._receivers.get(sid)
        if receiver is None:
            return
        found = await self._process_headers(headers)
        try:
            receiver(self._build_message(sid, subject, reply, data, found))
        except Exception:  # which would end their reading for ever
            log.exception("a message at %s was not understood", subject.decode())

    async def _attempt_reconnect(self) -> None:
        """Theirs keeps what was not sent for the next connection: stale when it arrives."""
        self._pending.clear()
        self._pending_data_size = 0
        self.abort()
        assert self._current_server is not None
        self._lost_server = self._current_server.uri.netloc
        self._attempts = 0
        while True:
            try:
                await super()._attempt_reconnect()
                return
            except Exception as error:  # theirs ends for ever with what it does not expect
                await self._error_cb(error)
                await asyncio.sleep(RECONNECT_DELAY_S_MAX)

    async def _process_err(self, err_msg: str) -> None:
        """Theirs closes for ever after most errors a server can send."""
        error = errors.Error(f"nats: {err_msg}")
        if "permissions violation" in err_msg:
            await self._error_cb(error)
        else:
            await self._process_op_err(error)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Theirs logs in without TLS when the server does not ask for it."""
        if initial_connection and _wants_tls(self._config) and not info.get("tls_required"):
            raise errors.SecureConnWantedError
        await super()._process_info(info, initial_connection)

    def _choose_server(
        self, servers: list[Server], info: dict[str, Any]
    ) -> tuple[Server | None, float]:
        """Each server in turn, the one we lost last; who failed all of them waits a while."""
        urls = [server.uri.netloc for server in servers]
        known = urls.index(self._lost_server) + 1 if self._lost_server in urls else 0
        order = servers[known:] + servers[:known]
        order.sort(key=lambda server: server.uri.netloc == self._lost_server)
        turn, index = divmod(self._attempts, len(order))
        self._attempts += 1
        delay_s = random.uniform(RECONNECT_DELAY_S_MIN, RECONNECT_DELAY_S_MAX) if turn else 0.0
        return order[index], delay_s


def _wants_tls(config: ClusterConfig) -> bool:
    return bool(
        config.ca_file or config.certificate or any(url.startswith("tls:") for url in config.urls)
    )


def _tls_context(config: ClusterConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=config.ca_file or None)
    if config.certificate:
        context.load_cert_chain(config.certificate, config.key)
    return context
