"""What a client hears when there is no owner to serve it."""

from __future__ import annotations

from typing import Final

from queuelake.errors import PeerError
from queuelake.protocol import encoder, reasons
from queuelake.protocol import properties as p
from queuelake.protocol.decoder import Decoder
from queuelake.protocol.packets import V5, Connect

PROBLEM: Final = b"the cluster has no owner at the moment; try again"
CONNECT_BYTES_MAX: Final = 64 * 1024


def last_words(sent: bytes) -> bytes:
    """The answer to a CONNECT; nothing to what is none."""
    decoder = Decoder(CONNECT_BYTES_MAX)
    decoder.feed(sent)
    try:
        connect = decoder.next_packet()
    except PeerError:
        return b""
    if not isinstance(connect, Connect):
        return b""
    words = p.write_value(p.REASON_STRING, PROBLEM) if connect.version == V5 else b""
    return encoder.connack(connect.version, False, reasons.SERVER_UNAVAILABLE, words)
