"""A client of a node which is not the owner: its bytes go through a tunnel to the owner and back.

What this node knows of the client goes along: the owner's side of the tunnel answers
`get_extra_info` with it, so that a connection there is admitted as if the client were at its door.
Flow control reaches through: who does not read at one end stops the writer at the other.

While there is no owner the first bytes of a client are held for a little.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from queuelake.cluster.alarm import Alarm
from queuelake.cluster.tunnel_transport import Tunnel
from queuelake.cluster.tunnels import Tunnels
from queuelake.errors import FrameError

log = logging.getLogger("queuelake.relay")

KIND: Final = "mqtt"
HOLD_S: Final = 10.0
HELD_BYTES_MAX: Final = 64 * 1024  # then it is not read on
CLOSE_TIMEOUT_S: Final = 5.0  # a client which does not read gets this long to take the last words
LINGER_S: Final = 30.0  # what a client sent before it left may take this long to be taken


class Relays:
    """Makes a relay for each client. `owner_of` says where the owner is, or "" for nowhere;
    whoever learns that this has changed calls `owner_changed`."""

    def __init__(
        self,
        tunnels: Tunnels,
        owner_of: Callable[[], str],
        *,
        hold_s: float = HOLD_S,
        last_words: Callable[[bytes], bytes] = lambda held: b"",
    ) -> None:
        self.tunnels = tunnels
        self.owner_of = owner_of
        self.hold_s = hold_s
        self.last_words = last_words  # for whom nobody serves, from what it has sent
        self.all: set[Relay] = set()
        self.held: set[Relay] = set()  # those without an owner

    def relay(self, listener: str) -> Relay:
        return Relay(self, listener)

    def owner_changed(self) -> None:
        """Those who wait go on, when there is an owner."""
        owner = self.owner_of()
        if owner:
            for relay in list(self.held):
                relay.go(owner)

    def close(self) -> None:
        """Part with all clients."""
        for relay in list(self.all):
            relay.part()


class Relay(asyncio.Protocol):
    """Between a client's transport and a tunnel to the owner."""

    def __init__(self, relays: Relays, listener: str) -> None:
        self._relays = relays
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._tunnel: Tunnel | None = None
        self._held = bytearray()
        self._alarm = Alarm()  # of the one wait which is on

    # Towards the client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._relays.all.add(self)
        owner = self._relays.owner_of()
        if owner:
            self.go(owner)
        else:
            self._relays.held.add(self)
            self._alarm.set(self._relays.hold_s, self._unserved)

    def data_received(self, data: bytes) -> None:
        if self._tunnel is not None:
            self._tunnel.write(data)
        elif self in self._relays.held:
            self._held += data
            if len(self._held) >= HELD_BYTES_MAX:
                self.set_reading(False)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if self._tunnel is not None:
            self._tunnel.pause_reading()

    def resume_writing(self) -> None:
        if self._tunnel is not None:
            self._tunnel.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._alarm.cancel()
        self._relays.held.discard(self)
        self._relays.all.discard(self)
        self.leave("lost", False)

    def leave(self, why: str, clean: bool) -> None:
        """The client is gone, in the words of a `Connection`; the owner sees for itself whether it
        said goodbye."""
        if self._tunnel is not None:
            self._tunnel.close()
            self._alarm.set(LINGER_S, self._tunnel.abort)

    # Towards the owner

    def go(self, owner: str) -> None:
        """There is an owner: open the tunnel, send on what was held."""
        transport = self._transport
        assert self._tunnel is None
        if transport is None or transport.is_closing():
            return
        self._relays.held.discard(self)
        self._alarm.cancel()
        info = client_info(transport, self._listener)
        try:
            self._tunnel = self._relays.tunnels.open(owner, KIND, info, _OwnerSide(self))
        except FrameError as error:
            log.warning("a client of listener %r is refused: %s", self._listener, error)
            self.part()
            return
        if self._held:
            self._tunnel.write(bytes(self._held))
            self._held.clear()
            self.set_reading(True)

    def take(self, data: bytes) -> None:
        """Bytes for the client."""
        if self._transport is not None:
            self._transport.write(data)

    def set_reading(self, wanted: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def owner_lost(self, exc: Exception | None) -> None:
        self._tunnel = None
        self._alarm.cancel()
        if exc is not None:
            log.info("a client of listener %r lost the owner: %s", self._listener, exc)
        self.part()

    def part(self) -> None:
        """Close the client's connection, behind what was written to it."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            self._relays.held.discard(self)
            transport.close()
            self._alarm.set(CLOSE_TIMEOUT_S, transport.abort)

    def _unserved(self) -> None:
        log.info("a client of listener %r is let go: no owner", self._listener)
        words = self._relays.last_words(bytes(self._held))
        if words:
            self.take(words)
        self.part()


class _OwnerSide(asyncio.Protocol):
    """The end of the tunnel at this node."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def data_received(self, data: bytes) -> None:
        self._relay.take(data)

    def pause_writing(self) -> None:
        self._relay.set_reading(False)

    def resume_writing(self) -> None:
        self._relay.set_reading(True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.owner_lost(exc)


def client_info(transport: asyncio.BaseTransport, listener: str) -> dict[str, object]:
    """What the owner has to know of a client, under the names of `get_extra_info`."""
    info: dict[str, object] = {"listener": listener}
    peer = transport.get_extra_info("peername")
    if isinstance(peer, tuple):
        info["peername"] = [str(peer[0]), int(peer[1])]
    certificate = transport.get_extra_info("peercert")
    if certificate:
        info["peercert"] = {"subject": certificate.get("subject", ())}
    return info
