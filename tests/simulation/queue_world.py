"""A broker with queues, its producers, its workers and its fate, all decided by dice with a seed.

The broker is the real one on the simulated network of `node.py`. One step is one event: somebody
publishes, reads, settles, comes, goes, is taken over; a commit ends or fails; time passes; a queue
is configured or purged; everybody sleeps until queues do too; the broker crashes and keeps nothing
but its store. `queue_ledger.py` hears of everything the broker writes and knows what is wrong. At
the end nothing breaks any more, and a patient worker in each group takes all that is left.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable

from queuelake import names
from queuelake.flight import ArchivedTold, Mark
from queuelake.settings import Lake
from queuelake.storage import api
from tests.simulation.archive_invariants import check_what_is_held, last_stored
from tests.simulation.network import FakeTransport
from tests.simulation.queue_kinds import KINDS
from tests.simulation.queue_ledger import Posted
from tests.simulation.queue_peers import Peer, Producer, Worker
from tests.simulation.queue_stage import GROUPS, UNDERTAKERS, Stage

STEPS = 150
QUEUES_MAX = 4
CALM_ROUNDS_MAX = 60
DRAIN_ROUNDS_MAX = 200
HELD_BYTES_FEW = 2_000  # about twenty messages
HELD_BYTES_MANY = 1 << 30


class QueueWorld(Stage):
    """One life from one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        count = self.dice.randint(1, QUEUES_MAX)
        names = sorted(self.dice.sample(sorted(KINDS), count))
        held_max = self.dice.choice([HELD_BYTES_FEW, HELD_BYTES_MANY, HELD_BYTES_MANY])
        super().__init__(names, Lake(archive_hold_bytes_max=held_max, hold="drop"))
        self.producers = [Producer("pub5", 5, self.ledger), Producer("pub4", 4, self.ledger)]
        self.workers = [self._worker(group, number) for group in GROUPS for number in range(3)]
        self.ghosts: list[tuple[Peer, FakeTransport]] = []
        self.published = 0
        self.events: list[tuple[float, Callable[[], None]]] = [
            (30, self._publish),
            (30, self._read),
            (25, self._settle),
            (12, self._answer),
            (20, self._connect),
            (6, self._time_passes),
            (3, self._drop),
            (2, self._leave_a_ghost),
            (2, self._take_over),
            (2, self._ghost_is_noticed),
            (2, self._unsubscribe),
            (4, self._subscribe),
            (2, self._commits_fail),
            (1, self._configure),
            (0.5, self._purge),
            (4, self._archive),
            (0.7, self._crash),
            (0.5, self._restart),
            (0.5, self._all_sleep),
        ]

    def _worker(self, group: str, number: int) -> Worker:
        dice = self.dice
        version = dice.choice([5, 5, 5, 4])
        name = f"{group}-{number}"
        expiry_s = dice.choice([0xFFFFFFFF, 0xFFFFFFFF, 0])
        by_puback = dice.random() < 0.3
        worker = Worker(
            name, version, self.ledger, group, self.names, by_puback=by_puback, expiry_s=expiry_s
        )
        worker.receive_max = dice.randint(1, 10)
        worker.qos = dice.choice([1, 1, 2])
        return worker

    def live(self, steps: int = STEPS) -> None:
        """A whole life; raises when a promise was broken."""
        logger = logging.getLogger("queuelake")
        logger.addHandler(self.log)
        try:
            self._begin()
            for _ in range(steps):
                self.step()
                self.check()
            self._calm_down()
            self._drain()
            self._check_end()
        finally:
            logger.removeHandler(self.log)

    def _begin(self) -> None:
        """Every group is known to every queue from the first message on."""
        for peer in [*self.producers, *self.workers]:
            self.open(peer)
            self.node.work()
            peer.read(10)
        self.node.work()

    def step(self) -> None:
        self.steps += 1
        weights = [weight for weight, _ in self.events]
        (event,) = self.dice.choices([action for _, action in self.events], weights)
        event()
        if self.dice.random() < 0.7:
            self.node.loop.turn()
        if self.dice.random() < 0.4:
            self.commit()

    # Events

    def _publish(self) -> None:
        dice = self.dice
        producer = dice.choice(self.producers)
        queue = dice.choice(self.names)
        if producer.version != 5 and queue == "full":
            return  # 3.1.1 cannot be told that there is no room
        for _ in range(dice.choice([1, 3, 6])):
            producer.retry()
            if not producer.has_room():
                return
            self.published += 1
            topic = f"bound/{dice.randrange(2)}" if queue == "bound" else f"$queue/{queue}"
            message = Posted(self.published, queue, topic, dice.choice([0, 1, 1, 1, 2]))
            if producer.version == 5:
                message.key = dice.choice(["", "a", "b", "c"])
                message.message_id = dice.choice(["", f"id{message.number}", f"id{message.number}"])
                message.delay_ms = dice.choice([0, 0, 0, 0, 700, 3000])
                message.expiry_s = dice.choice([0, 0, 0, 0, 0, 3])
                message.priority = dice.choice(["", "", "9"]) if queue == "any" else ""
            self.ledger.messages[message.number] = message
            producer.post(message)

    def _read(self) -> None:
        for peer in self.dice.sample([*self.producers, *self.workers], 3):
            peer.read(self.dice.choice([1, 3, 100]))

    def _settle(self) -> None:
        for worker in self.dice.sample(self.workers, 3):
            taken_now = worker.hand[: self.dice.choice([1, 3])] if worker.online else []
            for taken in taken_now:
                kind = self.dice.choice(["ack", "ack", "ack", "nack", "reject"])
                delay_ms = self.dice.choice([0, 500]) if kind == "nack" else 0
                self.heard(worker)
                worker.settle(taken, kind, delay_ms)

    def _answer(self) -> None:
        for worker in self.dice.sample(self.workers, 3):
            if worker.online and worker.owed:
                self.heard(worker)
                refuses = worker.version == 5 and self.dice.random() < 0.1
                worker.answer(self.dice.choice([1, 3, 100]), 0x83 if refuses else 0)

    def _connect(self) -> None:
        peer = self.dice.choice([*self.producers, *self.workers])
        if peer.link is None:
            self.open(peer)

    def _drop(self) -> None:
        peer = self.dice.choice([*self.producers, *self.workers])
        transport = peer.forget_connection()
        if transport is not None:
            self.hang_up(peer, transport)

    def _leave_a_ghost(self) -> None:
        peer = self.dice.choice([*self.producers, *self.workers])
        transport = peer.forget_connection()
        if transport is not None:
            self.ghosts.append((peer, transport))

    def _take_over(self) -> None:
        self._leave_a_ghost()
        if self.ghosts and self.ghosts[-1][0].link is None:
            self.open(self.ghosts[-1][0])

    def _ghost_is_noticed(self) -> None:
        if self.ghosts:
            self.hang_up(*self.ghosts.pop(self.dice.randrange(len(self.ghosts))))

    def _unsubscribe(self) -> None:
        worker = self.dice.choice(self.workers)
        if worker.online:
            self.heard(worker)
            worker.unsubscribe(self.dice.choice(self.names))

    def _subscribe(self) -> None:
        worker = self.dice.choice(self.workers)
        if worker.online:
            self.heard(worker)
            worker.subscribe(self.dice.choice(self.names))

    def _time_passes(self) -> None:
        self.node.loop.advance(self.dice.choice([10, 300, 1200, 2500]))

    def _commits_fail(self) -> None:
        self.node.store.fail_commits = self.dice.choice([1, 1, 2])

    def _configure(self) -> None:
        producer, queue = self.producers[0], self.dice.choice(self.names)
        if not producer.online:
            return
        changes: dict[str, object] = {"events": self.dice.choice(["off", "all"])}
        if self.ledger.settings[queue].ordering != "strict" and self.dice.random() < 0.3:
            changes["partitions"] = self.ledger.settings[queue].partitions + 1
        producer.configure(queue, changes, json.dumps(changes).encode())

    def _purge(self) -> None:
        queue = self.dice.choice(self.names)
        self.ledger.purged(queue)
        self.node.broker.queues.get(queue).purge(self.ledger.now_ms())

    def _archive(self) -> None:
        """The lake has more of a partition."""
        queues, queue = self.node.broker.queues, self.dice.choice(self.names)
        queue_id = queues._ids[queue]
        number = self.dice.randrange(self.ledger.settings[queue].partitions)
        last = last_stored(self.node.store, queue_id, number)
        mark = Mark(queues.archive.queue_id(queue_id), number, self.dice.randint(0, last))
        queues.archive.told(ArchivedTold("messages", "delta", [mark]))

    def _crash(self) -> None:
        """Everything is gone but the tables; a commit under way may have made it."""
        if self.dice.random() < 0.5:
            self.node.committer.commit()
        self.start_again()
        self._all_are_gone()

    def _all_are_gone(self) -> None:
        self.ledger.new_epoch()
        self.ghosts.clear()
        for peer in [*self.producers, *self.workers]:
            peer.forget_connection()
            self.ledger.left(peer.name)

    def _all_leave(self) -> None:
        for peer in [*self.producers, *self.workers]:
            transport = peer.forget_connection()
            if transport is not None:
                self.ghosts.append((peer, transport))
        for ghost in self.ghosts:
            self.hang_up(*ghost)
        self.ghosts.clear()

    def _restart(self) -> None:
        """An orderly end: what the queues hold is what they held."""
        self._all_leave()
        self.rest()
        self.count_given_up()
        before = self.depths()
        self.start_again()
        self._all_are_gone()
        after = self.depths()
        for name, held in before.items():
            is_same = after[name] == held
            if names.is_dead_letter(name):
                is_same = after[name] >= held
            elif self.ledger.has_expired(name):  # it may be gone as soon as the broker is back
                is_same = after[name] <= held
            assert is_same, f"step {self.steps}: {name} had {held} before, {after[name]} after"

    def _all_sleep(self) -> None:
        """Nobody is there for so long that queues are not in memory any more."""
        self._all_leave()
        for _ in range(4):
            self.rest()
            self.count_given_up()
            self.node.loop.advance(3000)

    # The end

    def _calm_down(self) -> None:
        """Every producer hears of all it has sent."""
        self.node.store.fail_commits = 0
        self._all_leave()
        for _ in range(CALM_ROUNDS_MAX):
            for producer in self.producers:
                if producer.link is None:
                    self.open(producer)
                producer.read(1000)
                if producer.online:
                    producer.retry()
            self.rest()
            if all(one.online and one.is_done() for one in self.producers):
                return
            self.node.loop.advance(300)
        stuck = {one.name: one.pending for one in self.producers}
        raise AssertionError(f"publishes without an answer: {stuck}")

    def _drain(self) -> None:
        """A patient worker in each group takes what is left, then all dead letters."""
        patient = [Worker(f"patient-{one}", 5, self.ledger, one, self.names) for one in GROUPS]
        self._work_off(patient)
        for worker in patient:
            self.hang_up(worker, worker.forget_connection())  # type: ignore[arg-type]
        dead = [one for one in self.node.broker.queues.names() if names.is_dead_letter(one)]
        self._work_off([Worker("undertaker", 5, self.ledger, UNDERTAKERS, dead, by_puback=True)])

    def _work_off(self, workers: list[Worker]) -> None:
        for worker in workers:
            self.open(worker)
        quiet = 0
        for _ in range(DRAIN_ROUNDS_MAX):
            busy = 0
            for worker in workers:
                self.heard(worker)
                busy += worker.read(1000)
                for taken in list(worker.hand):
                    worker.settle(taken, "ack")
                worker.answer(1000)
            self.rest()
            self.check()
            self.node.loop.advance(250)
            quiet = 0 if busy else quiet + 1
            if quiet > 16:  # four seconds: longer than a delay, a timeout and a retry
                return
        raise AssertionError("the queues are never empty")

    def _check_end(self) -> None:
        wrong = self.ledger.problems()
        depths = self.depths()
        for name in self.names:
            if depths[name] != (0, 0, 0):
                wrong.append(f"{name} and its groups hold {depths[name]} in the end")
            host = self.node.broker.queues.get(name)
            wrong += self.ledger.setting_problems(name, host.settings)
        assert not wrong, "\n".join(wrong)
        for _ in range(4):
            self.node.loop.advance(1000)
            self.rest()
        for name in self.names:
            self.node.broker.queues.get(name)
        check_what_is_held(self.node.broker, self.node.store)
        self._delete_all()

    def _delete_all(self) -> None:
        """Nothing is left in the store of what was deleted."""
        for name in list(self.node.broker.queues.names()):
            self.node.broker.queues.delete(name)
        for _ in range(3):
            self.rest()
            self.node.loop.advance(1000)
        self.rest()
        left = {
            api.TABLE_NAMES[table]: len(self.node.store.tables[table])
            for table in (*range(api.QUEUES, api.DOOMED + 1), api.ARCHIVED)
            if self.node.store.tables[table]
        }
        assert not left, f"every queue is deleted, but there are rows: {left}"


def run_seed(seed: int, steps: int = STEPS) -> None:
    """One life; raises when a promise was broken."""
    QueueWorld(seed).live(steps)
