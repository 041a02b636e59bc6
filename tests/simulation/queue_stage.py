"""What a simulated world with queues happens on: the broker, the wires, and who listens to them.

Everything the broker writes is told to the ledger; everything it logs as wrong is kept.
"""

from __future__ import annotations

import logging

from queuelake.broker.queues.host import HostedQueue
from queuelake.engine.kinds.durable import DurableQueue
from queuelake.queue_settings import settings_of
from queuelake.settings import Lake, Settings
from tests.harness import packets as p
from tests.simulation.archive_invariants import check_nothing_is_missing
from tests.simulation.network import FakeTransport
from tests.simulation.node import Node
from tests.simulation.queue_invariants import check_invariants
from tests.simulation.queue_kinds import section_with
from tests.simulation.queue_ledger import DeadLetter, Ledger
from tests.simulation.queue_peers import Link, Peer, Worker
from tests.simulation.world import split

GROUPS = ["red", "blue"]
UNDERTAKERS = "undertakers"
INVARIANTS_EVERY = 10
START_NS = 100_000_000
FAILURES = ("commit failed", "store works again", "for the archive", "not archived")


class Stage:
    """The broker with queues of these names."""

    def __init__(self, names: list[str], lake: Lake | None = None) -> None:
        self.names = names
        section = section_with(names)
        settings = {
            name: settings_of(name, section.defaults, section.named[name]) for name in names
        }
        self.log = LogKeeper()
        self.node = Node(Settings(queues=section, lake=lake or Lake()))
        self.ledger = Ledger(settings, GROUPS)
        self.ledger.now_ms = lambda: self.node.loop.now_ns // 1_000_000
        self.ledger.host = self.host
        self.steps = 0

    def host(self, name: str) -> HostedQueue | None:
        return self.node.broker.queues.hosts.get(name)

    def check(self) -> None:
        self.count_given_up()
        wrong = self.ledger.wrong + self.log.found
        assert not wrong, f"step {self.steps}: " + "\n".join(wrong)
        if self.steps % INVARIANTS_EVERY == 0:
            for host in self.node.broker.queues.hosts.values():
                assert isinstance(host.machine, DurableQueue)
                check_invariants(host.machine)
            for name in self.names:
                if self.ledger.settings[name].archive:
                    queue_id = self.node.broker.queues._ids[name]
                    partitions = self.ledger.settings[name].partitions
                    check_nothing_is_missing(self.node.store, queue_id, partitions)

    def count_given_up(self) -> None:
        """Where there are no dead letters, nobody but the machine knows what it gave up."""
        for name in self.names:
            host = self.host(name)
            if host is not None:
                count = sum(host.machine.counters.dead.values())
                self.ledger.gave_up(name, id(host.machine), count)

    def depths(self) -> dict[str, tuple[int, ...]]:
        """Of each queue how much it holds, and how much each group still needs."""
        found = {}
        for name in self.node.broker.queues.names():
            machine = self.node.broker.queues.get(name).machine
            # What is due may join its partition as soon as the broker is back.
            groups = [machine.groups[one].unsettled for one in GROUPS if one in machine.groups]
            found[name] = (machine.depth(), *(count + machine.delayed for count in groups))
        return found

    def commit(self) -> None:
        store = self.node.store
        before = store.fail_commits
        self.node.committer.commit()
        if store.fail_commits < before:
            self.ledger.new_epoch()
            self.node.loop.call_soon(self.ledger.new_epoch)  # the broker has heard of it by then

    def start_again(self) -> None:
        """A new broker on what the store has; it takes a moment."""
        self.node.loop.now_ns += START_NS
        self.node.crash()

    def rest(self) -> None:
        """Let the broker finish, whether the store works or not."""
        for _ in range(100):
            self.node.loop.run_until_idle()
            if not self.node.committer.is_busy() and not self.node.broker.runner.has_work():
                return
            if not self.node.committer.is_busy():
                self.node.loop.advance(1)  # settlements may wait for a message to go with
            self.commit()
            if self.node.broker.runner.failure:
                self.node.loop.advance(1100)
        raise AssertionError("the broker never comes to rest")

    def open(self, peer: Peer) -> None:
        """A new connection; the broker takes what an older one had in hand."""
        transport = FakeTransport(self.node.broker, self.node.loop)
        link = peer.connect(transport)
        transport.on_write = lambda data: self._on_write(peer, link, data)
        self.heard(peer)
        self.ledger.left(peer.name)
        peer.log_in()

    def hang_up(self, peer: Peer, transport: FakeTransport) -> None:
        is_current = not transport.lost
        transport.hang_up()
        if is_current and peer.link is None:
            self.ledger.left(peer.name)

    def heard(self, peer: Peer) -> None:
        self.ledger.heard(peer.name)

    def _on_write(self, peer: Peer, link: Link, data: bytes) -> None:
        for packet in split(data, peer.version):
            packet_id, reason = packet.packet_id, packet.reason_code
            if packet.type == p.PUBLISH and isinstance(peer, Worker):
                if peer.group == UNDERTAKERS:
                    self._bury(packet)
                else:
                    self.ledger.delivered(peer.name, packet, peer.group)
            elif packet.type in (p.PUBACK, p.PUBREC):
                if packet_id in link.settles:
                    self.ledger.settled(*link.settles.pop(packet_id), reason)
                elif packet_id in link.posts:
                    self.ledger.answered(link.posts.pop(packet_id), reason)
                elif packet_id in link.configures and reason == 0:
                    self.ledger.configured(*link.configures.pop(packet_id))

    def _bury(self, packet: p.Packet) -> None:
        told = dict(packet.user_properties)
        if told["delivery-count"] == "1":
            queue = told["dlq-original-queue"].removeprefix("$queue/")
            count = int(told["dlq-delivery-count"])
            letter = (int(packet.payload), queue, told["dlq-group"], told["dlq-reason"], count)
            self.ledger.dead.append(DeadLetter(*letter))


class LogKeeper(logging.Handler):
    """Whatever the broker calls an error, but for what was brought about on purpose."""

    def __init__(self, expected: tuple[str, ...] = FAILURES) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []
        self._expected = expected

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if not any(part in text for part in self._expected):
            why = f": {record.exc_info[1]!r}" if record.exc_info else ""
            self.found.append(f"log: {text}{why}")
