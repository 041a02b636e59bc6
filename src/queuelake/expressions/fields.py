"""What an expression can see of one message: read from the message only when it is asked for.

One `Fields` serves all queues which take the same message, so what one expression decoded, the
next one finds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, final

import msgspec

from queuelake.errors import PeerError
from queuelake.expressions.errors import EvaluationError
from queuelake.expressions.values import TEXT_CHARACTERS_MAX, Value, from_octets
from queuelake.protocol import properties as p
from queuelake.protocol.wire import Reader, varint

# The alias is cut out on arrival and no client may send an identifier: neither is a reason to fail.
IN_PUBLISH: Final = frozenset(
    {
        p.PAYLOAD_FORMAT,
        p.MESSAGE_EXPIRY,
        p.CONTENT_TYPE,
        p.RESPONSE_TOPIC,
        p.CORRELATION_DATA,
        p.USER_PROPERTY,
        p.TOPIC_ALIAS,
        p.SUBSCRIPTION_ID,
    }
)


@final
class Fields:
    """One message, its publisher, and the clock, dice and environment of the broker.

    `properties` are the encoded MQTT 5 properties without their length; `dice(n)` is uniform in
    0..n-1.
    """

    __slots__ = (
        "_json",
        "_json_known",
        "_payload",
        "_properties",
        "_raw_payload",
        "_raw_properties",
        "_raw_topic",
        "_topic",
        "client_id",
        "dice",
        "dup",
        "environment",
        "message_id",
        "now_ms",
        "peername",
        "proto_ver",
        "qos",
        "retain",
        "timestamp_ms",
        "username",
    )

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        dup: bool,
        client_id: str,
        timestamp_ms: int,
        message_id: str,
        properties: bytes,
        username: str | None,
        peername: str,
        proto_ver: int,
        environment: Mapping[str, str],
        now_ms: int,
        dice: Callable[[int], int],
    ) -> None:
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.client_id = client_id
        self.timestamp_ms = timestamp_ms
        self.message_id = message_id
        self.username = username
        self.peername = peername
        self.proto_ver = proto_ver
        self.environment = environment
        self.now_ms = now_ms
        self.dice = dice
        self._raw_topic = topic
        self._raw_payload = payload
        self._raw_properties = properties
        self._topic: str | bytes | None = None
        self._payload: str | bytes | None = None
        self._properties: p.Properties | None = None
        self._json: Value = None
        self._json_known = False

    def topic(self) -> str | bytes:
        if self._topic is None:
            self._topic = from_octets(self._raw_topic)
        return self._topic

    def payload(self) -> str | bytes:
        """The payload: a text when it is UTF-8."""
        if self._payload is None:
            size = len(self._raw_payload)
            if size > TEXT_CHARACTERS_MAX:
                raise EvaluationError(
                    f"payload has {size} bytes; expressions read at most {TEXT_CHARACTERS_MAX}"
                )
            self._payload = from_octets(self._raw_payload)
        return self._payload

    def peerhost(self) -> str:
        return self.peername.rpartition(":")[0].removeprefix("[").removesuffix("]")

    def properties(self) -> p.Properties:
        if self._properties is None:
            data = varint(len(self._raw_properties)) + self._raw_properties
            try:
                self._properties = p.read_properties(Reader(data, 0, len(data)), IN_PUBLISH)
            except PeerError as error:
                raise EvaluationError(f"properties of the message: {error}") from error
        return self._properties

    def json(self, document: str) -> Value:
        """The decoded document, None when it is no JSON; that of the payload is kept."""
        if document is not self._payload:
            return _decode(document)
        if not self._json_known:
            self._json = _decode(document)
            self._json_known = True
        return self._json


def _decode(document: str) -> Value:
    try:
        decoded: Value = msgspec.json.decode(document)
    except (ValueError, RecursionError):
        return None
    return decoded
