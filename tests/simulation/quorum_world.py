"""Replicas of a quorum queue, its clients and their fate, all decided by dice with a seed.

The log is given: what is appended is committed, as the log engine promises. Everything else breaks:
commands, answers and effects are lost or come twice, leaders change between the application of a
command and its effects, replicas fall behind, restart from a checkpoint or copy one, nodes are cut
off, clients die, clocks differ. At the end nothing breaks any more and one consumer takes all that
is left. No confirmed message is missing, none was stored twice, first deliveries are in the order
of each publisher, and replicas were equal after every command.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import effects as e
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.leading import take_over
from queuelake.engine.quorum.querying import held_between
from queuelake.engine.quorum.sessions import node_of
from tests.simulation.quorum_clients import Client
from tests.simulation.quorum_policies import throw_policy
from tests.simulation.quorum_replica import Replica

STEPS = 150
NODES = ("n1", "n2", "n3")
CLIENTS = 4
CALM_ROUNDS_MAX = 400


class QuorumWorld:
    """One life from one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        policy = throw_policy(dice)
        hashes: dict[int, bytes] = {}
        self.replicas = [Replica(policy, hashes) for _ in NODES]
        self.leader: Replica | None = self.replicas[0]  # None: it is being elected
        self.log: list[tuple[Meta, Command]] = []
        self.origins: dict[int, tuple[Client, int]] = {}  # index -> who waits for the answer
        self.now_ms = 1_000_000
        self.timers: dict[int, int] = {}  # of the leader
        self.lossy = True
        self.cut_off: set[str] = set()  # nodes
        self.clients: dict[str, Client] = {}
        self.ended: list[Client] = []
        self.born = 0
        self.worker = ""
        self.dead: set[int] = set()  # indexes which reached the dead letters
        self.last_given: dict[tuple[str, int], int] = {}  # (pid, priority) -> seq
        self.stored: dict[tuple[str, int], int] = {}  # (pid, seq) -> index, as delivered
        self.settled: set[int] = set()  # indexes
        self.looked = 0  # how far `_judge` has come
        self.events: list[tuple[float, Callable[[], None]]] = [
            (30, self._publish),
            (30, self._transmit),
            (40, self._advance),
            (20, self._answer),
            (8, self._check_out),
            (6, self._ask),
            (6, self._time_passes),
            (4, self._order),
            (3, self._change_leader),
            (3, self._checkpoint),
            (3, self._restart),
            (2, self._cut_off),
            (2, self._mend),
            (2, self._die),
        ]
        for _ in range(CLIENTS):
            self._be_born()

    def live(self, steps: int = STEPS) -> None:
        """A whole life; raises when a promise was broken."""
        weights = [weight for weight, _ in self.events]
        actions = [action for _, action in self.events]
        for action in self.dice.choices(actions, weights, k=steps):
            action()
        self._calm_down()
        self._check_end()

    # The log

    def _append(self, command: Command, client: Client | None = None, number: int = 0) -> None:
        index = len(self.log) + 1
        skew_ms = self.dice.choice([0, 0, -700, 30])
        self.log.append((Meta(index, self.now_ms + skew_ms), command))
        if client is not None:
            self.origins[index] = (client, number)

    def _apply_next(self, replica: Replica) -> bool:
        if replica.applied >= len(self.log):
            return False
        meta, command = self.log[replica.applied]
        reply, effects = replica.apply(meta, command)
        if meta.index == self.looked + 1:
            self.looked = meta.index
            self._judge(command, effects)
        if replica is self.leader:
            origin = self.origins.get(meta.index)
            if origin is not None and not self._is_lost():
                self._reply(origin[0], origin[1], command, reply)
            for effect in effects:
                if not self._is_lost():
                    self._perform(effect)
                    if self.lossy and self.dice.random() < 0.02:
                        self._perform(effect)
        return True

    def _judge(self, command: Command, effects: list[Effect]) -> None:
        """What the queue did, whether or not anybody heard of it; once for each command."""
        if isinstance(command, (c.Settle, c.UpdateConfig)):  # which may give up dead letters
            for effect in effects:
                if isinstance(effect, e.Release):
                    self.settled.update(effect.indexes)
        given: dict[tuple[str, int], list[int]] = {}  # for the first time: line -> numbers
        for effect in effects:
            if isinstance(effect, e.DeadLetter):
                self.dead.add(effect.index)
            elif isinstance(effect, e.Deliver):
                mine: dict[tuple[str, int], int] = {}
                for line, seq in self._first_given(effect.deliveries):
                    assert seq > mine.get(line, 0), f"{line}: {seq} after {mine[line]}"
                    mine[line] = seq
                    given.setdefault(line, []).append(seq)
        for line, seqs in given.items():
            before = self.last_given.get(line, 0)
            assert min(seqs) > before, f"{line}: {min(seqs)} after {before}"
            self.last_given[line] = max(seqs)

    def _first_given(self, deliveries: list[e.Delivery]) -> Iterator[tuple[tuple[str, int], int]]:
        """Publisher and priority, and number, of what nobody had before."""
        for delivery in deliveries:
            assert delivery.index not in self.settled, f"{delivery.index} after it was settled"
            enqueue = self.log[delivery.index - 1][1]
            assert isinstance(enqueue, c.Enqueue)
            name = (enqueue.pid, enqueue.seq)
            if name not in self.stored:
                yield (enqueue.pid, enqueue.priority), enqueue.seq
            assert self.stored.setdefault(name, delivery.index) == delivery.index, f"{name} twice"

    # What the leader does

    def _is_lost(self) -> bool:
        return self.lossy and self.dice.random() < 0.03

    def _reply(self, client: Client, number: int, command: Command, reply: r.Reply) -> None:
        if client.pid not in self.clients or node_of(client.pid) in self.cut_off:
            return
        if isinstance(reply, r.CheckedOut):
            assert isinstance(command, c.Checkout)
            client.checked_out(reply.key, command.credited)
        elif number:
            client.perform(client.sender.applied([(number, reply.code)], self.now_ms))

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, e.Timer):
            self.timers[effect.name] = effect.at_ms
        elif isinstance(effect, e.Monitor):
            if effect.pid not in self.clients and effect.pid != self.worker:
                self._append(c.Down(effect.pid))
        elif isinstance(effect, e.MonitorNode):
            if effect.node not in self.cut_off:
                self._append(c.NodeUp(effect.node))
        elif isinstance(effect, e.DeadLetterDeliver):
            self._bury(effect)
        elif isinstance(effect, (e.Deliver, e.QueueStatus, e.LeaderChange, e.ConsumerTimedOut)):
            client = self.clients.get(effect.pid)
            if client is not None and node_of(effect.pid) not in self.cut_off:
                self._tell(client, effect)

    def _tell(self, client: Client, effect: Effect) -> None:
        if isinstance(effect, e.Deliver):
            client.deliver(effect.key, effect.deliveries)
        elif isinstance(effect, e.QueueStatus):
            client.sender.queue_status(effect.rejects, effect.index)
        elif isinstance(effect, e.LeaderChange):
            client.leader_changed(self.now_ms)
        elif isinstance(effect, e.ConsumerTimedOut):
            client.timed_out(effect.key, effect.ids, self.now_ms)

    def _bury(self, effect: e.DeadLetterDeliver) -> None:
        """The worker may die before the copy, or between the copy and its settlement."""
        for delivery in effect.deliveries:
            if not self._is_lost():
                self.dead.add(delivery.index)
                if not self._is_lost():
                    self._append(c.DeadLetterSettle(effect.pid, [delivery.msg_id]))

    # Events

    def _publish(self) -> None:
        client = self._anybody()
        for _ in range(self.dice.choice([1, 1, 3, 12])):
            priority, ttl_ms = self.dice.choice([4, 4, 4, 9]), self.dice.choice([-1, -1, -1, 0])
            client.publish(self.now_ms, priority, ttl_ms)

    def _transmit(self) -> None:
        client = self._anybody()
        if node_of(client.pid) in self.cut_off:
            return
        for _ in range(self.dice.randint(1, 12)):
            if not client.line:
                return
            number, command = client.line.popleft()
            if not self._is_lost():
                self._append(command, client, number)
                if self._is_lost():
                    self._append(command, client, number)

    def _advance(self) -> None:
        assert self.leader is not None
        for _ in range(self.dice.randint(1, 10)):
            self._apply_next(self.leader)
        self._apply_next(self.dice.choice(self.replicas))

    def _answer(self) -> None:
        self._anybody().answer(self.now_ms, only_settles=False)

    def _check_out(self) -> None:
        client = self._anybody()
        if node_of(client.pid) in self.cut_off:
            return
        if self.dice.random() < 0.2:
            self._append(c.Cancel(client.pid, client.tag, self.dice.random() < 0.5))
            return
        if client.receiver is not None and client.credited:
            credit = c.Credit(client.receiver.key, 3, client.receiver.next_id)
            client.perform(client.sender.command(credit, self.now_ms))
            return
        prefetch, priority = self.dice.choice([1, 3, 9]), self.dice.choice([0, 0, 1])
        command = c.Checkout(client.pid, client.tag, prefetch, priority)
        command.credited = self.dice.random() < 0.2
        self._append(command, client)

    def _ask(self) -> None:
        """A consumer asks for what it misses; only a leader which is up to date may answer."""
        for client in list(self.clients.values()):
            query = client.query
            if query is not None and client.receiver is not None and not self._is_lost():
                if node_of(client.pid) not in self.cut_off and self.leader is not None:
                    key = client.receiver.key
                    found = held_between(self.leader.queue, key, query.first, query.last)
                    client.fill(query, found)

    def _time_passes(self) -> None:
        self.now_ms += self.dice.choice([1, 50, 1_000, 31_000])
        for name, at_ms in list(self.timers.items()):
            if at_ms <= self.now_ms:
                del self.timers[name]
                self._append(c.Timeout(name))
        for client in self.clients.values():
            client.perform(client.sender.tick(self.now_ms))

    def _order(self) -> None:
        client = self._anybody()
        key = client.receiver.key if client.receiver is not None else 1
        self._append(
            self.dice.choice(
                [
                    c.DelayedRetry(2),
                    c.AssignDeferred(key, ["a", "b"]),
                    c.GarbageCollection(),
                    c.RegisterEnqueuer(client.pid),
                    c.UpdateConfig(throw_policy(self.dice)),
                ]
            )
        )

    def _change_leader(self) -> None:
        """Whatever the former one had not done is lost; the new one has the whole log."""
        elected = self.dice.choice(self.replicas)
        self.leader = None
        self.timers.clear()
        self._catch_up(elected)
        self.leader = elected
        for client in self.clients.values():
            lost = self.dice.randint(0, len(client.line)) if self.lossy else 0
            for _ in range(lost):
                client.line.pop()
            if not self._is_lost():
                client.leader_changed(self.now_ms)
        for effect in take_over(elected.queue):
            if not self._is_lost():
                self._perform(effect)
        self.worker = f"{self.dice.choice(NODES)}/worker{len(self.log)}"
        self._append(c.DeadLetterCheckout(self.worker, self.dice.choice([1, 32])))

    def _checkpoint(self) -> None:
        self.dice.choice(self.replicas).take_checkpoint()

    def _restart(self) -> None:
        replica = self.dice.choice(self.replicas)
        if replica is not self.leader:
            if self.dice.random() < 0.5:
                replica.install(self.dice.choice(self.replicas))
            else:
                replica.restart()

    def _cut_off(self) -> None:
        node = self.dice.choice(NODES)
        if node not in self.cut_off:
            self.cut_off.add(node)
            if not self._is_lost():
                self._append(c.Down(f"{node}/any", noconnection=True))

    def _mend(self) -> None:
        for node in sorted(self.cut_off):
            self.cut_off.discard(node)
            self._append(c.NodeUp(node))

    def _die(self) -> None:
        client = self._anybody()
        del self.clients[client.pid]
        self.ended.append(client)
        if not self._is_lost():
            self._append(c.Down(client.pid))
        self._be_born()

    # The stage

    def _anybody(self) -> Client:
        return self.dice.choice(list(self.clients.values()))

    def _be_born(self) -> Client:
        self.born += 1
        pid = f"{self.dice.choice(NODES)}/client{self.born}"
        client = self.clients[pid] = Client(pid, "t", self.dice)
        return client

    def _catch_up(self, replica: Replica) -> None:
        while self._apply_next(replica):
            pass

    # The end

    def _calm_down(self) -> None:
        """Nothing breaks any more; everybody hears what became of its messages."""
        self.lossy = False
        self._mend()
        self._change_leader()
        last = self._be_born()
        for client in list(self.clients.values()):
            if client is not last:
                self._append(c.Cancel(client.pid, client.tag, remove=True))
        self._append(c.Checkout(last.pid, last.tag, 9), last)
        for number in range(CALM_ROUNDS_MAX):
            if number % 3 == 2:
                self._append(c.DelayedRetry(1_000))
                self._time_passes()
            self._take_all(last)
            if self._is_done():
                return
        raise AssertionError(f"{self.leader and self.leader.queue.total} are left")

    def _take_all(self, last: Client) -> None:
        assert self.leader is not None
        self._catch_up(self.leader)
        self._ask()
        last.answer(self.now_ms, only_settles=True)
        for client in self.clients.values():
            while client.line:
                number, command = client.line.popleft()
                self._append(command, client, number)

    def _is_done(self) -> bool:
        assert self.leader is not None
        quiet = not any(one.line or one.sender.pending_count() for one in self.clients.values())
        return quiet and self.leader.applied == len(self.log) and not self.leader.queue.total

    def _check_end(self) -> None:
        for replica in self.replicas:
            self._catch_up(replica)
            assert not replica.payloads, f"kept for nobody: {replica.payloads}"
        done = set()
        for index in self.settled | self.dead:
            command = self.log[index - 1][1]
            if isinstance(command, c.Enqueue):
                done.add((command.pid, command.seq))
        for client in [*self.clients.values(), *self.ended]:
            # A refused message has no number in the queue.
            numbered = [one for one in range(1, client.sent + 1) if one not in client.refused]
            seqs = {one: seq for seq, one in enumerate(numbered, 1)}
            lost = [one for one in client.confirmed if (client.pid, seqs[one]) not in done]
            assert not lost, f"{client.pid} was told that {lost} are safe"


def run_seed(seed: int, steps: int = STEPS) -> QuorumWorld:
    world = QuorumWorld(seed)
    world.live(steps)
    return world
