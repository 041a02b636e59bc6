"""What a simulated world with message queues happens on: the broker, the wires, who listens.

Everything the broker writes is told to the ledger. Where a delivery came from is read from the
broker: a message in two queues looks the same in both.
"""

from __future__ import annotations

from queuelake.broker.deliveries import Consumer
from queuelake.broker.message_queues.host import MessageQueueHost
from queuelake.broker.message_queues.service import MessageQueues
from queuelake.broker.message_queues.subscriber import MqSubscriber
from queuelake.broker.queues.subscribing import find
from queuelake.engine.groups import GROUP
from queuelake.engine.kinds.message_queue import MessageQueue
from queuelake.mq_settings import MqConfig
from queuelake.names import parse_message_queue
from queuelake.settings import Queues, Settings
from queuelake.storage import api
from queuelake.storage import queue_tables as t
from tests.harness import packets as p
from tests.simulation.message_queue_invariants import check_message_queue
from tests.simulation.message_queue_ledger import Kept, Ledger, Seen
from tests.simulation.message_queue_peers import Publisher, Subscriber
from tests.simulation.network import FakeTransport
from tests.simulation.node import Node
from tests.simulation.queue_peers import Peer
from tests.simulation.queue_stage import LogKeeper
from tests.simulation.world import split

INVARIANTS_EVERY = 5
IDLE_UNLOAD_S = 5.0
START_NS = 100_000_000
EXPECTED = (
    "commit failed",
    "store works again",
    "is not made for a subscription",
    "cannot resume",
    "the queue holds at most",
)


