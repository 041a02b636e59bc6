"""Topic aliases of MQTT 5, as a client uses them in PUBLISH."""

from __future__ import annotations

from queuelake.errors import PeerError, ProtocolViolationError
from queuelake.protocol import reasons
from queuelake.protocol.packets import V5, Publish


def resolve_alias(
    aliases: dict[int, bytes], packet: Publish, version: int, alias_max: int
) -> bytes:
    """The topic of a PUBLISH which names an alias, or no topic; `aliases` are those of its
    connection.

    Raises:
        PeerError: it means nothing.
    """
    alias = packet.alias
    if alias == 0:
        if version == V5:
            raise ProtocolViolationError("PUBLISH with neither topic nor alias")
        raise PeerError.because(reasons.TOPIC_NAME_INVALID, "topic name is empty")
    if alias < 0 or alias > alias_max:
        raise PeerError.because(reasons.TOPIC_ALIAS_INVALID, f"topic alias {max(0, alias)}")
    if packet.topic:
        aliases[alias] = packet.topic
        return packet.topic
    topic = aliases.get(alias)
    if topic is None:
        raise ProtocolViolationError(f"topic alias {alias} was never given a topic")
    return topic
