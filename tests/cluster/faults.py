"""A load on a cluster which knows the truth, whatever happens to nodes and servers meanwhile.

Producers and consumers are spread over the nodes and go to the next one when theirs is gone, as
clients with several addresses do. What they saw is judged as in the crash tests, by
`queue_history`; the life of a broker is the epoch of its ownership here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count, pairwise
from typing import NamedTuple

from queuelake.errors import QueuelakeError
from queuelake.placing import Placing
from tests.crash.durable_client import ConnectionLostError
from tests.crash.queue_clients import Address, Consumer, Producer, Undertaker
from tests.crash.queue_history import History, Message, mistakes
from tests.harness.cluster import Cluster
from tests.harness.packets import PUBACK, Packet

PRODUCERS = 3
CONSUMERS = 3
INTERVAL_S = 0.02  # of one producer
BACKLOG_MAX = 2_000
RECENT = 100
READY_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 2.0
FINISH_TIMEOUT_S = 60.0
# Longer than a message may take to come back: delivery timeout, then backoff.
DRAIN_QUIET_S = 15.0
CONFIG = """
[queues.defaults]
performance.delivery_timeout = "10s"
retry_policy.max_retries = 50
retry_policy.initial_backoff = "100ms"
retry_policy.max_backoff = "1s"
[queues."strict"]
type = "quorum"
"""
QUORUM = "strict"  # the name of a quorum queue


class Confirmed(NamedTuple):
    """When a message was sent, for the last time, and when its confirmation was read."""

    sent_at: float
    at: float


class Load:
    """`calm` consumers ack everything at once; others do as they like until the end."""

    def __init__(self, cluster: Cluster, queue: str, *, calm: bool = True) -> None:
        self.history = History()
        self._by_key = queue != QUORUM
        self.confirmed: list[Confirmed] = []
        self._cluster = cluster
        self._shard = Placing(cluster.shards).of_queue(queue)
        lives = self._epoch
        self._producers = [
            PacedProducer(self._addresses(one), f"{queue}-p{one}", queue, self)
            for one in range(PRODUCERS)
        ]
        self._consumers = [
            Consumer(self._addresses(one), f"{queue}-c{one}", lives, queue, self.history)
            for one in range(CONSUMERS)
        ]
        for consumer in self._consumers:
            consumer.calm = calm
        self._undertaker = Undertaker(self._addresses(0), f"{queue}-u", lives, queue, self.history)

    def start(self) -> Load:
        for client in [*self._consumers, self._undertaker, *self._producers]:
            client.start()
            if not client.ready.wait(READY_TIMEOUT_S):
                raise AssertionError(f"{client.client_id} is not ready: {client.violations}")
        self.wait_until_confirmed(time.monotonic())
        return self

    def has_room(self) -> bool:
        ended = sum(consumer.ended for consumer in self._consumers)
        return len(self.history.accepted) < ended + BACKLOG_MAX

    def wait_until_confirmed(self, since: float, timeout_s: float = FINISH_TIMEOUT_S) -> None:
        """Until something was confirmed which was sent after that time."""
        deadline = time.monotonic() + timeout_s
        while not any(one.sent_at > since for one in reversed(self.confirmed[-RECENT:])):
            if time.monotonic() > deadline:
                raise AssertionError(f"nothing is confirmed for {timeout_s:g} s")
            time.sleep(INTERVAL_S)

    def outage_s(self, since: float) -> float:
        """The longest time without a confirmed publish, from this time on."""
        times = [since, *[one.at for one in self.confirmed if one.at > since]]
        return max([later - earlier for earlier, later in pairwise(times)], default=0.0)

    def finish(self) -> list[str]:
        """Everything published is confirmed and settled, everybody leaves: what was wrong?"""
        for producer in self._producers:
            producer.finish(FINISH_TIMEOUT_S)
        for consumer in self._consumers:
            consumer.calm = True
        self._drain()
        clients = [*self._producers, *self._consumers, self._undertaker]
        for client in clients:
            client.stop()
        seen = [violation for client in clients for violation in client.violations]
        return seen + mistakes(self.history, by_key=self._by_key)

    def _drain(self) -> None:
        history = self.history
        seen, last_seen = 0, time.monotonic()
        while len(history.finished()) < len(set(history.accepted)):
            if len(history.deliveries) + len(history.dead) > seen:
                seen = len(history.deliveries) + len(history.dead)
                last_seen = time.monotonic()
            if time.monotonic() > last_seen + DRAIN_QUIET_S:
                break
            time.sleep(0.1)

    def _addresses(self, first: int) -> Address:
        """Each node in turn, beginning with this one."""
        turn = first - 1

        def next_address() -> tuple[str, int]:
            nonlocal turn
            turn += 1
            node = self._cluster.nodes[turn % len(self._cluster.nodes)]
            return node.host, node.mqtt_port

        return next_address

    def _epoch(self) -> int:
        """Of the broker which serves. It is asked for before and after a client connects; what a
        deposed owner answers is no delivery, because those are committed first."""
        epochs = []
        for index in self._cluster.alive():
            try:
                info = self._cluster.info(index)
            except (QueuelakeError, OSError):
                continue
            shard = info.shards[self._shard]
            if shard.owner == info.node:
                epochs.append(shard.epoch)
        if not epochs:
            time.sleep(0.1)
            raise ConnectionLostError
        return max(epochs)


def queue_of(shard: int, shards: int, name: str) -> str:
    """A queue which is in that shard, called so or nearly so."""
    placing = Placing(shards)
    return next(one for one in (f"{name}-{n}" for n in count()) if placing.of_queue(one) == shard)


class PacedProducer(Producer):
    """A few messages at a time, so that a gap between two confirmations is the cluster's."""

    connack_timeout_s = ANSWER_TIMEOUT_S

    def __init__(self, address: Address, client_id: str, queue: str, load: Load) -> None:
        super().__init__(address, client_id, lambda: 0, queue, load.history, self._is_time)
        self._load = load
        self._next_at = 0.0
        self._sent_at: dict[int, float] = {}  # by packet id
        self._answered_at = 0.0

    def _opening(self) -> bytes:
        self._answered_at = time.monotonic()
        return super()._opening()

    def _next(self) -> bytes:
        if not self._unconfirmed:
            self._answered_at = time.monotonic()
        if time.monotonic() > self._answered_at + ANSWER_TIMEOUT_S:
            raise ConnectionLostError  # its node may stand still: there are others
        return super()._next()

    def _is_time(self) -> bool:
        now = time.monotonic()
        if now < self._next_at or not self._load.has_room():
            return False
        self._next_at = now + INTERVAL_S
        return True

    def _written(self, packet_id: int, message: Message) -> bytes:
        self._sent_at[packet_id] = time.monotonic()
        return super()._written(packet_id, message)

    def _on_packet(self, packet: Packet) -> bytes:
        answer = super()._on_packet(packet)
        if packet.type == PUBACK:
            self._answered_at = time.monotonic()
            confirmed = Confirmed(self._sent_at.pop(packet.packet_id), self._answered_at)
            self._load.confirmed.append(confirmed)
        return answer


def broken(load: Load, fault: Callable[[], object]) -> float:
    """Let something happen, and wait until what is sent then is confirmed; seconds without."""
    since = time.monotonic()
    fault()
    load.wait_until_confirmed(time.monotonic())
    return load.outage_s(since)
