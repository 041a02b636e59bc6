"""Nodes of a cluster, their publishers and their fate, all decided by dice with a seed.

Ownership, follower, take-over, committer and replica are the real ones, each node on a loop with a
clock of its own. The engine below them answers late, or never, or does later what nobody waits for
any more; nodes crash, hang and are cut off; machines lose their last commits; the log is cut; a
store is copied. After each step replicas are compared with the log of record, and with each
confirmation it is looked up there. At the end nothing breaks any more: there is one owner soon, all
that was published is confirmed, and all stores are equal.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

from queuelake.cluster.committer import ReplicatedCommitter
from queuelake.cluster.hashing import hash_of
from queuelake.storage.api import MESSAGES, META
from tests.simulation.cluster_clients import SETTLED, Connection, CountingBroker, Publisher
from tests.simulation.cluster_engine import LATE_MAX_S, LOG, RECORD, Center, Fate
from tests.simulation.cluster_loop import Time
from tests.simulation.cluster_node import LEASE_S, UNDONE_MAX, Node, Process
from tests.simulation.cluster_record import Attempt, Record
from tests.simulation.lives import quiet

STEPS = 200
NODES = ("n1", "n2", "n3")
PUBLISHERS = 3
CALM_S_MAX = 60.0
CLOCK_RATES = (0.9, 1.0, 1.1)


class ClusterWorld:
    """One life from one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.time = Time(dice)
        self.fate = Fate(dice)
        self.center = Center(self.time, self.fate)
        self.record = Record(self.center)
        self.broken: list[str] = []
        self.tally = self.center.tally
        self.confirmed: dict[int, Attempt] = {}  # by serial
        self.nodes = [Node(self, name, dice.choice(CLOCK_RATES)) for name in NODES]
        serials = count(1)
        self.publishers = [Publisher(number, serials) for number in range(PUBLISHERS)]
        self.events: list[tuple[float, Callable[[], None]]] = [
            (60, self._publish),
            (25, self._connect),
            (15, self._time_passes),
            (2, self._drop),
            (2, self._crash),
            (5, self._start),
            (2, self._hang),
            (6, self._wake_up),
            (2, self._cut_off),
            (6, self._mend),
            (4, self._blink),
            (3, self._engine_worsens),
            (3, self._engine_mends),
            (2, self._leader_is_lost),
            (4, self._leader_is_back),
            (3, self._truncate),
            (2, self._transfer),
            (1, self._disk_fails),
        ]
        for node in self.nodes:
            node.start()

    def live(self, steps: int = STEPS) -> None:
        """A whole life; raises when a promise was broken."""
        weights = [weight for weight, _ in self.events]
        actions = [action for _, action in self.events]
        try:
            self.time.run(LEASE_S)
            for action in self.dice.choices(actions, weights, k=steps):
                action()
                self.time.run(self.dice.choice([0.0, 0.003, 0.02, 0.2]))
                self.check()
            self._calm_down()
            self._check_end()
        finally:
            self.time.close()

    # What nodes ask of the world

    def begin(
        self, process: Process[CountingBroker], committer: ReplicatedCommitter, epoch: int
    ) -> CountingBroker:
        return CountingBroker(
            process.loop, process.store, committer, self.dice, epoch, self.acknowledge
        )

    def acknowledge(self, broker: CountingBroker, group: list[tuple[Connection, Attempt]]) -> None:
        """No confirmation leaves for what is not in the log of record, once, as this broker's."""
        self.record.follow()
        for connection, attempt in group:
            places = self.record.places.get(attempt.serial, [])
            epochs = [place.epoch for place in places]
            if epochs != [broker.epoch]:
                self.broken.append(f"{attempt} of epoch {broker.epoch} is stored in {epochs}")
            self.confirmed[attempt.serial] = attempt
            self._answer(connection, attempt)

    def _answer(self, connection: Connection, attempt: Attempt) -> None:
        self.time.after(
            self.dice.random() * 0.01, lambda: connection.publisher.confirmed(connection, attempt)
        )

    def peer_to_copy(self, node: Node[CountingBroker]) -> Node[CountingBroker] | None:
        """Any which lives and has what the log does not reach back to."""
        needed = max(node.store.position().position + 1, self.center.first - 1)
        peers = [one for one in self._living() if one is not node]
        peers = [one for one in peers if one.store.position().position >= needed]
        return self.dice.choice(peers) if peers else None

    # Checks

    def check(self) -> None:
        self.record.follow()
        wrong = list(self.broken)
        for node in self.nodes:
            position = node.store.position()
            known = self.record.positions.get(position.position)
            if known != position:
                wrong.append(f"{node.name} is at {position}, the log says {known}")
            elif self.record.tables[position.position] != node.store.tables:
                wrong.append(f"{node.name} differs at {position}")
            if node.process is not None:
                wrong += [f"{node.name}: {mistake}" for mistake in node.process.mistakes()]
        assert not wrong, "broken promises:\n" + "\n".join(wrong)

    def _check_end(self) -> None:
        self.check()
        assert self.record.barriers == sorted(set(self.record.barriers)), "epochs go back"
        hashes = {hash_of(node.store.view()) for node in self.nodes}
        assert len(hashes) == 1, "tables are equal, but not their hashes"
        tables = self.nodes[0].store.tables
        settled = tables[META].get(SETTLED, b"")
        wrong = []
        for serial, attempt in self.confirmed.items():
            places = self.record.places[serial]
            if len(places) != 1:
                wrong.append(f"{attempt} was confirmed, and is stored {len(places)} times")
            elif places[0].row not in tables[MESSAGES] and places[0].row > settled:
                wrong.append(f"{attempt} was confirmed, and is lost")
        assert not wrong, "broken promises:\n" + "\n".join(wrong)

    # Events

    def _living(self) -> list[Node[CountingBroker]]:
        return [node for node in self.nodes if node.process is not None]

    def _processes(self) -> list[Process[CountingBroker]]:
        return [node.process for node in self.nodes if node.process is not None]

    def _publish(self) -> None:
        for _ in range(self.dice.choice([1, 1, 3])):
            self.dice.choice(self.publishers).publish()

    def _connect(self) -> None:
        """A client cannot know who is right: any that claims to be the owner will do."""
        brokers = [one.broker for one in self._processes() if one.broker is not None]
        waiting = [one for one in self.publishers if one.connection is None]
        for publisher in waiting:
            if brokers and self.dice.random() < 0.7:
                publisher.connect(self.dice.choice(brokers))

    def _time_passes(self) -> None:
        self.time.run(self.dice.choice([0.1, 0.5, LEASE_S / 2, LEASE_S * 1.5]))

    def _drop(self) -> None:
        connection = self.dice.choice(self.publishers).connection
        if connection is not None:
            connection.close()

    def _crash(self) -> None:
        """Of a process, or of its machine."""
        living = self._living()
        if living:
            undone = self.dice.choice([0, 0, 1, UNDONE_MAX])
            self.tally["undone"] += undone
            self.dice.choice(living).crash(undone)

    def _start(self) -> None:
        for node in self.nodes:
            if node.process is None and self.dice.random() < 0.7:
                node.start()

    def _hang(self) -> None:
        for process in self._processes():
            if self.dice.random() < 0.4:
                process.loop.paused = True

    def _wake_up(self) -> None:
        for process in self._processes():
            process.loop.paused = process.loop.paused and self.dice.random() < 0.3

    def _cut_off(self) -> None:
        for process in self._processes():
            if self.dice.random() < 0.4:
                process.engine.cut(off=True)

    def _mend(self) -> None:
        for process in self._processes():
            if process.engine.cut_off and self.dice.random() < 0.7:
                process.engine.cut(off=False)

    def _blink(self) -> None:
        processes = [one for one in self._processes() if one.broker] or self._processes()
        if processes:
            self.dice.choice(processes).engine.blink(self.dice.uniform(0.1, LEASE_S / 2))

    def _engine_worsens(self) -> None:
        self.fate.worsen()

    def _engine_mends(self) -> None:
        self.fate.mend()

    def _leader_is_lost(self) -> None:
        self.center.leaderless.update(
            self.dice.choice([(LOG,), (RECORD,), (RECORD,), (LOG, RECORD)])
        )

    def _leader_is_back(self) -> None:
        self.center.leaderless.clear()

    def _truncate(self) -> None:
        """Behind the slowest that lives; sometimes a dead one is waited for no longer."""
        waited_for = self._living() if self.dice.random() < 0.5 else self.nodes
        if waited_for:
            self.center.truncate(min(node.store.safe_position() for node in waited_for))

    def _transfer(self) -> None:
        owners = [one for one in self._processes() if one.broker is not None]
        if owners:
            self.tally["transferred"] += 1
            self.dice.choice(owners).transfer(self.dice.choice(["", *NODES]))

    def _disk_fails(self) -> None:
        self.dice.choice(self.nodes).store.fail_commits = self.dice.choice([1, 2])

    # The end

    def _calm_down(self) -> None:
        """Nothing breaks any more, though writes may still be under way."""
        self.fate.mend()
        self.center.leaderless.clear()
        for node in self.nodes:
            node.store.fail_commits = 0
            if node.process is None:
                node.start()
        for process in self._processes():
            process.loop.paused = False
            process.engine.cut(off=False)
        self.time.run(LATE_MAX_S)
        until_s = self.time.now_s() + CALM_S_MAX
        while not self._is_calm():
            assert self.time.now_s() < until_s, f"no rest within {CALM_S_MAX} s"
            self._connect()
            self.time.run(0.25)
            self.check()

    def _is_calm(self) -> bool:
        self.record.follow()
        owners = [one for one in self._processes() if one.broker and one.ownership.is_owner]
        return (
            len(owners) == 1
            and not any(one.unconfirmed for one in self.publishers)
            and all(node.store.position() == self.record.position for node in self.nodes)
        )


def run_seed(seed: int, steps: int = STEPS) -> ClusterWorld:
    with quiet():
        world = ClusterWorld(seed)
        world.live(steps)
    return world
