"""How a connection ends: what the client's DISCONNECT means, and our own last word."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from queuelake.errors import PeerError, ProtocolViolationError
from queuelake.protocol import encoder, packets, reasons
from queuelake.protocol.packets import V5, Disconnect

if TYPE_CHECKING:
    from queuelake.broker.connection import Connection

log = logging.getLogger("queuelake.connection")

CONNACK_FIRST: Final = bytes((packets.CONNACK << 4,))


def on_disconnect(connection: Connection, packet: Disconnect) -> None:
    session = connection.session
    if session is not None and packet.session_expiry_s >= 0:
        if session.expiry_s == 0 and packet.session_expiry_s > 0:
            raise ProtocolViolationError("DISCONNECT gives an expired session more time")
        limit = connection.broker.settings.mqtt.session_expiry_s_max
        session.expiry_s = min(packet.session_expiry_s, limit)
    with_will = packet.reason == reasons.DISCONNECT_WITH_WILL
    connection.leave("client", packet.reason < 0x80 and not with_will)
    connection.finish()


def refuse(connection: Connection, error: PeerError, offered: int) -> None:
    """The peer broke the protocol: say so where the level it offered allows it, and close."""
    name = connection.client_name()
    log.info("%s (%s): %s", name, connection.peer_ip or connection.listener, error)
    reason = error.reason_code
    if connection.waits_for_login():
        if offered == V5:
            connection.send(encoder.connack(V5, False, reason))
        elif offered >= 0 and reason == reasons.UNSUPPORTED_PROTOCOL_VERSION:
            connection.send(encoder.connack(packets.V311, False, reason))
    connection.close(reason, str(error))


def last_word(connection: Connection, held: list[bytes], reason: int, problem: str) -> bytes:
    """What a client of MQTT 5 hears when we close; `held` are answers which it never got."""
    for answer in held:
        if answer[:1] == CONNACK_FIRST:  # nothing may come before it, so it brings the news
            known = reason in reasons.CONNACK_REASONS
            return encoder.connack(V5, False, reason if known else reasons.UNSPECIFIED_ERROR)
    return connection.told(encoder.disconnect(reason, problem), encoder.disconnect(reason))
