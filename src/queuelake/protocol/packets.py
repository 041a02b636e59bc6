"""MQTT control packets as plain objects: what the decoder makes and the broker reads.

One class for each packet a server receives. All are final native classes with typed slots, because
some of them are made for every message. Optional MQTT 5 properties have a value which cannot occur
on the wire (None, or -1 for numbers) when they were absent.
"""

from __future__ import annotations

from typing import Final, final

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

V311: Final = 4
V5: Final = 5


class Packet:
    """What every packet has: the number of its type."""

    __slots__ = ()

    kind: int = 0


@final
class Will:
    """The will message of a CONNECT; `properties` as in `Publish`, without the will delay."""

    __slots__ = ("delay_s", "expiry_s", "payload", "properties", "qos", "retain", "topic")

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        delay_s: int = 0,
        properties: bytes = b"",
        expiry_s: int = -1,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.delay_s = delay_s
        self.properties = properties  # encoded, as they will be forwarded, without their length
        self.expiry_s = expiry_s
