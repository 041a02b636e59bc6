"""Producers, a group of three and an undertaker on each of two queues; the broker is killed often.

One queue hands out several messages of a key at a time, the other (`key_inflight = 1`) one after
the other. Clients are as unreliable as the broker until the last kill; then producers finish,
consumers calm down, and what is left is drained. `queue_history` says what must be true then.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.crash.queue_clients import DELIVERY_TIMEOUT_S, Address, Consumer, Producer, Undertaker
from tests.crash.queue_history import History, mistakes
from tests.harness.broker import BrokerProcess

PRODUCERS = 2
CONSUMERS = 3
BACKLOG_MAX = 300
KILL_AFTER_S = (0.05, 1.2)
FINISH_TIMEOUT_S = 60.0
# Longer than a forgotten message may take to come back: its timeout, then its backoff.
DRAIN_QUIET_S = DELIVERY_TIMEOUT_S + 10.0
CONFIG = f"""
[queues.defaults]
performance.delivery_timeout = "{DELIVERY_TIMEOUT_S:g}s"
retry_policy.max_retries = 3
retry_policy.initial_backoff = "500ms"
retry_policy.max_backoff = "2s"
[queues."crash/parallel"]
events = "all"
[queues."crash/serial"]
key_inflight = 1
"""


@dataclass
class Outcome:
    """What happened; `violations` is empty when every promise was kept."""

    kills: int = 0
    accepted: int = 0
    delivered: int = 0
    dead: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        dead = ", ".join(f"{count} {reason}" for reason, count in sorted(self.dead.items()))
        return (
            f"{self.kills} kills, {self.accepted} messages accepted, {self.delivered} deliveries, "
            f"dead: {dead or 'none'}; {len(self.violations)} violations"
        )


class Team:
    """Everybody around one queue."""

    def __init__(self, address: Address, queue: str, lives: Callable[[], int], seed: int) -> None:
        self.queue = queue
        self.history = History()
        name = f"{queue.replace('/', '_')}-{seed}"
        self.producers = [
            Producer(address, f"{name}-p{number}", lives, queue, self.history, self._has_room)
            for number in range(PRODUCERS)
        ]
        self.consumers = [
            Consumer(address, f"{name}-c{number}", lives, queue, self.history)
            for number in range(CONSUMERS)
        ]
        self.undertaker = Undertaker(address, f"{name}-u", lives, queue, self.history)

    def start(self) -> None:
        for client in [*self.consumers, self.undertaker, *self.producers]:
            client.start()
            if not client.ready.wait(10.0):
                raise AssertionError(f"{client.client_id} not ready in 10 s: {client.violations}")

    def finish(self) -> None:
        """Everything published is confirmed, everything accepted is settled."""
        for producer in self.producers:
            producer.finish(FINISH_TIMEOUT_S)
        for consumer in self.consumers:
            consumer.calm = True
        seen, last_seen = 0, time.monotonic()
        while time.monotonic() < last_seen + DRAIN_QUIET_S:
            if len(self.history.finished()) >= len(set(self.history.accepted)):
                break
            if len(self.history.deliveries) + len(self.history.dead) > seen:
                seen = len(self.history.deliveries) + len(self.history.dead)
                last_seen = time.monotonic()
            time.sleep(0.1)
        time.sleep(1.0)  # what came back although it had ended would come now

    def stop(self) -> list[str]:
        """Everybody leaves; what they saw of forbidden things."""
        clients = [*self.producers, *self.consumers, self.undertaker]
        for client in clients:
            client.stop()
        return [violation for client in clients for violation in client.violations]

    def _has_room(self) -> bool:
        ended = sum(consumer.ended for consumer in self.consumers)
        return len(self.history.accepted) < ended + BACKLOG_MAX


class QueueWorkload:
    """One run; `broker` must be started, with a fixed MQTT port and `CONFIG`."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._broker = broker
        self._dice = random.Random(seed)
        self._life = 1
        address = broker.host, broker.mqtt_port
        self._parallel = Team(lambda: address, "crash/parallel", lambda: self._life, seed)
        self._serial = Team(lambda: address, "crash/serial", lambda: self._life, seed)

    def run(self, kills: int, report: Callable[[str], None] = lambda line: None) -> Outcome:
        outcome = Outcome()
        teams = [self._parallel, self._serial]
        for team in teams:
            team.start()
        for number in range(1, kills + 1):
            time.sleep(self._dice.uniform(*KILL_AFTER_S))
            self._broker.kill()
            self._life += 1
            self._broker.start()
            report(f"kill {number}: {sum(len(t.history.accepted) for t in teams)} accepted")
        outcome.kills = kills
        for team in teams:
            team.finish()
        for team in teams:
            violations = team.stop() + mistakes(team.history, serial=team is self._serial)
            outcome.violations += [f"{team.queue}: {violation}" for violation in violations]
            outcome.accepted += len(team.history.accepted)
            outcome.delivered += len(team.history.deliveries)
            outcome.dead += team.undertaker.reasons
        return outcome
