"""The whole broker in a cluster: the clients and the promises of `world.py`, the nodes and the
faults of `cluster_world.py`.

Clients connect to whoever is the owner, wherever that is; a broker which is not the owner any more
is thrown away with its connections. What they were promised holds over all owners.
"""

from __future__ import annotations

from collections import Counter

from queuelake.broker.clock import Clock
from queuelake.broker.core import Broker
from queuelake.cluster.committer import ReplicatedCommitter
from tests.simulation.client import Client
from tests.simulation.cluster_engine import LATE_MAX_S, LOG, RECORD, Center, Fate
from tests.simulation.cluster_loop import Time
from tests.simulation.cluster_node import LEASE_S, UNDONE_MAX, Node, Process
from tests.simulation.cluster_record import LogOfRecord
from tests.simulation.lives import quiet
from tests.simulation.network import FakeTransport
from tests.simulation.world import SETTINGS, World

STEPS = 200
NODES = ("n1", "n2", "n3")
WAIT_S = 0.1
WAITS_MAX = 600


class ClusterBrokerWorld(World):
    """One life from one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        taken = (self._commits_fail, self._crash)
        self._events = [(weight, event) for weight, event in self._events if event not in taken]
        self._events += [
            (60, self._traffic),
            (2, self._node_crashes),
            (5, self._nodes_start),
            (2, self._node_hangs),
            (6, self._nodes_wake_up),
            (1, self._node_is_cut_off),
            (5, self._cuts_are_mended),
            (2, self.fate.worsen),
            (3, self.fate.mend),
            (1, self._leader_is_lost),
            (5, self.center.leaderless.clear),
            (2, self._truncate),
            (2, self._transfer),
        ]

    def _start_broker(self) -> None:
        self.time = Time(self.dice)
        self.fate = Fate(self.dice)
        self.center = Center(self.time, self.fate)
        self.tally: Counter[str] = self.center.tally
        self.record = LogOfRecord(self.center)
        self.store = self.record.store  # what is promised must be there
        self.nodes = [Node(self, name, 1.0) for name in NODES]
        for node in self.nodes:
            node.start()
        self._owner()

    def close(self) -> None:
        self.time.close()

    # What nodes ask of the world

    def begin(
        self, process: Process[OwnersBroker], committer: ReplicatedCommitter, epoch: int
    ) -> OwnersBroker:
        return OwnersBroker(self, process, committer)

    def peer_to_copy(self, node: Node[OwnersBroker]) -> Node[OwnersBroker] | None:
        needed = max(node.store.position().position + 1, self.center.first - 1)
        peers = [one for one in self.nodes if one is not node and one.process is not None]
        peers = [one for one in peers if one.store.position().position >= needed]
        return self.dice.choice(peers) if peers else None

    # Clients and their owner

    def _owner(self) -> OwnersBroker:
        """Waits for one, as a client does which tries again and again."""
        for _ in range(WAITS_MAX):
            for process in self._processes():
                if process.broker is not None and process.ownership.is_owner:
                    return process.broker
            self.time.run(WAIT_S)
            self._recover_a_little()
        raise AssertionError(f"no owner for {WAIT_S * WAITS_MAX:g} s")

    def _recover_a_little(self) -> None:
        self._nodes_start()
        self._nodes_wake_up()
        self._cuts_are_mended()
        self.center.leaderless.clear()

    def _new_transport(self) -> FakeTransport:
        owner = self._owner()
        transport = LateTransport(owner.broker, owner.process.loop)
        owner.transports.append(transport)
        return transport

    def lose_connections(self, transports: list[FakeTransport]) -> None:
        """Those at the other end notice, now or when they read."""
        for client in self.clients:
            if client.transport in transports:
                client.forget_connection()
        for mortal in self.mortals:
            if mortal.transport in transports:
                mortal.broker_crashed(self.steps)
        self.ghosts = [one for one in self.ghosts if one not in transports]
        self.stalled = [one for one in self.stalled if one not in transports]

    # Steps

    def _work(self) -> None:
        self.time.run(self.dice.choice([0.0, 0.003, 0.02, 0.2]))

    def _rest(self) -> bool:
        self.time.run(0.25)
        return any(process.broker and process.broker.is_busy() for process in self._processes())

    def _time_passes(self) -> None:
        self.time.run(self.dice.choice([0.01, 0.3, 1.2, LEASE_S * 1.2]))

    def _on_write(self, client: Client, data: bytes) -> None:
        self.record.follow()
        super()._on_write(client, data)

    def check(self) -> None:
        super().check()
        self.record.follow()
        for node in self.nodes:
            position = node.store.position()
            known = self.record.positions.get(position.position)
            assert known == position, f"{node.name} is at {position}, the log says {known}"
            same = self.record.tables[position.position] == node.store.tables
            assert same, f"{node.name} differs at {position}"

    def _traffic(self) -> None:
        """Most of the time clients are there and do what clients do."""
        for client in self.clients:
            if client.transport is None:
                self._open(client)
            client.read(1000, self.steps)
            client.answer(1000)
        self._publish()

    # Faults

    def _processes(self) -> list[Process[OwnersBroker]]:
        return [node.process for node in self.nodes if node.process is not None]

    def _node_crashes(self) -> None:
        self.crashes += 1
        living = [node for node in self.nodes if node.process is not None]
        if living:
            self.dice.choice(living).crash(self.dice.choice([0, 1, UNDONE_MAX]))

    def _nodes_start(self) -> None:
        for node in self.nodes:
            if node.process is None and self.dice.random() < 0.5:
                node.start()

    def _node_hangs(self) -> None:
        processes = self._processes()
        if processes:
            self.dice.choice(processes).loop.paused = True

    def _nodes_wake_up(self) -> None:
        for process in self._processes():
            process.loop.paused = process.loop.paused and self.dice.random() < 0.5

    def _node_is_cut_off(self) -> None:
        processes = self._processes()
        if processes:
            self.dice.choice(processes).engine.cut(off=True)

    def _cuts_are_mended(self) -> None:
        for process in self._processes():
            process.engine.cut(off=False)

    def _leader_is_lost(self) -> None:
        self.center.leaderless.add(self.dice.choice([LOG, RECORD]))

    def _truncate(self) -> None:
        living = [node for node in self.nodes if node.process is not None]
        if living:
            self.center.truncate(min(node.store.safe_position() for node in living))

    def _transfer(self) -> None:
        for process in self._processes():
            if process.broker is not None:
                process.transfer(self.dice.choice(["", *NODES]))

    # The end

    def settle(self) -> None:
        self.fate.mend()
        self.center.leaderless.clear()
        for node in self.nodes:
            if node.process is None:
                node.start()
        for process in self._processes():
            process.loop.paused = False
            process.engine.cut(off=False)
        self.time.run(LATE_MAX_S)
        super().settle()

    def check_end(self) -> None:
        super().check_end()
        self.time.run(LEASE_S)
        self.check()
        behind = [node.name for node in self.nodes if node.store.position() != self.record.position]
        assert not behind, f"not at the end of the log: {behind}"


class OwnersBroker:
    """The real broker, on the loop of its process."""

    def __init__(
        self,
        world: ClusterBrokerWorld,
        process: Process[OwnersBroker],
        committer: ReplicatedCommitter,
    ) -> None:
        self._world = world
        self.process = process
        self.transports: list[FakeTransport] = []
        loop = process.loop
        clock = Clock(loop.monotonic_ns, loop.now_ns)
        self.broker = Broker(SETTINGS, process.store, loop.as_loop(), committer, clock)
        self.broker.start()

    def is_busy(self) -> bool:
        return self.broker.runner.has_work()

    async def stop(self) -> None:
        self.broker.runner.failure = "not the owner any more"
        await self.broker.stop()
        self.vanish()

    def vanish(self) -> None:
        self._world.lose_connections(self.transports)


class LateTransport(FakeTransport):
    """What is sent waits for its turn of the loop; so a process which hangs hears nothing."""

    def send(self, data: bytes) -> None:
        self._loop.call_soon(super().send, data)

    def hang_up(self) -> None:
        self._loop.call_soon(super().hang_up)


def run_seed(seed: int, steps: int = STEPS) -> ClusterBrokerWorld:
    with quiet():
        world = ClusterBrokerWorld(seed)
        try:
            for _ in range(steps):
                world.step()
                world.check()
            world.settle()
        finally:
            world.close()
    return world
