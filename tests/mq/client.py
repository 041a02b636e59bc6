"""A client of message queues for tests, over the raw `Wire`.

A delivery is settled by its PUBACK, so nothing is acknowledged unless the test says so: `take`
acknowledges, `hold` does not. A PUBACK has no answer of its own; `ack` and `reject` make sure by a
ping that the broker has read it, `seal` that it is stored.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.harness import packets as p
from tests.harness.packets import Packet, WireError
from tests.harness.wire import Wire
from tests.queues.client import DEADLINE, RECEIVE_TIMEOUT_S, SILENCE_S

SUCCESS, NO_MATCH = 0x00, 0x10
UNSPECIFIED, NOT_AUTHORIZED, TOPIC_NAME_INVALID = 0x80, 0x87, 0x90
SWEEPS_MAX = 300


@dataclass(frozen=True)
class Delivery:
    """One message as a subscriber got it."""

    packet: Packet
    received_at: float

    @property
    def payload(self) -> str:
        return self.packet.payload.decode()

    @property
    def topic(self) -> str:
        return self.packet.topic


class MqClient:
    """A connected client."""

    def __init__(self, wire: Wire, client_id: str) -> None:
        self.wire = wire
        self.client_id = client_id

    def publish(
        self,
        topic: str,
        payload: str | bytes = b"",
        *,
        qos: int = 1,
        retain: bool = False,
        user: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        **properties: Any,
    ) -> int:
        """Publish to any topic; the reason code of PUBACK or PUBREC (0 for QoS 0 and 3.1.1)."""
        fields: dict[str, Any] = {"qos": qos, "retain": retain}
        if self.wire.version == 5:
            pairs = user.items() if isinstance(user, Mapping) else user
            users = [("user_property", pair) for pair in pairs]
            fields["properties"] = [*properties.items(), *users]
        return self.wire.publish(topic, payload, **fields).reason_code

    def publish_each(self, topic: str, *payloads: str, qos: int = 1) -> None:
        """Publish these in order; each must be taken."""
        for payload in payloads:
            assert self.publish(topic, payload, qos=qos) == SUCCESS

    def publish_keyed(self, topic: str, *pairs: str) -> None:
        """Each of `a=1`, `b=2` is a message with that `mq-key` and that payload."""
        for pair in pairs:
            key, _, payload = pair.partition("=")
            assert self.publish(topic, payload, user={"mq-key": key}) == SUCCESS

    def subscribe(self, address: str, *, qos: int = 1, identifier: int | None = None) -> int:
        """The reason code of the SUBACK."""
        properties = None if identifier is None else {"subscription_identifier": identifier}
        return self.wire.subscribe(address, qos=qos, properties=properties).reason_codes[0]

    def hold(self, *, timeout: float = RECEIVE_TIMEOUT_S) -> Delivery:
        """The next delivery, not acknowledged."""
        return Delivery(self.wire.expect_publish(timeout=timeout, ack=False), time.monotonic())

    def hold_each(self, count: int) -> list[Delivery]:
        return [self.hold() for _ in range(count)]

    def take(self, *, timeout: float = RECEIVE_TIMEOUT_S) -> Delivery:
        """The next delivery, acknowledged."""
        return Delivery(self.wire.expect_publish(timeout=timeout), time.monotonic())

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

    def drain(self, quiet_s: float = SILENCE_S, *, at_least: int = 0) -> list[str]:
        """The payloads of everything which comes until nothing comes for so long.

        A commit on a busy disk may be silent for longer: so many are waited for in any case."""
        received = self.take_payloads(at_least)
        while (delivery := self.poll(quiet_s)) is not None:
            received.append(delivery.payload)
        return received

    def hold_all(self, quiet_s: float = SILENCE_S) -> list[Delivery]:
        """Everything which comes without an acknowledgement."""
        held: list[Delivery] = []
        while (delivery := self.poll(quiet_s, ack=False)) is not None:
            held.append(delivery)
        return held

    def expect_silence(self, duration_s: float = SILENCE_S) -> None:
        """Nothing comes for so long; a delivery may take a commit, so a ping proves nothing."""
        delivery = self.poll(duration_s, ack=False)
        assert delivery is None, f"got {delivery.packet.payload[:80]!r} of {delivery.topic!r}"

    def ack(self, *deliveries: Delivery, code: int | None = None) -> None:
        for delivery in deliveries:
            self.wire.acknowledge(p.PUBACK, delivery.packet.packet_id, code)
        self.wire.ping()

    def reject(self, *deliveries: Delivery, code: int = UNSPECIFIED) -> None:
        self.ack(*deliveries, code=code)

    def seal(self, topic: str) -> None:
        """What was acknowledged before is stored: a later publish to a queue is confirmed."""
        assert self.publish(topic, "seal") == SUCCESS

    def unsubscribe(self, address: str) -> int:
        return self.wire.unsubscribe(address).reason_codes[0]

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


def spread(clients: list[MqClient], count: int) -> list[list[str]]:
    """What each got and acknowledged, when so many have come in all."""
    received: list[list[str]] = [[] for _ in clients]
    for _ in range(SWEEPS_MAX):
        for client, mine in zip(clients, received, strict=True):
            if (delivery := client.poll(0.02)) is not None:
                mine.append(delivery.payload)
        if sum(map(len, received)) >= count:
            return received
    raise AssertionError(f"{sum(map(len, received))} of {count} messages came")


def holder_of(clients: list[MqClient]) -> tuple[MqClient, Delivery]:
    """Who of them gets the next message, and the message, not acknowledged."""
    for _ in range(SWEEPS_MAX):
        for client in clients:
            if (delivery := client.poll(0.02, ack=False)) is not None:
                return client, delivery
    raise AssertionError("nobody got a message")
