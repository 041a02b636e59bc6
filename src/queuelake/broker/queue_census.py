"""All queues in figures, for one scrape: those awake from memory, those asleep from the store.

A scrape names the QUEUES_PER_SCRAPE_MAX deepest. Of a queue which sleeps only its depth is told. It
does not change while the queue sleeps, so it is remembered; each scrape looks at some of the
sleepers again, in turn, because one may have been awake between two scrapes.
"""

from __future__ import annotations

import heapq

from queuelake import names
from queuelake.broker.queue_views import read_sleeper
from queuelake.broker.queues.durable import DurableHost
from queuelake.broker.queues.host import HostedQueue
from queuelake.broker.queues.registry import Queues
from queuelake.control_queues import QUEUES_PER_SCRAPE_MAX, QueueMetrics
from queuelake.engine.counters import Counters, quantile_ms
from queuelake.engine.groups import Group

SLEEPERS_PER_SCRAPE = 200


class QueueCensus:
    """Counts the queues of one broker."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._depths: dict[str, int] = {}  # of sleepers which hold something
        self._turn: list[str] = []

    def count(self) -> int:
        return len(self._queues.names())

    def metrics(self) -> list[QueueMetrics]:
        self._look_at_sleepers()
        awake = self._queues.hosts.items()
        hosts = {name: host for name, host in awake if isinstance(host, DurableHost)}
        depths = [(host.machine.depth(), name) for name, host in hosts.items()]
        depths += [(depth, name) for name, depth in self._depths.items()]
        deepest = heapq.nlargest(QUEUES_PER_SCRAPE_MAX, depths)
        return [
            _metrics(hosts[name], depth)
            if name in hosts
            else QueueMetrics(names.address(name), depth, asleep=True)
            for depth, name in deepest
        ]

    def _look_at_sleepers(self) -> None:
        queues, depths = self._queues, self._depths
        for name in [name for name in depths if not queues.sleeping_id(name)]:
            del depths[name]
        if not self._turn:
            self._turn = queues.names().copy()
        with queues.store.view() as view:
            looked = 0
            while self._turn and looked < SLEEPERS_PER_SCRAPE:
                name = self._turn.pop()
                queue_id = queues.sleeping_id(name)
                if queue_id:
                    looked += 1
                    sleeper = read_sleeper(view, queue_id)
                    depths.pop(name, None)
                    if sleeper is not None and sleeper.depth:
                        depths[name] = sleeper.depth


def _metrics(host: HostedQueue, depth: int) -> QueueMetrics:
    groups, counters = host.machine.groups.values(), host.machine.counters
    return QueueMetrics(
        queue=names.address(host.name),
        depth=depth,
        in_flight=sum([in_flight(group) for group in groups]),
        enqueued=counters.enqueued,
        dequeued=counters.delivered,
        acked=counters.acked,
        nacked=counters.nacked,
        redelivered=counters.redelivered,
        expired=counters.expired,
        dropped=counters.dropped,
        dead_lettered_by_reason=dict(counters.dead),
        latency_p50_s=latency_s(counters, 0.5),
        latency_p99_s=latency_s(counters, 0.99),
        consumers_by_group={group.name: len(group.consumers) for group in groups},
    )


def in_flight(group: Group) -> int:
    return sum([len(lane.held) for lane in group.lanes])


def latency_s(counters: Counters, share: float) -> float | None:
    """None: nothing was delivered yet."""
    counts = counters.latency.counts
    return quantile_ms(counts, share) / 1000 if any(counts) else None