class Stage:
    """The broker, and what it has promised."""

    def __init__(self, config: MqConfig) -> None:
        queues = Queues(auto_create=False, idle_unload_s=IDLE_UNLOAD_S)
        self.log = LogKeeper(EXPECTED)
        self.node = Node(Settings(queues=queues, mq=config))
        self.ledger = Ledger()
        self.ledger.now_ms = lambda: self.node.loop.now_ns // 1_000_000
        self.ledger.durable = lambda: self.node.broker.runner.durable
        self.steps = 0

    @property
    def service(self) -> MessageQueues:
        return self.node.broker.message_queues

    def host(self, name: str) -> MessageQueueHost:
        return self.service.awake(self.service.known[name])

    def queue_id(self, name: str) -> int:
        host = self.service.known[name].host
        return host.id if host is not None else self.node.broker.queues.sleeping_id(name)

    def note_queues(self) -> None:
        """Which queues there are, and what they promise from now on."""
        for name, known in self.service.known.items():
            settings = known.settings
            lives_ms = settings.data_retention_ms
            if not settings.is_lastvalue and not settings.is_limited:
                lives_ms = self.service.config.regular_queue_retention_ms
            fresh = Kept(name, settings.is_lastvalue, lives_ms)
            kept = self.ledger.queues.setdefault(self.queue_id(name), fresh)
            kept.lives_ms = min(kept.lives_ms, lives_ms)
            kept.in_flight_max = max(kept.in_flight_max, settings.local_max_inflight)
            kept.is_limited = kept.is_limited or settings.is_limited
            kept.may_bury = kept.may_bury or settings.max_redeliveries > 0
            kept.times_out = kept.times_out or settings.ack_timeout_ms > 0

    # Checks

    def check(self) -> None:
        wrong = self.ledger.wrong + self.log.found
        assert not wrong, f"step {self.steps}: " + "\n".join(wrong)
        if self.steps % INVARIANTS_EVERY == 0:
            self._check_machines()
            self._check_subscriptions()

    def _check_machines(self) -> None:
        for name, known in self.service.known.items():
            assert known.host is self.node.broker.queues.hosts.get(name)
            if known.host is not None:
                machine = known.host.machine
                assert isinstance(machine, MessageQueue)
                check_message_queue(machine)

    def _check_subscriptions(self) -> None:
        """Whoever is connected is attached to its queue, or waits for it; nobody else does."""
        expected: set[tuple[int, bytes]] = set()
        for session in self.node.broker.sessions.by_client.values():
            if session.connection is None:
                assert not session.consumers, f"{session.client_id} is away and attached"
                continue
            for topic_filter in session.subscriptions:
                name, inner = parse_message_queue(topic_filter)
                known = self.service.known.get(name)
                if known is None or (inner and inner != known.settings.topic_filter):
                    expected.add((session.id, topic_filter))
                    continue
                found = find(session, topic_filter)
                assert found is not None, f"{session.client_id} is not attached to {name}"
                assert found.host is known.host
                assert known.host.subscribers.get(found.tag) is found
        waiting = set(self.service.subscriptions._waiting)
        assert waiting == expected, f"waiting: {waiting}, expected: {expected}"

    def check_rows(self) -> None:
        """After everything had its turn, the store has what the machines have, and no more."""
        tables = self.node.store.tables
        self._check_memory()
        for name in list(self.service.known):
            host = self.host(name)
            lane = host.machine.groups[GROUP].lanes[0]
            live = set(lane.settled.unsettled(1, host.machine.partitions[0].last))
            settings = host.known.settings
            assert not settings.count_max or len(live) <= settings.count_max
            assert not settings.bytes_max or host.machine.bytes <= settings.bytes_max
            if not settings.is_lastvalue:
                continue
            prefix = t.queue_key(host.id)
            latest = [
                int.from_bytes(value[:8], "little")
                for key, value in tables[api.LATEST].items()
                if key.startswith(prefix)
            ]
            assert sorted(latest) == sorted(live), f"{name}: index {latest}, messages {live}"
            rows = {t.first_of(key) for key in tables[api.CHUNKS] if key.startswith(prefix)}
            assert rows == live, f"{name}: rows {rows}, messages {live}"

    def _check_memory(self) -> None:
        """Nothing waits to be written, and what is cached is counted."""
        queues = self.node.broker.queues
        cached = 0
        for host in queues.hosts.values():
            for tail in host.tails:
                assert not tail.pending
                assert not tail.storing
                cached += sum(size for _, _, size in tail.spans)
            if isinstance(host, MessageQueueHost):
                assert not host._gone_rows
                assert not host.machine.freed
        assert queues.cache.bytes == cached, f"{queues.cache.bytes} counted, {cached} cached"

    # The broker

    def commit(self) -> None:
        store = self.node.store
        before = store.fail_commits
        self.node.committer.commit()
        if store.fail_commits < before:
            self.ledger.new_epoch()
            self.node.loop.call_soon(self.ledger.new_epoch)  # the broker has heard of it by then

    def start_again(self, jump_ms: int = 0) -> None:
        """A new broker on what the store has, perhaps by another clock."""
        self.ledger.new_epoch()
        self.node.loop.now_ns += START_NS + jump_ms * 1_000_000
        self.node.crash()

    def rest(self) -> None:
        """Let the broker finish, whether the store works or not."""
        for _ in range(100):
            self.node.loop.run_until_idle()
            if not self.node.committer.is_busy() and not self.node.broker.runner.has_work():
                return
            self.commit()
            if self.node.broker.runner.failure:
                self.node.loop.advance(1100)
        raise AssertionError("the broker never comes to rest")

    # Wires

    def open(self, peer: Peer) -> None:
        transport = FakeTransport(self.node.broker, self.node.loop)
        peer.connect(transport)
        transport.on_write = lambda data: self._on_write(peer, transport, data)
        self.ledger.left(peer.name)
        peer.log_in()

    def hang_up(self, peer: Peer, transport: FakeTransport) -> None:
        is_current = not transport.lost
        transport.hang_up()
        if is_current and peer.link is None:
            self.ledger.left(peer.name)

    def _on_write(self, peer: Peer, transport: FakeTransport, data: bytes) -> None:
        for packet in split(data, peer.version):
            if packet.type == p.PUBLISH and isinstance(peer, Subscriber):
                self._delivered(peer, transport, packet)
            elif packet.type in (p.PUBACK, p.PUBREC) and isinstance(peer, Publisher):
                is_current = peer.link is not None and peer.link.transport is transport
                number = peer.unanswered.pop(packet.packet_id, 0) if is_current else 0
                if number:
                    self.ledger.answered(number, packet.reason_code)

    def _delivered(self, peer: Subscriber, transport: FakeTransport, packet: p.Packet) -> None:
        number = int(packet.payload.partition(b":")[0])
        session = self.node.session(peer.name)
        subscriber: Consumer | None = find(session, peer.filter_of(packet).encode())
        seq = attempt = 0
        if packet.qos:
            assert session.deliveries is not None
            delivery = session.deliveries.inflight[packet.packet_id]
            subscriber, seq, attempt = delivery.consumer, delivery.record.seq, delivery.attempt
        assert isinstance(subscriber, MqSubscriber)
        host = subscriber.host
        lane = host.machine.groups[GROUP].lanes[0]
        is_first = attempt == 1 and seq not in lane.tallies and seq not in lane.settled
        seen = Seen(peer.name, host.id, number, packet.qos, subscriber.tag, is_first)
        self.ledger.delivered(seen, packet.topic, packet.payload)
        if packet.retain:
            self.ledger.wrong.append(f"{seen} is marked as retained")
        if not packet.qos:
            self.ledger.settled(seen, self.node.broker.runner.number)
        elif peer.link is not None and peer.link.transport is transport:
            peer.taken[packet.packet_id] = seen

    def answer(self, peer: Subscriber, packet_id: int, reason: int) -> None:
        """The client settles; whether that counts is asked of the broker."""
        seen = peer.taken.pop(packet_id)
        reason = reason if peer.version == 5 else 0  # 3.1.1 cannot say no
        deliveries = self.node.session(peer.name).deliveries
        assert deliveries is not None
        delivery = deliveries.inflight.get(packet_id)
        self.ledger.settling(seen, reason < 0x80)
        if delivery is None:
            peer.answer(packet_id, reason)
            return
        assert isinstance(delivery.consumer, MqSubscriber)
        machine = delivery.consumer.host.machine
        before = machine.counters.acked
        group = self.node.broker.runner.number
        peer.answer(packet_id, reason)
        if machine.counters.acked > before:
            self.ledger.settled(seen, group)
