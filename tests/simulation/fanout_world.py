"""A broker, platforms, vehicles and their fate, all decided by dice with a seed.

The broker is the real one on the simulated network of `node.py`. One step is one event: a platform
publishes data or a trigger, a vehicle comes, goes, is taken over, acknowledges, refuses, shows that
it is alive; a commit ends or fails; time passes; what is known of vehicles is lost; the broker
crashes and keeps nothing but its store. `fanout_peers.py` says what is wrong as soon as it is seen.
At the end nothing breaks any more and vehicles take all that is left: every trigger which was
answered has reached each of its vehicles, and any other has reached all of them or none.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from tests.harness.packets import Packet
from tests.simulation.fanout_peers import Ledger, Peer, Platform, Triggered, Vehicle
from tests.simulation.network import FakeTransport
from tests.simulation.queue_stage import LogKeeper
from tests.simulation.world import split
from tests.unit.fanout_node import FanoutNode, trigger_json

STEPS = 200
CALM_ROUNDS_MAX = 300
NEVER_S = 0xFFFFFFFF
START_NS = 100_000_000


class FanoutWorld:
    """One life from one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.policy = dice.choice(["append", "append", "replace"])
        self.rows_per_slice = dice.choice([1, 2, 2000])
        self.node = FanoutNode(
            same_request=self.policy, on_reject=dice.choice(["done", "done", "retry", "dlq"])
        )
        self.node.fanout.storing.rows_per_slice = self.rows_per_slice
        self.log = LogKeeper()
        self.ledger = Ledger()
        self.platforms = [Platform("p4", 4, self.ledger), Platform("p5", 5, self.ledger)]
        self.vehicles = [
            Vehicle(f"V{number}", dice.choice([4, 5]), dice.choice([NEVER_S, 0]), self.ledger)
            for number in range(4)
        ]
        self.ghosts: list[tuple[Peer, FakeTransport]] = []
        self.data_first = dice.random() < 0.7
        self.number = 0
        self.steps = 0
        self.events: list[tuple[float, Callable[[], None]]] = [
            (25, self._trigger),
            (20, self._publish_data),
            (30, self._read),
            (30, self._acknowledge),
            (20, self._connect),
            (8, self._beat),
            (5, self._time_passes),
            (4, self._drop),
            (2, self._leave_a_ghost),
            (2, self._take_over),
            (2, self._ghost_is_noticed),
            (1, self._clean_start),
            (1, self._forget),
            (2, self._commits_fail),
            (1, self._crash),
        ]

    def live(self, steps: int = STEPS) -> None:
        """A whole life; raises when a promise was broken."""
        logger = logging.getLogger("queuelake")
        logger.addHandler(self.log)
        try:
            for _ in range(steps):
                self.step()
                self.check()
            self._calm_down()
            self._check_end()
        finally:
            logger.removeHandler(self.log)

    def step(self) -> None:
        self.steps += 1
        weights = [weight for weight, _ in self.events]
        (event,) = self.dice.choices([action for _, action in self.events], weights)
        event()
        if self.dice.random() < 0.7:
            self.node.loop.turn()
        if self.dice.random() < 0.4:
            self._commit()

    def check(self) -> None:
        wrong = self.ledger.wrong + self.log.found
        assert not wrong, f"step {self.steps}: " + "\n".join(wrong)

    # Events

    def _trigger(self) -> None:
        platform = self.dice.choice(self.platforms)
        if not platform.is_online:
            return
        known = sorted(platform.stored - self.ledger.triggers.keys())
        if known:
            number = known[0]
        elif self.data_first:
            return
        else:
            self.number += 1
            number = self.number
        names = [one.name for one in self.vehicles]
        vins = self.dice.sample(names, self.dice.randint(1, len(names)))
        request_id = f"task_a_{self.dice.randint(1, 3)}"
        one = Triggered(number, platform.name, vins, request_id, bool(known))
        self.ledger.triggers[number] = one
        platform.publish_trigger(one, trigger_json(vins, request_id, f"d{number}"))

    def _publish_data(self) -> None:
        platform = self.dice.choice(self.platforms)
        if platform.is_online:
            missing = sorted(self.ledger.triggers.keys() - platform.stored)
            if missing and self.dice.random() < 0.5:
                platform.publish_data(self.dice.choice(missing))
            else:
                self.number += 1
                platform.publish_data(self.number)

    def _read(self) -> None:
        for peer in self.dice.sample(self._peers(), 3):
            peer.read()

    def _acknowledge(self) -> None:
        for vehicle in self.dice.sample(self.vehicles, 2):
            if vehicle.is_online and vehicle.inbox:
                refuses = vehicle.version == 5 and self.dice.random() < 0.1
                vehicle.acknowledge(0x83 if refuses else 0)

    def _connect(self) -> None:
        peer = self.dice.choice(self._peers())
        if peer.transport is None:
            self._open(peer)

    def _clean_start(self) -> None:
        vehicle = self.dice.choice(self.vehicles)
        if vehicle.transport is None:
            self.ledger.epoch += 1
            self._open(vehicle, True)

    def _beat(self) -> None:
        vehicle = self.dice.choice(self.vehicles)
        if vehicle.is_online:
            vehicle.beat()

    def _drop(self) -> None:
        transport = self.dice.choice(self._peers()).forget_connection()
        if transport is not None:
            transport.hang_up()

    def _leave_a_ghost(self) -> None:
        peer = self.dice.choice(self._peers())
        transport = peer.forget_connection()
        if transport is not None:
            self.ghosts.append((peer, transport))

    def _take_over(self) -> None:
        self._leave_a_ghost()
        if self.ghosts and self.ghosts[-1][0].transport is None:
            self._open(self.ghosts[-1][0])

    def _ghost_is_noticed(self) -> None:
        if self.ghosts:
            self.ghosts.pop(self.dice.randrange(len(self.ghosts)))[1].hang_up()

    def _time_passes(self) -> None:
        self.node.loop.advance(self.dice.choice([10, 300, 1200, 2500]))

    def _forget(self) -> None:
        """As if a dispatcher had died."""
        for vin in list(self.node.fanout.dispatcher.awake):
            self.node.fanout.dispatcher.left(vin)

    def _commits_fail(self) -> None:
        self.node.store.fail_commits = self.dice.choice([1, 1, 2])

    def _crash(self) -> None:
        if self.dice.random() < 0.5:
            self.node.committer.commit()
        self.node.loop.now_ns += START_NS
        self.node.crash()
        self.node.fanout.storing.rows_per_slice = self.rows_per_slice
        self.ledger.epoch += 1
        self.ghosts.clear()
        for peer in self._peers():
            peer.forget_connection()

    # The stage

    def _peers(self) -> list[Peer]:
        return [*self.platforms, *self.vehicles]

    def _open(self, peer: Peer, clean: bool = False) -> None:
        transport = FakeTransport(self.node.broker, self.node.loop)
        transport.on_write = lambda data: self._on_write(peer, transport, data)
        peer.log_in(transport, clean)

    def _on_write(self, peer: Peer, transport: FakeTransport, data: bytes) -> None:
        if isinstance(peer, Vehicle) and peer.transport is transport:
            packets: list[Packet] = split(data, peer.version)
            for packet in packets:
                peer.sent(packet)

    def _commit(self) -> None:
        before = self.node.store.fail_commits
        self.node.committer.commit()
        if self.node.store.fail_commits < before:
            self.ledger.epoch += 1
            self.node.loop.call_soon(self._new_epoch)  # the broker has heard of it by then

    def _new_epoch(self) -> None:
        self.ledger.epoch += 1

    # The end

    def _calm_down(self) -> None:
        """Nothing breaks any more; everybody is there, and takes what comes."""
        self.node.store.fail_commits = 0
        for _, transport in self.ghosts:
            transport.hang_up()
        self.ghosts.clear()
        quiet = 0
        for _ in range(CALM_ROUNDS_MAX):
            for peer in self._peers():
                if peer.transport is None:
                    self._open(peer)
            self.node.loop.advance(300)
            self.node.work()
            for peer in self._peers():
                peer.read()
            self.check()
            quiet = 0 if self._takes_on() else quiet + 1
            if quiet > 40:  # longer than the longest pause before a retry
                return
        raise AssertionError("vehicles never come to rest")

    def _takes_on(self) -> bool:
        """Whether there was something to do."""
        busy = False
        platform = self.platforms[1]
        for number in sorted(self.ledger.triggers):
            if number not in platform.stored and platform.is_online:
                platform.publish_data(number)
                platform.stored.add(number)
                busy = True
        for vehicle in self.vehicles:
            if not vehicle.is_online:
                busy = True
            elif vehicle.inbox:
                vehicle.acknowledge()
                busy = True
            else:
                vehicle.beat()
        self.node.work()
        return busy

    def _check_end(self) -> None:
        self.check()
        self.node.check()
        assert self.node.fanout.status().remaining_messages == 0
        for one in self.ledger.triggers.values():
            missing = set(one.vins) - one.delivered
            if self.policy == "replace":
                missing = {vin for vin in missing if not self._is_replaced(one, vin)}
            elif not one.is_accepted and missing == set(one.vins):
                continue  # it never came to anything, and nobody was told that it did
            if self.policy == "append" or one.is_accepted:
                assert not missing, f"trigger {one.number} has not reached {sorted(missing)}"

    def _is_replaced(self, one: Triggered, vin: str) -> bool:
        return any(
            vin in other.vins and other.request_id == one.request_id
            for other in self.ledger.triggers.values()
            if other is not one
        )


def run_seed(seed: int, steps: int = STEPS) -> None:
    FanoutWorld(seed).live(steps)
