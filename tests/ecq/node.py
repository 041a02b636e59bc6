"""Mailboxes on a simulated broker, where a month passes at once: for what takes long in real time.

Everything is done when a method returns.
"""

from __future__ import annotations

from typing import Any

from queuelake.settings import Settings
from queuelake.storage.api import TABLE_NAMES
from tests.ecq.client import Delivery
from tests.harness import packets as p
from tests.harness.packets import Packet
from tests.simulation.node import Node, Peer

DAY_MS = 24 * 3600 * 1000
STEPS_MAX = 60


class MailboxNode(Node):
    """One producer writes to any owner."""

    def __init__(self, **sections: Any) -> None:
        super().__init__(Settings(**sections))
        self._packet_id = 0
        self._producers = 0

    def leap(self, milliseconds: int) -> None:
        """Much time passes, and then what it brings about is done, step by step."""
        self.loop.now_ns += milliseconds * 1_000_000
        for _ in range(STEPS_MAX):
            self.pass_time(100)

    def share(self, other: Node) -> None:
        """Start again on the store of another node, as a second broker would."""
        self.store = other.store
        self._start()

    def producer(self) -> Peer:
        self._producers += 1
        return self.client(f"producer{self._producers}", clean=True)

    def send_write(self, peer: Peer, owner: str, key: str, payload: str, **properties: Any) -> None:
        """Nothing is done with it before the node works."""
        self._packet_id += 1
        packet = p.publish(
            f"$ECQ/w/{owner}/{key}",
            payload,
            qos=1,
            packet_id=self._packet_id,
            properties=dict(properties),
        )
        peer.transport.send(packet)

    def write(self, owner: str, key: str, payload: str, **properties: Any) -> None:
        peer = self.producer()
        self.send_write(peer, owner, key, payload, **properties)
        self.work()
        answer = peer.take()
        assert (answer.type, answer.reason_code) == (p.PUBACK, 0)
        peer.leave()

    def listener(self, owner: str) -> Peer:
        peer = self.client(owner, clean=True)
        peer.transport.send(p.subscribe(1, [(f"$ECQ/{owner}/#", 1)]))
        self.work()
        suback = peer.take()
        assert (suback.type, suback.reason_codes) == (p.SUBACK, [1])
        return peer

    def drain(self, peer: Peer) -> list[Delivery]:
        """What comes until nothing more comes, each acknowledged."""
        received: list[Delivery] = []
        while packets := peer.take_all():
            for packet in _publishes(packets):
                received.append(Delivery(packet))
                peer.acknowledge(p.PUBACK, packet.packet_id)
            self.work()
        return received

    def read(self, owner: str) -> list[str]:
        """What the owner gets when it comes for a moment, as `key=payload`."""
        peer = self.listener(owner)
        received = [f"{one.key}={one.payload}" for one in self.drain(peer)]
        peer.leave()
        return received

    def rows(self, *names: str) -> list[int]:
        return [len(self.store.tables[TABLE_NAMES.index(name)]) for name in names]


def _publishes(packets: list[Packet]) -> list[Packet]:
    return [packet for packet in packets if packet.type == p.PUBLISH]
