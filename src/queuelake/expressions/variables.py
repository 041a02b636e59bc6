"""The variables of a key expression: dotted paths into the message.

Unknown names are refused when the expression is parsed, but not below `headers.properties`: which
properties a message has is up to its publisher, and one without is an `UnboundError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from queuelake.expressions.errors import UnboundError
from queuelake.expressions.fields import Fields
from queuelake.expressions.nodes import Variable
from queuelake.expressions.values import Value, from_octets
from queuelake.protocol import properties as p

ROOT: Final = "message."
PROPERTIES: Final = "headers.properties."
USER_PROPERTY: Final = "User-Property."

VARIABLES: Final[dict[str, Callable[[Fields], Value]]] = {
    "id": lambda fields: fields.message_id,
    "qos": lambda fields: fields.qos,
    "from": lambda fields: fields.client_id,
    "topic": lambda fields: fields.topic(),
    "payload": lambda fields: fields.payload(),
    "timestamp": lambda fields: fields.timestamp_ms,
    "flags.dup": lambda fields: fields.dup,
    "flags.retain": lambda fields: fields.retain,
    "headers.username": lambda fields: fields.username or "",
    "headers.peername": lambda fields: fields.peername,
    "headers.peerhost": lambda fields: fields.peerhost(),
    "headers.protocol": lambda fields: "mqtt",
    "headers.proto_ver": lambda fields: fields.proto_ver,
}
PROPERTY_NAMES: Final[dict[str, int]] = {
    "Payload-Format-Indicator": p.PAYLOAD_FORMAT,
    "Message-Expiry-Interval": p.MESSAGE_EXPIRY,
    "Content-Type": p.CONTENT_TYPE,
    "Response-Topic": p.RESPONSE_TOPIC,
    "Correlation-Data": p.CORRELATION_DATA,
}
GROUPS: Final = frozenset(
    {"message", "flags", "headers", "headers.properties", "headers.properties.User-Property"}
)


def resolve_variable(path: str) -> Variable:
    """The node which reads this variable. Raises ValueError when there is none of this name."""
    inner = path.removeprefix(ROOT)
    if inner.removesuffix(".") in GROUPS:
        raise ValueError(f"{path!r} is a group of variables; name one of them")
    if inner == path and not path.startswith("headers."):
        raise ValueError(f"unknown variable {path!r}: variables begin with {ROOT!r}")
    if inner.startswith(PROPERTIES):
        name = inner.removeprefix(PROPERTIES)
        if name.startswith(USER_PROPERTY):
            return _user_property(path, name.removeprefix(USER_PROPERTY))
        return _property(path, name)
    read = VARIABLES.get(inner)
    if read is None:
        hint = ""
        if inner.startswith("payload."):
            hint = f"; use json_value({ROOT}payload, '{inner.removeprefix('payload.')}')"
        raise ValueError(f"unknown variable {path!r}{hint}")
    return Variable(read)


def _user_property(path: str, key: str) -> Variable:
    wanted = key.encode()

    def read(fields: Fields) -> Value:
        # The last one counts when a key is there twice.
        for name, value in reversed(fields.properties().user):
            if name == wanted:
                return value.decode()
        raise UnboundError(f"the message has no {path!r}")

    return Variable(read)


def _property(path: str, name: str) -> Variable:
    identifier = PROPERTY_NAMES.get(name, 0)

    def read(fields: Fields) -> Value:
        found = fields.properties()
        if identifier in found.numbers:
            return found.numbers[identifier]
        if identifier in found.values:
            return from_octets(found.values[identifier])
        raise UnboundError(f"the message has no {path!r}")

    return Variable(read)
