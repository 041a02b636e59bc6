"""How a publish is refused, also when its answer waits already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from queuelake.broker.session import Session
from queuelake.protocol import encoder, packets, reasons
from queuelake.protocol.message import PACKET_IDS
from queuelake.protocol.packets import V5

if TYPE_CHECKING:
    from queuelake.broker.connection import Connection

# Among held answers: the next one only waits for its turn, and stays true when the commit fails.
PROMISES_NOTHING: Final = b""


def refused(connection: Connection, kind: int, packet_id: int, reason: int, problem: str) -> bytes:
    """The answer, in words if the client can take them."""
    words = encoder.ack(kind, packet_id, reason, problem)
    return connection.told(words, encoder.ack(kind, packet_id, reason))


def refuse_unstored(connection: Connection, answer: bytes) -> bool:
    """The commit behind this answer failed: refuse the publish. False: it answers no publish."""
    kind = answer[0] >> 4
    if kind != packets.PUBACK and kind != packets.PUBREC:
        return False
    if connection.version == V5:
        packet_id = answer[2] << 8 | answer[3]
        problem = "the message could not be stored" if connection.request_problem else ""
        reason = reasons.UNSPECIFIED_ERROR
        connection.answer(refused(connection, kind, packet_id, reason, problem), False)
    return True


def refuse_held(connection: Connection, session: Session, packet_id: int, problem: str) -> None:
    """A publish whose answer waits for the group being collected was taken out of that group."""
    name = PACKET_IDS[packet_id]
    held = connection.held()
    for at, answer in enumerate(held):
        kind = answer[0] >> 4 if answer else 0
        if answer[2:4] != name or (kind != packets.PUBACK and kind != packets.PUBREC):
            continue
        session.inbound.discard(packet_id)  # sent again, it is a new message
        if connection.version != V5:
            connection.close(reasons.UNSPECIFIED_ERROR, problem)
            return
        words = problem if connection.request_problem else ""
        refusal = refused(connection, kind, packet_id, reasons.UNSPECIFIED_ERROR, words)
        held[at : at + 1] = [PROMISES_NOTHING, refusal]
        return
