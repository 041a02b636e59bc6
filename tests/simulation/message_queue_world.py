"""A broker with message queues, its publishers, its subscribers and its fate, decided by dice.

The broker is the real one on the simulated network of `node.py`. One step is one event: somebody
publishes, reads, acknowledges, rejects, comes, goes, is taken over; a commit ends or fails; time
passes, or jumps; queues are made, changed, deleted and made again; all of them sleep; the broker
crashes. `message_queue_ledger.py` knows what is wrong. At the end nothing breaks any more, and a
patient subscriber takes all that is left.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from queuelake import names
from queuelake.errors import NameTakenError
from queuelake.mq_settings import MqConfig, MqSettings, config_with
from queuelake.protocol.topics import matches
from queuelake.storage import api
from tests.simulation.message_queue_ledger import Posted
from tests.simulation.message_queue_peers import Publisher, Subscriber
from tests.simulation.message_queue_settings import AUTO_CREATE, FILTERS, KEYS, changed
from tests.simulation.message_queue_stage import Stage
from tests.simulation.network import FakeTransport
from tests.simulation.queue_peers import NEVER_S, Peer

STEPS = 150
DRAIN_ROUNDS_MAX = 200


class MessageQueueWorld(Stage):
    """One life from one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        auto_create = self.dice.choice(AUTO_CREATE)
        super().__init__(config_with(MqConfig(), {"auto_create": auto_create}))
        self.names = self.dice.sample(sorted(FILTERS), self.dice.randint(1, 3))
        self.publishers = [Publisher("pa", 5), Publisher("pb", 4), Publisher("pc", 5)]
        self.subscribers = [self._subscriber(number) for number in range(5)]
        self.peers: list[Peer] = [*self.publishers, *self.subscribers]
        self.ghosts: list[tuple[Peer, FakeTransport]] = []
        self.published = 0
        self.events: list[tuple[float, Callable[[], None]]] = [
            (30, self._publish),
            (30, self._read),
            (30, self._answer),
            (20, self._connect),
            (6, self._time_passes),
            (3, self._drop),
            (2, self._leave_a_ghost),
            (2, self._take_over),
            (2, self._ghost_is_noticed),
            (2, self._unsubscribe),
            (4, self._subscribe),
            (2, self._commits_fail),
            (2, self._create),
            (2, self._update),
            (0.7, self._delete),
            (0.5, self._configure),
            (0.5, self._collect),
            (0.7, self._crash),
            (0.5, self._restart),
            (0.5, self._all_sleep),
            (0.1, self._much_time_passes),
        ]

    def _subscriber(self, number: int) -> Subscriber:
        dice = self.dice
        version = dice.choice([5, 5, 5, 4])
        count = dice.randint(1, 3) if version == 5 else 1
        filters = sorted({self._filter() for _ in range(count)})
        expiry_s = dice.choice([NEVER_S, NEVER_S, 0, 3])
        subscriber = Subscriber(
            f"s{number}", version, filters, dice.choice([0, 1, 1, 1, 2]), expiry_s=expiry_s
        )
        subscriber.receive_max = dice.randint(1, 10)
        return subscriber

    def _filter(self) -> str:
        name = self.dice.choice(self.names)
        inner = FILTERS[name]
        if name.startswith("/"):
            return f"$q/{inner}"
        inner = self.dice.choice([inner, inner, "t/other"])
        return self.dice.choice([f"$queue/{name}", f"$queue/{name}/{inner}"])

    def live(self, steps: int = STEPS) -> None:
        """A whole life; raises when a promise was broken."""
        logger = logging.getLogger("queuelake")
        logger.addHandler(self.log)
        try:
            self._begin()
            for _ in range(steps):
                self.step()
                self.note_queues()
                self.check()
            self._calm_down()
            self._drain()
            self._check_end()
        finally:
            logger.removeHandler(self.log)

    def _begin(self) -> None:
        """Most queues are there, some subscriptions wait."""
        for peer in self.peers:
            self.open(peer)
        for _ in self.names:
            self._create()
        self.rest()
        for peer in self.peers:
            peer.read(10)

    def step(self) -> None:
        self.steps += 1
        weights = [weight for weight, _ in self.events]
        (event,) = self.dice.choices([action for _, action in self.events], weights)
        event()
        if self.dice.random() < 0.7:
            self.node.loop.turn()
        if self.dice.random() < 0.4:
            self.commit()

    # Clients

    def _publish(self) -> None:
        dice = self.dice
        publisher = dice.choice(self.publishers)
        for _ in range(dice.choice([1, 3, 6])):
            if not publisher.has_room() or not publisher.is_heard():
                return
            self.note_queues()
            self.published += 1
            topic = f"t/{publisher.name}/{dice.randrange(3)}"
            qos = dice.choice([0, 1, 1, 1, 2])
            message = Posted(self.published, topic, publisher.name, qos, self.ledger.now_ms())
            message.size = dice.choice([0, 0, 0, 10, 500, 40_000])
            if publisher.version == 5:
                message.expiry_s = dice.choice([0, 0, 0, 0, 0, 3])
            self.ledger.messages[message.number] = message
            for name, known in self.service.known.items():
                if matches(known.topic_filter, topic.encode()):
                    settings = known.settings
                    key = KEYS[settings.key_expression](message) if settings.is_lastvalue else ""
                    self.ledger.posting(message, self.queue_id(name), key)
            publisher.post(message)

    def _read(self) -> None:
        for peer in self.dice.sample(self.peers, 3):
            peer.read(self.dice.choice([1, 3, 100]))

    def _answer(self) -> None:
        for subscriber in self.dice.sample(self.subscribers, 3):
            for packet_id in subscriber.owed[: self.dice.choice([1, 3, 10])]:
                if subscriber.online:
                    self.answer(subscriber, packet_id, self.dice.choice([0, 0, 0, 0, 0x80, 0x10]))

    def _connect(self) -> None:
        peer = self.dice.choice(self.peers)
        if peer.link is None:
            if isinstance(peer, Subscriber):
                peer.clean = self.dice.random() < 0.1
            self.open(peer)

    def _drop(self) -> None:
        peer = self.dice.choice(self.peers)
        transport = peer.forget_connection()
        if transport is not None:
            self.hang_up(peer, transport)

    def _leave_a_ghost(self) -> None:
        peer = self.dice.choice(self.peers)
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
        subscriber = self.dice.choice(self.subscribers)
        if subscriber.online:
            self.ledger.left(subscriber.name)
            subscriber.unsubscribe(self.dice.choice(subscriber.filters))

    def _subscribe(self) -> None:
        subscriber = self.dice.choice(self.subscribers)
        if subscriber.online:
            subscriber.subscribe(self.dice.choice(subscriber.filters))

    # Fate

    def _time_passes(self) -> None:
        self.node.loop.advance(self.dice.choice([10, 300, 1200, 2500]))

    def _much_time_passes(self) -> None:
        """Too long for the timers of a wheel to be waited for one by one."""
        self.node.loop.advance(self.dice.choice([60_000, 120_000]))

    def _commits_fail(self) -> None:
        self.node.store.fail_commits = self.dice.choice([1, 1, 2])

    def _crash(self) -> None:
        """Everything is gone but the tables; a commit under way may have made it."""
        if self.dice.random() < 0.5:
            self.node.committer.commit()
        self.start_again(self.dice.choice([0, 0, 10_000, -10_000]))
        self._all_are_gone()

    def _all_are_gone(self) -> None:
        self.ghosts.clear()
        for name in self.service.known:  # that one was deleted may not have been durable
            kept = self.ledger.queues.get(self.queue_id(name))
            if kept is not None:
                kept.is_deleted = False
        for peer in self.peers:
            peer.forget_connection()

    def _all_leave(self) -> None:
        for peer in self.peers:
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
        before, settings = self._depths(), self._settings()
        self.start_again()
        self._all_are_gone()
        after = self._depths()
        assert self._settings() == settings
        for name, (count, size) in before.items():
            is_same = after[name] == (count, size)
            if after[name][0] < count:  # something expired
                is_same = after[name][1] <= size
            assert is_same, f"step {self.steps}: {name} had {before[name]}, then {after[name]}"

    def _settings(self) -> tuple[MqConfig, list[MqSettings | None]]:
        return self.service.config, [self.service.find(name) for name in self.service.names()]

    def _depths(self) -> dict[str, tuple[int, int]]:
        machines = {name: self.host(name).machine for name in self.service.known}
        return {name: (one.depth(), one.bytes) for name, one in machines.items()}

    def _all_sleep(self) -> None:
        """Nobody is there for so long that queues are not in memory any more."""
        self._all_leave()
        for _ in range(4):
            self.rest()
            self.node.loop.advance(3000)

    # Orders from above

    def _create(self) -> None:
        dice = self.dice
        name = dice.choice(self.names)
        is_lastvalue = dice.random() < 0.5
        count_max, bytes_max = dice.choice([(0, 0), (0, 0), (0, 0), (5, 0), (0, 1), (5, 1)])
        settings = MqSettings(
            name, FILTERS[name], is_lastvalue, count_max=count_max, bytes_max=bytes_max
        )
        try:
            self.service.create(changed(settings, self.dice))
        except NameTakenError:
            assert self.service.find(name) is not None

    def _update(self) -> None:
        old = self.service.find(self.dice.choice(self.names))
        if old is not None:
            self.service.update(changed(old, self.dice))
            self.note_queues()

    def _delete(self) -> None:
        name = self.dice.choice(self.names)
        if self.service.find(name) is not None:
            self.note_queues()
            self.ledger.queues[self.queue_id(name)].is_deleted = True
            self.service.delete(name)

    def _configure(self) -> None:
        changes: dict[str, object] = {
            "auto_create": self.dice.choice(AUTO_CREATE),
            "regular_queue_retention_period": self.dice.choice(["1h", "1h", "20s"]),
        }
        self.service.configure(config_with(MqConfig(), changes))

    def _collect(self) -> None:
        self.service.collect_garbage()

    # The end

    def _calm_down(self) -> None:
        """Every publisher hears of all it has sent, and all garbage is collected."""
        self.node.store.fail_commits = 0
        for _ in range(5):
            self.rest()
            for peer in self.peers:
                peer.read(1000)
        self._all_leave()
        for name in self.names:
            if self.service.find(name) is None:
                self.service.create(MqSettings(name, FILTERS[name]))
        self.service.collect_garbage()
        for _ in range(4):
            self.rest()
            self.node.loop.advance(1000)
        self.rest()
        self.check_rows()

    def _drain(self) -> None:
        """A patient subscriber takes what is left."""
        filters = [
            f"$q/{FILTERS[name]}" if name.startswith("/") else f"$queue/{name}"
            for name in self.names
        ]
        patient = Subscriber("patient", 5, filters, 1, expiry_s=0)
        self.note_queues()
        self.open(patient)
        quiet = 0
        for _ in range(DRAIN_ROUNDS_MAX):
            busy = patient.read(1000)
            for packet_id in list(patient.owed):
                self.answer(patient, packet_id, 0)
            self.rest()
            self.check()
            self.node.loop.advance(250)
            quiet = 0 if busy else quiet + 1
            if quiet > 8:
                self._all_leave()
                self.hang_up(patient, patient.forget_connection())  # type: ignore[arg-type]
                return
        raise AssertionError("the queues are never empty")

    def _check_end(self) -> None:
        queues = self.node.broker.queues
        dead = [one for one in queues.names() if names.is_dead_letter(one)]
        buried = sum(queues.get(one).machine.depth() for one in dead)
        there = {self.queue_id(name) for name in self.service.known}
        wrong = self.ledger.problems(lambda queue_id: queue_id in there, buried)
        for name, (count, size) in self._depths().items():
            if count or size:
                wrong.append(f"{name} holds {count} messages with {size} bytes in the end")
        assert not wrong, "\n".join(wrong)
        self.check_rows()
        self._delete_all(dead)

    def _delete_all(self, dead: list[str]) -> None:
        """Nothing is left in the store of what was deleted, but what it did."""
        for name in list(self.service.known):
            self.service.delete(name)
        for name in dead:
            self.node.broker.queues.delete(name)
        for _ in range(3):
            self.rest()
            self.node.loop.advance(1000)
        self.rest()
        left = {
            api.TABLE_NAMES[table]: len(self.node.store.tables[table])
            for table in range(api.QUEUES, len(api.TABLE_NAMES))
            if self.node.store.tables[table] and table not in (api.EVENTS, api.STATS)
        }
        assert not left, f"every queue is deleted, but there are rows: {left}"


def run_seed(seed: int, steps: int = STEPS) -> None:
    """One life; raises when a promise was broken."""
    MessageQueueWorld(seed).live(steps)
