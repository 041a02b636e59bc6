"""A broker on the simulated network for small tests: everything happens when it is told to."""

from __future__ import annotations

from queuelake.broker.clock import Clock
from queuelake.broker.core import Broker
from queuelake.broker.session import Session
from queuelake.settings import Settings
from queuelake.storage.memory import MemoryStore
from tests.harness import packets as p
from tests.harness.packets import Packet, Properties, Will
from tests.harness.reading import parse
from tests.harness.wire import _whole_packet
from tests.simulation.network import FakeLoop, FakeTransport, SlowCommitter

EPOCH_NS = 1_700_000_000_000_000_000
RETRY_MS = 1100


class Node:
    """The broker; `work` brings it to rest, `crash` leaves it nothing but its store."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self.store = MemoryStore()
        self.loop = FakeLoop(EPOCH_NS)
        self._start()

    def _start(self) -> None:
        self.committer = SlowCommitter(self.store, self.loop)
        clock = Clock(self.loop.monotonic_ns, self.loop.now_ns)
        self.broker = Broker(self._settings, self.store, self.loop.as_loop(), self.committer, clock)
        self.broker.start()

    def work(self) -> None:
        """Run until nothing is left to do but to wait."""
        for _ in range(1000):
            self.loop.run_until_idle()
            if not self.committer.is_busy():
                return
            self.committer.commit()
        raise AssertionError("the broker never comes to rest")

    def fail_commit(self) -> None:
        """The next commit fails; the broker then waits for its next try."""
        self.store.fail_commits = 1
        self.work()

    def pass_time(self, milliseconds: int) -> None:
        self.loop.advance(milliseconds)
        self.work()

    def crash(self) -> None:
        tables = self.store.tables
        self.store = MemoryStore()
        self.store.tables = tables
        self.loop = FakeLoop(self.loop.now_ns)
        self._start()

    def session(self, client_id: str) -> Session:
        return self.broker.sessions.by_client[client_id]

    def client(self, client_id: str, version: int = 5, **fields: object) -> Peer:
        """A client which has connected and read its CONNACK."""
        peer = Peer(self, client_id, version)
        peer.connect(**fields)  # type: ignore[arg-type]
        self.work()
        connack = peer.take()
        assert connack.type == p.CONNACK
        assert connack.reason_code == 0
        peer.session_present = connack.session_present
        return peer


class Peer:
    """The client's end of one connection."""

    def __init__(self, node: Node, client_id: str, version: int) -> None:
        self._node = node
        self.client_id = client_id
        self.version = version
        self.session_present = False
        self.transport = FakeTransport(node.broker, node.loop)

    def connect(
        self, *, clean: bool = False, expiry_s: int = 3600, will: Will | None = None
    ) -> None:
        properties: Properties = None
        if self.version == 5:
            properties = {"session_expiry_interval": expiry_s}
        self.transport.send(
            p.connect(
                self.client_id,
                version=self.version,
                clean=clean,
                properties=properties,
                will=will,
            )
        )

    def subscribe(self, *filters: str, qos: int = 2) -> None:
        """Subscribe and read the SUBACK."""
        items: list[p.Subscription] = [(one, qos) for one in filters]
        self.transport.send(p.subscribe(999, items, version=self.version))
        self._node.work()
        assert self.take().type == p.SUBACK

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        packet_id: int,
        *,
        dup: bool = False,
        retain: bool = False,
    ) -> None:
        """Send PUBLISH; nothing is done with it until the node works."""
        self.transport.send(
            p.publish(
                topic,
                payload,
                qos=qos,
                packet_id=packet_id,
                version=self.version,
                dup=dup,
                retain=retain,
            )
        )

    def acknowledge(self, packet_type: int, packet_id: int) -> None:
        self.transport.send(p.acknowledge(packet_type, packet_id))

    def take(self) -> Packet:
        """The next packet, which must be here."""
        length = _whole_packet(self.transport.received)
        assert length, "a packet was expected"
        raw = bytes(self.transport.received[:length])
        del self.transport.received[:length]
        return parse(raw, self.version)

    def take_all(self) -> list[Packet]:
        found = []
        while self.transport.received:
            found.append(self.take())
        return found

    def payloads(self) -> list[bytes]:
        """The payloads of the PUBLISH packets which are here; other packets are dropped."""
        return [one.payload for one in self.take_all() if one.type == p.PUBLISH]

    def hang_up(self) -> None:
        self.transport.hang_up()
        self._node.work()

    def leave(self) -> None:
        """DISCONNECT."""
        self.transport.send(p.disconnect())
        self._node.work()
