"""Publishers and subscribers of a regular and of a last-value queue; the broker is killed often.

Clients are as unreliable as the broker until the last kill; then publishers finish, subscribers
calm down, and what is left is drained. `mq_history` says what must be true then.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.crash.mq_clients import SEALS, Publisher, Subscriber
from tests.crash.mq_history import MqHistory
from tests.crash.queue_clients import Address
from tests.harness.broker import BrokerProcess

PUBLISHERS = 2
SUBSCRIBERS = 3
BACKLOG_MAX = 200
KILL_AFTER_S = (0.05, 1.2)
FINISH_TIMEOUT_S = 60.0
REGULAR = """
[mq.auto_create.lastvalue]
enable = false
[mq.auto_create.regular]
enable = true
"""
LAST_VALUE = """
[mq.auto_create.lastvalue]
key_expression = "message.topic"
"""


@dataclass
class Outcome:
    """What happened; `violations` is empty when every promise was kept."""

    kills: int = 0
    accepted: int = 0
    delivered: int = 0
    rejected: int = 0
    sealed: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.accepted} messages accepted, {self.delivered} deliveries, "
            f"{self.rejected} rejected, {self.sealed} acked for good; "
            f"{len(self.violations)} violations"
        )


class Team:
    """Everybody around one queue."""

    def __init__(self, place: Address, root: str, lives: Callable[[], int], seed: int) -> None:
        self.root = root
        self.history = MqHistory(root == "values")
        self.publishers = [
            Publisher(place, f"{root}-{seed}-p{one}", lives, root, self.history, self._has_room)
            for one in range(PUBLISHERS)
        ]
        self.subscribers = [
            Subscriber(place, f"{root}-{seed}-s{one}", lives, f"$q/{root}/#", self.history)
            for one in range(SUBSCRIBERS)
        ]

    def start(self) -> None:
        for client in [*self.subscribers, *self.publishers]:
            client.start()
            if not client.ready.wait(10.0):
                raise AssertionError(f"{client.client_id} not ready in 10 s: {client.violations}")

    def finish(self) -> None:
        """Everything published is answered, everything accepted is acked."""
        for publisher in self.publishers:
            publisher.finishing = True
        for subscriber in self.subscribers:
            subscriber.calm = True
        deadline = time.monotonic() + FINISH_TIMEOUT_S
        while time.monotonic() < deadline:
            if all(one.is_done() for one in self.publishers) and not self.history.left():
                break
            time.sleep(0.1)
        time.sleep(1.0)  # what came back although it had ended would come now

    def stop(self) -> list[str]:
        """Everybody leaves; what they saw of forbidden things."""
        clients = [*self.publishers, *self.subscribers]
        for client in clients:
            client.stop()
        seen = [violation for client in clients for violation in client.violations]
        return [f"{self.root}: {one}" for one in seen + self.history.mistakes()]

    def _has_room(self) -> bool:
        history = self.history
        if history.is_last_value:
            return len(history.accepted) < history.delivered + BACKLOG_MAX
        return len(history.accepted) < len(history.acked) + BACKLOG_MAX


class MqWorkload:
    """One run; `broker` was not started, and has a fixed MQTT port."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._broker = broker
        self._dice = random.Random(seed)
        self._seed = seed
        self._life = 1

    def run(self, kills: int, report: Callable[[str], None] = lambda line: None) -> Outcome:
        self._make_queues()
        place = self._broker.host, self._broker.mqtt_port
        teams = [
            Team(lambda: place, root, lambda: self._life, self._seed) for root in ("jobs", "values")
        ]
        for team in teams:
            team.start()
        for number in range(1, kills + 1):
            time.sleep(self._dice.uniform(*KILL_AFTER_S))
            self._broker.kill()
            self._life += 1
            self._broker.start()
            report(f"kill {number}: {sum(len(one.history.accepted) for one in teams)} accepted")
        outcome = Outcome(kills)
        for team in teams:
            team.finish()
        for team in teams:
            outcome.violations += team.stop()
            outcome.accepted += len(team.history.accepted)
            outcome.delivered += team.history.delivered
            outcome.rejected += team.history.rejected
            outcome.sealed += len(team.history.sealed)
        return outcome

    def _make_queues(self) -> None:
        """Whoever subscribes first makes a queue, of the kind which is configured."""
        for config, roots in ((REGULAR, ["jobs"]), (LAST_VALUE, ["values", SEALS])):
            self._broker.config = config
            self._broker.start()
            with self._broker.client() as client:
                client.connect()
                for root in roots:
                    client.subscribe((f"$q/{root}/#", 1))
            if config == REGULAR:
                self._broker.stop()
