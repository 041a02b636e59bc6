"""Queues on a simulated broker, where an hour passes at once: for what takes long in real time."""

from __future__ import annotations

from typing import Any

from queuelake.broker.queues.host import HostedQueue
from queuelake.settings import Lake, Limits, Queues, Settings
from queuelake.storage import api
from queuelake.storage import queue_tables as t
from tests.harness import packets as p
from tests.simulation.node import Node, Peer

SECOND_MS = 1000


class QueueNode(Node):
    """Queues are named without `$queue/`; everything is done when a method returns."""

    def __init__(
        self, *, lake: Lake | None = None, limits: Limits | None = None, **queues: Any
    ) -> None:
        settings = Settings(queues=Queues(**queues), lake=lake or Lake(), limits=limits or Limits())
        super().__init__(settings)
        self._packet_id = 0
        self._readers = 0

    # Time

    def after(self, seconds: float) -> None:
        """Time passes, and what it brings about is done as it comes."""
        for _ in range(int(seconds * 1000 / SECOND_MS)):
            self.pass_time(SECOND_MS)

    def leap(self, seconds: float) -> None:
        """Much time passes in which the broker was not looked at, then two seconds."""
        self.loop.now_ns += int(seconds * 1e9)
        self.after(2)

    # Queues

    def make(self, queue: str, **settings: object) -> str:
        self.broker.queues.configure(queue, settings)
        self.work()
        return queue

    def awake(self, queue: str) -> HostedQueue | None:
        return self.broker.queues.hosts.get(queue)

    def host(self, queue: str) -> HostedQueue:
        return self.broker.queues.get(queue)

    def stored_bytes(self, queue: str) -> int:
        """Of its messages in the store."""
        prefix = t.queue_key(self.host(queue).id)
        return sum(len(v) for key, v in self.store.tables[api.CHUNKS].items() if key[:8] == prefix)

    # Clients

    def publish(
        self,
        queue: str,
        payload: str | bytes,
        *,
        key: str = "",
        expiry_s: int = 0,
        user: dict[str, str] | None = None,
        expected: int = 0,
        by: str = "producer",
    ) -> None:
        """By a client of its own, which must be answered as expected."""
        session = self.broker.sessions.by_client.get(by)
        if session is None or session.connection is None:
            self._producer = self.client(by)
        pairs = dict(user or {})
        if key:
            pairs["partition-key"] = key
        properties: list[tuple[str, Any]] = [("user_property", pair) for pair in pairs.items()]
        if expiry_s:
            properties.append(("message_expiry_interval", expiry_s))
        packet = p.publish(
            f"$queue/{queue}", payload, qos=1, packet_id=self._next_id(), properties=properties
        )
        self._producer.transport.send(packet)
        self.work()
        answer = self._producer.take()
        assert (answer.type, answer.reason_code) == (p.PUBACK, expected)

    def consumer(self, queue: str, group: str | None, *, client_id: str = "", **user: str) -> Peer:
        """A client which has joined a group; a PUBACK settles what it gets."""
        self._readers += 1
        peer = self.client(client_id or f"reader{self._readers}", clean=True)
        pairs = {"ack-mode": "puback"} | {k.replace("_", "-"): v for k, v in user.items()}
        if group is not None:
            pairs["consumer-group"] = group
        properties = [("user_property", pair) for pair in pairs.items()]
        packet = p.subscribe(self._next_id(), [(f"$queue/{queue}", 1)], properties=properties)
        peer.transport.send(packet)
        self.work()
        suback = peer.take()
        assert (suback.type, suback.reason_codes) == (p.SUBACK, [1])
        return peer

    def settle_all(self, peer: Peer) -> list[str]:
        """What comes until nothing more comes, each settled as it comes."""
        received: list[str] = []
        while packets := peer.take_all():
            for packet in packets:
                if packet.type == p.PUBLISH:
                    received.append(packet.payload.decode())
                    peer.acknowledge(p.PUBACK, packet.packet_id)
            self.work()
        return received

    def replay(self, queue: str, start: str = "first") -> list[str]:
        """What a group of its own reads of a stream from there."""
        peer = self.consumer(queue, f"replay{self._readers}", x_stream_offset=start)
        received = self.settle_all(peer)
        peer.leave()
        return received

    def drain(self, queue: str, group: str = "g") -> list[str]:
        peer = self.consumer(queue, group)
        received = self.settle_all(peer)
        peer.leave()
        return received

    def _next_id(self) -> int:
        self._packet_id += 1
        return self._packet_id
