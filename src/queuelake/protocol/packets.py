"""MQTT control packets as plain objects: what the decoder makes and the broker reads.

One class for each packet a server receives. All are final native classes with typed slots, because
some of them are made for every message; for those, the memory of the last one is used again.
Optional MQTT 5 properties have a value which cannot occur on the wire (None, or -1 for numbers)
when they were absent.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

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


@mypyc_attr(acyclic=True)
class Packet:
    """What every packet has: the number of its type."""

    __slots__ = ("kind",)

    def __init__(self, kind: int) -> None:
        self.kind: int = kind


@final
class Will:
    """The will message of a CONNECT; `body` is laid out as in `Publish`, without the will delay."""

    __slots__ = ("body", "delay_s", "expiry_at", "payload_at", "qos", "retain", "topic")

    def __init__(
        self,
        topic: bytes,
        qos: int,
        retain: bool,
        body: bytes,
        payload_at: int,
        expiry_at: int,
        delay_s: int,
    ) -> None:
        self.topic: bytes = topic
        self.qos: int = qos
        self.retain: bool = retain
        self.body: bytes = body
        self.payload_at: int = payload_at
        self.expiry_at: int = expiry_at
        self.delay_s: int = delay_s


@final
class Connect(Packet):
    """CONNECT of any level; a 3.1.1 client has the values which mean the same in MQTT 5."""

    __slots__ = (
        "alias_max",
        "auth_data",
        "auth_method",
        "clean_start",
        "client_id",
        "keepalive_s",
        "packet_size_max",
        "password",
        "receive_max",
        "request_problem",
        "request_response",
        "session_expiry_s",
        "username",
        "version",
        "will",
    )

    def __init__(self, version: int, client_id: str, clean_start: bool, keepalive_s: int) -> None:
        super().__init__(CONNECT)
        self.version: int = version
        self.client_id: str = client_id
        self.clean_start: bool = clean_start
        self.keepalive_s: int = keepalive_s
        self.username: str | None = None
        self.password: bytes | None = None
        self.will: Will | None = None
        self.session_expiry_s: int = -1
        self.receive_max: int = 65535
        self.packet_size_max: int = 0
        self.alias_max: int = 0
        self.request_response: bool = False
        self.request_problem: bool = True
        self.auth_method: str | None = None
        self.auth_data: bytes | None = None


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Publish(Packet):
    """PUBLISH. `body` is everything behind the packet id: for MQTT 5 the property length, the
    properties (without a topic alias) and the payload, which starts at `payload_at`; for 3.1.1 the
    payload alone. So a forwarded message is cut once and never put together again."""

    __slots__ = (
        "alias",
        "body",
        "dup",
        "expiry_at",
        "packet_id",
        "payload_at",
        "qos",
        "retain",
        "topic",
    )

    def __init__(
        self,
        topic: bytes,
        qos: int,
        retain: bool,
        dup: bool,
        packet_id: int,
        body: bytes,
        payload_at: int,
        expiry_at: int,
        alias: int,
    ) -> None:
        super().__init__(PUBLISH)
        self.topic: bytes = topic
        self.qos: int = qos
        self.retain: bool = retain
        self.dup: bool = dup
        self.packet_id: int = packet_id
        self.body: bytes = body
        self.payload_at: int = payload_at  # 0: no properties, a 3.1.1 client sent it
        self.expiry_at: int = expiry_at  # where in `body` the expiry interval stands; 0: none
        self.alias: int = alias  # 0: none


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Ack(Packet):
    """PUBACK, PUBREC, PUBREL or PUBCOMP: `kind` tells which."""

    __slots__ = ("packet_id", "reason")

    def __init__(self, kind: int, packet_id: int, reason: int) -> None:
        super().__init__(kind)
        self.packet_id: int = packet_id
        self.reason: int = reason


@final
class SubscribeItem:
    """One topic filter of a SUBSCRIBE with its options."""

    __slots__ = ("no_local", "qos", "retain_as_published", "retain_handling", "topic_filter")

    def __init__(
        self,
        topic_filter: bytes,
        qos: int,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
    ) -> None:
        self.topic_filter: bytes = topic_filter
        self.qos: int = qos
        self.no_local: bool = no_local
        self.retain_as_published: bool = retain_as_published
        self.retain_handling: int = retain_handling


@final
class Subscribe(Packet):
    __slots__ = ("items", "packet_id", "subscription_id", "user")

    def __init__(self, packet_id: int, items: list[SubscribeItem]) -> None:
        super().__init__(SUBSCRIBE)
        self.packet_id: int = packet_id
        self.items: list[SubscribeItem] = items
        self.subscription_id: int = 0
        self.user: list[tuple[bytes, bytes]] = []


@final
class Unsubscribe(Packet):
    __slots__ = ("filters", "packet_id")

    def __init__(self, packet_id: int, filters: list[bytes]) -> None:
        super().__init__(UNSUBSCRIBE)
        self.packet_id: int = packet_id
        self.filters: list[bytes] = filters


@final
class Pingreq(Packet):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(PINGREQ)


@final
class Disconnect(Packet):
    __slots__ = ("reason", "session_expiry_s")

    def __init__(self, reason: int = 0, session_expiry_s: int = -1) -> None:
        super().__init__(DISCONNECT)
        self.reason: int = reason
        self.session_expiry_s: int = session_expiry_s


@final
class Auth(Packet):
    __slots__ = ("data", "method", "reason")

    def __init__(self, reason: int, method: str | None, data: bytes | None) -> None:
        super().__init__(AUTH)
        self.reason: int = reason
        self.method: str | None = method
        self.data: bytes | None = data
