"""A device for tests, over the raw `Wire`, and what it does with mailboxes.

A delivery is settled by its PUBACK, so nothing is acknowledged unless the test says so: `take`
acknowledges, `hold` does not. A PUBACK has no answer of its own; `ack` makes sure by a ping that
the broker has read it. "Nothing comes" is a read with a short deadline: a delivery may take a
commit of its own, so a ping round trip would prove nothing.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.harness import packets as p
from tests.harness.packets import Packet, WireError
from tests.harness.wire import Wire
from tests.queues.client import DEADLINE, RECEIVE_TIMEOUT_S, SILENCE_S

SUCCESS, NO_MATCH = 0x00, 0x10
UNSPECIFIED, NOT_AUTHORIZED, FILTER_INVALID = 0x80, 0x87, 0x8F
TOPIC_NAME_INVALID, QUOTA_EXCEEDED, PAYLOAD_INVALID = 0x90, 0x97, 0x99
CLOSED = -1


@dataclass(frozen=True)
class Delivery:
    """One message as a device got it."""

    packet: Packet

    @property
    def payload(self) -> str:
        return self.packet.payload.decode()

    @property
    def topic(self) -> str:
        return self.packet.topic

    @property
    def key(self) -> str:
        """Everything behind `$ECQ/{owner}/`."""
        return self.topic.split("/", 2)[2]

    @property
    def seqno(self) -> int:
        return int(dict(self.packet.user_properties)["ecq-seqno"])


class Device:
    """A connected client."""

    def __init__(self, wire: Wire, client_id: str) -> None:
        self.wire = wire
        self.client_id = client_id

    # Any topic

    def publish(
        self,
        topic: str,
        payload: str | bytes = b"",
        *,
        qos: int = 1,
        user: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        retain: bool = False,
        **properties: Any,
    ) -> int:
        """Publish; the reason code of PUBACK or PUBREC (0 for QoS 0 and 3.1.1).

        CLOSED when the broker closed the connection instead.
        """
        fields: dict[str, Any] = {"qos": qos, "retain": retain}
        if self.wire.version == 5:
            pairs = user.items() if isinstance(user, Mapping) else user
            users = [("user_property", pair) for pair in pairs]
            fields["properties"] = [*properties.items(), *users]
        try:
            return self.wire.publish(topic, payload, **fields).reason_code
        except (WireError, ConnectionError) as error:
            if DEADLINE in str(error):
                raise
            return CLOSED

    def subscribe(self, topic_filter: str, *, qos: int = 1, identifier: int | None = None) -> int:
        """The reason code of the SUBACK."""
        properties = None if identifier is None else {"subscription_identifier": identifier}
        return self.wire.subscribe(topic_filter, qos=qos, properties=properties).reason_codes[0]

    def unsubscribe(self, topic_filter: str) -> Packet:
        return self.wire.unsubscribe(topic_filter)

    def hold(self, *, timeout: float = RECEIVE_TIMEOUT_S) -> Delivery:
        """The next delivery, not acknowledged."""
        return Delivery(self.wire.expect_publish(timeout=timeout, ack=False))

    def hold_each(self, count: int) -> list[Delivery]:
        return [self.hold() for _ in range(count)]

    def take(self, *, timeout: float = RECEIVE_TIMEOUT_S) -> Delivery:
        """The next delivery, acknowledged."""
        return Delivery(self.wire.expect_publish(timeout=timeout))

    def take_payloads(self, count: int) -> list[str]:
        return [self.take().payload for _ in range(count)]

    def poll(self, timeout: float = 0.1, *, ack: bool = True) -> Delivery | None:
        """The next delivery, or None when none comes in time."""
        try:
            return self.take(timeout=timeout) if ack else self.hold(timeout=timeout)
        except WireError as error:
            if DEADLINE not in str(error):
                raise
            return None

    def drain(self, quiet_s: float = SILENCE_S) -> list[Delivery]:
        """Everything which comes, acknowledged, until nothing comes for so long."""
        received: list[Delivery] = []
        while (delivery := self.poll(quiet_s)) is not None:
            received.append(delivery)
        return received

    def hold_all(self, quiet_s: float = SILENCE_S) -> list[Delivery]:
        """Everything which comes without an acknowledgement."""
        held: list[Delivery] = []
        while (delivery := self.poll(quiet_s, ack=False)) is not None:
            held.append(delivery)
        return held

    def expect_silence(self, duration_s: float = SILENCE_S) -> None:
        """Nothing comes for so long."""
        delivery = self.poll(duration_s, ack=False)
        assert delivery is None, f"got {delivery.packet.payload[:80]!r} of {delivery.topic[:80]!r}"

    def ack(self, *deliveries: Delivery, code: int | None = None) -> None:
        for delivery in deliveries:
            self.wire.acknowledge(p.PUBACK, delivery.packet.packet_id, code)
        self.wire.ping()

    def abort(self) -> None:
        """End the connection with a reset, as a killed process does."""
        linger = struct.pack("ii", 1, 0)
        self.wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.wire.close()

    def disconnect(self) -> None:
        """Leave with a DISCONNECT, whatever deliveries were on their way."""
        self.wire.send(p.disconnect())
        self.wire.read_to_close()
        self.wire.close()

    # Mailboxes

    def write(self, owner: str, key: str, payload: str | bytes = b"", **fields: Any) -> int:
        return self.publish(f"$ECQ/w/{owner}/{key}", payload, **fields)

    def write_each(self, owner: str, *pairs: str) -> None:
        """Each of `k1=a`, `k2=b` is a write of that key and payload, which must be taken."""
        for pair in pairs:
            key, _, payload = pair.partition("=")
            assert self.write(owner, key, payload) == SUCCESS

    def listen(self, *, qos: int = 1, identifier: int | None = None) -> int:
        """Subscribe to the own mailbox; the reason code of the SUBACK."""
        return self.subscribe(f"$ECQ/{self.client_id}/#", qos=qos, identifier=identifier)

    def rewind(self, body: str | bytes, *, owner: str | None = None, qos: int = 1) -> int:
        name = self.client_id if owner is None else owner
        return self.publish(f"$ECQ/{name}/$rewind", body, qos=qos)


def pairs(deliveries: Iterable[Delivery]) -> list[str]:
    """What came as `key=payload`."""
    return [f"{one.key}={one.payload}" for one in deliveries]


def seqnos(deliveries: Iterable[Delivery]) -> list[int]:
    return [one.seqno for one in deliveries]


def numbered(count: int, start: int = 1) -> list[str]:
    """`k1=1`, `k2=2`, ...: so many keys with one value each."""
    return [f"k{number}={number}" for number in range(start, start + count)]
