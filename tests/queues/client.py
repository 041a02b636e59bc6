"""A small client of durable queues for tests, over the raw `Wire`.

It speaks what the contract says and knows nothing of the product: user properties go out and come
back as a dict, each publish answers with its reason code, and a delivery is acknowledged at MQTT
level as it is received (`puback=False` leaves that to the test) but settled only when told.
"Nothing comes" is a read with a short deadline: a delivery may take a commit of its own, so a ping
round trip would prove nothing.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.harness import packets as p
from tests.harness.packets import Packet, WireError
from tests.harness.wire import Wire

RECEIVE_TIMEOUT_S = 15.0
SILENCE_S = 0.4
PING_INTERVAL_S = 0.3
DEADLINE = "nothing before the deadline"
RESERVED = ("message-id", "group-id", "queue", "partition", "offset", "delivery-count")

SUCCESS, NO_MATCH = 0x00, 0x10
UNSPECIFIED, SPECIFIC, NOT_AUTHORIZED = 0x80, 0x83, 0x87
TOPIC_NAME_INVALID, TOO_LARGE, QUOTA_EXCEEDED = 0x90, 0x95, 0x97


@dataclass(frozen=True)
class Delivery:
    """One message as a consumer got it; 3.1.1 consumers see no properties."""

    packet: Packet
    received_at: float

    @property
    def payload(self) -> str:
        return self.packet.payload.decode()

    @property
    def properties(self) -> dict[str, str]:
        return dict(self.packet.user_properties)

    @property
    def message_id(self) -> str:
        return self.properties["message-id"]

    @property
    def group(self) -> str:
        return self.properties["group-id"]

    @property
    def partition(self) -> int:
        return int(self.properties["partition"])

    @property
    def offset(self) -> int:
        return int(self.properties["offset"])

    @property
    def count(self) -> int:
        return int(self.properties["delivery-count"])


class QueueClient:
    """A connected client; queues are named without `$queue/`."""

    def __init__(self, wire: Wire, client_id: str) -> None:
        self.wire = wire
        self.client_id = client_id

    def publish(
        self,
        queue: str,
        payload: str | bytes = b"",
        *,
        qos: int = 1,
        user: Mapping[str, str] | None = None,
        **properties: Any,
    ) -> int:
        """Enqueue; the reason code of PUBACK or PUBREC (0 for QoS 0 and for 3.1.1)."""
        return self.publish_topic(f"$queue/{queue}", payload, qos=qos, user=user, **properties)

    def publish_topic(
        self,
        topic: str,
        payload: str | bytes = b"",
        *,
        qos: int = 1,
        user: Mapping[str, str] | None = None,
        **properties: Any,
    ) -> int:
        fields: dict[str, Any] = {"qos": qos}
        if self.wire.version == 5:
            pairs = [("user_property", pair) for pair in (user or {}).items()]
            fields["properties"] = [*properties.items(), *pairs]
        answer = self.wire.publish(topic, payload, **fields)
        return answer.reason_code

    def publish_each(self, queue: str, *payloads: str, key: str | None = None) -> None:
        """Enqueue these in order, with one partition key; each must be taken."""
        user = {} if key is None else {"partition-key": key}
        for payload in payloads:
            assert self.publish(queue, payload, user=user) == SUCCESS

    def configure(self, queue: str, **settings: Any) -> int:
        """Publish settings of section 8 to the admin topic of the queue."""
        return self.publish_topic(f"$queue/{queue}/$config", json.dumps(settings))

    def subscribe(self, queue: str, *, group: str | None = None, qos: int = 1, **user: str) -> int:
        """Join a group; the reason code of the SUBACK. `ack_mode=` is sent as `ack-mode`."""
        pairs = [(key.replace("_", "-"), value) for key, value in user.items()]
        if group is not None:
            pairs.append(("consumer-group", group))
        properties = [("user_property", pair) for pair in pairs]
        suback = self.wire.subscribe(f"$queue/{queue}", qos=qos, properties=properties)
        return suback.reason_codes[0]

    def receive(self, *, timeout: float = RECEIVE_TIMEOUT_S, puback: bool = True) -> Delivery:
        """The next delivery, acknowledged at MQTT level unless `puback` is False."""
        packet = self.wire.expect_publish(timeout=timeout, ack=puback)
        return Delivery(packet, time.monotonic())

    def receive_each(self, count: int) -> list[Delivery]:
        return [self.receive() for _ in range(count)]

    def receive_payloads(self, count: int) -> list[str]:
        return [delivery.payload for delivery in self.receive_each(count)]

    def receive_and_ack(self, count: int) -> list[Delivery]:
        """So many deliveries, each settled before the next is awaited."""
        received: list[Delivery] = []
        for _ in range(count):
            received.append(self.receive())
            assert self.ack(received[-1]) == SUCCESS
        return received

    def poll(self, timeout: float = 0.1) -> Delivery | None:
        """The next delivery, or None when none comes in time."""
        try:
            return self.receive(timeout=timeout)
        except WireError as error:
            if DEADLINE not in str(error):
                raise
            return None

    def drain(self, timeout: float = 1.0) -> list[Delivery]:
        """Every delivery until none comes for so long."""
        received: list[Delivery] = []
        while (delivery := self.poll(timeout)) is not None:
            received.append(delivery)
        return received

    def receive_pinging(self, timeout: float = RECEIVE_TIMEOUT_S) -> Delivery:
        """As `receive`, with heartbeats while waiting."""
        deadline = time.monotonic() + timeout
        while True:
            self.wire.ping()
            delivery = self.poll(PING_INTERVAL_S)
            if delivery is not None:
                return delivery
            assert time.monotonic() < deadline, f"no delivery within {timeout} s"

    def expect_silence(self, duration_s: float = SILENCE_S) -> None:
        """No packet comes for so long."""
        delivery = self.poll(duration_s)
        assert delivery is None, f"got {delivery.payload!r} {delivery.properties}"

    def settle(
        self, verdict: str, delivery: Delivery, *, queue: str | None = None, **user: str
    ) -> int:
        """Publish to `$ack`, `$nack` or `$reject` of the queue the message came from."""
        topic = delivery.packet.topic if queue is None else f"$queue/{queue}"
        pairs = {key.replace("_", "-"): value for key, value in user.items()}
        pairs["message-id"] = delivery.message_id
        return self.publish_topic(f"{topic}/${verdict}", user=pairs)

    def settle_id(self, queue: str, verdict: str, message_id: str | None, *, qos: int = 1) -> int:
        """Settle any id, or none at all."""
        user = {} if message_id is None else {"message-id": message_id}
        return self.publish(f"{queue}/${verdict}", qos=qos, user=user)

    def ack(self, delivery: Delivery, **user: str) -> int:
        return self.settle("ack", delivery, **user)

    def nack(self, delivery: Delivery, **user: str) -> int:
        return self.settle("nack", delivery, **user)

    def reject(self, delivery: Delivery, **user: str) -> int:
        return self.settle("reject", delivery, **user)

    def puback(self, delivery: Delivery) -> None:
        self.wire.acknowledge(p.PUBACK, delivery.packet.packet_id)

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


def fnv1a(key: str) -> int:
    """FNV-1a, 32 bit, over the UTF-8 bytes: a second opinion on the broker's hash."""
    value = 0x811C9DC5
    for byte in key.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def keys_of(partition: int, partitions: int, count: int = 1) -> list[str]:
    """The first keys `k0`, `k1`, ... which hash to this partition."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        if fnv1a(f"k{number}") % partitions == partition:
            found.append(f"k{number}")
        number += 1
    return found


def key_of(partition: int, partitions: int) -> str:
    return keys_of(partition, partitions)[0]


def wait_until(condition: Callable[[], bool], timeout_s: float = RECEIVE_TIMEOUT_S) -> None:
    """Ask again and again until it is so."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not so after {timeout_s} s"
        time.sleep(0.1)
